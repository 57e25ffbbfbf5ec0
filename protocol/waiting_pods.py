"""GPU pods that wait in the namespaces of workspaces, and Jobs that failed there."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.scalars import MOMENT_MAX_S, Count, Id

# Of pods that wait, told for the pages: what is more is counted, or not told.
NAMESPACES_WAITING_MAX, REASONS_WAITING_MAX, PODS_NAMED_MAX, JOBS_WAITING_MAX = 500, 5, 3, 10
JOBS_FAILED_MAX = 100  # of one message


class ReasonWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that wait for one reason, a sentence; `names`: of some of them."""

    text: Annotated[str, msgspec.Meta(max_length=200)]
    count: Count
    names: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=253)], ...], msgspec.Meta(max_length=PODS_NAMED_MAX)] = ()


class JobWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """A Job with a deadline, which runs while so many of its pods wait; then it fails."""

    name: Annotated[str, msgspec.Meta(max_length=253)]
    count: Count
    fails_s: Annotated[float, msgspec.Meta(ge=0, le=MOMENT_MAX_S)]


class PodsWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """GPU pods of one bound namespace that wait. `reasons`: the most frequent ones; `jobs`: those that fail first."""

    namespace: Id
    count: Count
    reasons: Annotated[tuple[ReasonWaiting, ...], msgspec.Meta(max_length=REASONS_WAITING_MAX)] = ()
    jobs: Annotated[tuple[JobWaiting, ...], msgspec.Meta(max_length=JOBS_WAITING_MAX)] = ()


class JobFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A Job of a bound namespace whose pods were in the box of this GPR last, and that has failed."""

    gpr_id: Id
    namespace: Id
    name: Annotated[str, msgspec.Meta(max_length=253)]
