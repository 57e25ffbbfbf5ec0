"""The hub sends the policy of node checks, and the agent reports results."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from protocol.scalars import Word

RESULTS_MAX = 1_000  # in one attempt


class Verdict(StrEnum):
    """WARN does not refuse the node. SKIP means that there was nothing to measure."""

    PASS = "PASS"  # noqa: S105  # no password
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


class CheckPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An empty field means the agent's default. The agent ignores unknown names."""

    limits: dict[str, float] = {}  # by check, see `protocol.nodes.check_limits`
    images: dict[str, str] = {}  # by purpose, see `check_limits.IMAGES`
    storage_class: str = ""  # of the volume of the storage check
    rdma_subnet: str = ""  # the first half of the GIDs that RDMA ports must have; "": any
    runtime_class: str = ""  # of pods that look at GPUs
    pull_secret: str = ""  # for the images


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    check: Word  # its name in `protocol.nodes.check_limits`
    verdict: Verdict
    gpu: Annotated[str, msgspec.Meta(max_length=63)] = ""  # "": it is about the whole node
    value: float | None = None
    unit: Word = ""
    threshold: float | None = None
    is_least: bool = False  # the threshold is a minimum, otherwise a maximum
    text: Annotated[str, msgspec.Meta(max_length=200)] = ""
