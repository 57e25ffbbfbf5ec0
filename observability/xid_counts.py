"""The column `xid_counts` says how often a GPU reported each Xid in the last minutes, as "48:2 79:1"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from protocol.gpus.telemetry import XIDS_MAX

XID_COUNTS_MAX_CHARS: Final = XIDS_MAX * len("100000:1000000 ")


def counts_text(counts: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{number}:{count}" for number, count in sorted(counts))


def counts_from(text: str) -> Mapping[int, int]:
    pairs = (word.split(":") for word in text.split())
    return {int(number): int(count) for number, count in pairs}
