"""Reports GPU pods that wait in namespaces of workspaces, and Jobs that failed there."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.scalars import Count, Id, Moment

# Limits of one report; further pods are only counted, and further namespaces and Jobs are left out.
NAMESPACES_WAITING_MAX, REASONS_WAITING_MAX, PODS_NAMED_MAX, JOBS_WAITING_MAX = 500, 5, 3, 10
JOBS_FAILED_MAX = 100  # in one message


class ReasonWaiting(msgspec.Struct, frozen=True, kw_only=True):
    text: Annotated[str, msgspec.Meta(max_length=200)]  # one reason why pods wait, as a sentence
    count: Count
    # some of these pods
    names: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=253)], ...], msgspec.Meta(max_length=PODS_NAMED_MAX)] = ()


class JobWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """The Job fails at `fails_s` while `count` of its pods wait."""

    name: Annotated[str, msgspec.Meta(max_length=253)]
    count: Count
    fails_s: Moment


class PodsWaiting(msgspec.Struct, frozen=True, kw_only=True):
    namespace: Id
    count: Count
    reasons: Annotated[tuple[ReasonWaiting, ...], msgspec.Meta(max_length=REASONS_WAITING_MAX)] = ()  # the most frequent ones
    jobs: Annotated[tuple[JobWaiting, ...], msgspec.Meta(max_length=JOBS_WAITING_MAX)] = ()  # those that fail first


class JobFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Its pods ran last in the box of this GPR."""

    gpr_id: Id
    namespace: Id
    name: Annotated[str, msgspec.Meta(max_length=253)]
