"""Checks of nodes: the policy that the hub sends, and the results that the agent reports."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from protocol.scalars import Word

RESULTS_MAX = 1_000  # of one attempt


class Verdict(StrEnum):
    """Of one measurement. WARN: worth a look, and no reason to refuse the node. SKIP: it could not be measured, or need not be."""

    PASS = "PASS"  # noqa: S105  # no password
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


class CheckPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What differs from the agent's own: see `protocol.check_limits`. Names that this agent does not know have no effect.

    `images`: by what they are for (`limits.IMAGES`). `storage_class`: of the volume that the storage check asks for; "": the
    cluster's default. `rdma_subnet`: the first half of the GIDs that RDMA ports must have; "": any. `runtime_class`: of the pods
    that look at GPUs; `pull_secret`: by which the images are pulled; "": the agent's own of either.
    """

    limits: dict[str, float] = {}
    images: dict[str, str] = {}
    storage_class: str = ""
    rdma_subnet: str = ""
    runtime_class: str = ""
    pull_secret: str = ""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was measured, of one GPU or, where `gpu` is "", of the whole node.

    `check`: its name, as in `protocol.check_limits`. `is_least`: the threshold is the least that is good, else the most.
    """

    check: Word
    verdict: Verdict
    gpu: Annotated[str, msgspec.Meta(max_length=63)] = ""
    value: float | None = None
    unit: Word = ""
    threshold: float | None = None
    is_least: bool = False
    text: Annotated[str, msgspec.Meta(max_length=200)] = ""
