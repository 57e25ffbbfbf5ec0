"""Boxes into which no more of the pods that wait fitted, so that these are not counted again at each pass while nothing of it changes."""

from __future__ import annotations

from collections.abc import Collection


class FullBoxes:
    """`seen`: all that decides what fits, as objects that are replaced where they change: compared by identity, and kept for that."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, ...]] = {}  # by GPR

    def is_full(self, gpr_id: str, seen: tuple[object, ...]) -> bool:
        known = self._seen.get(gpr_id, ())
        return len(known) == len(seen) > 0 and all(old is new for old, new in zip(known, seen, strict=True))

    def remember(self, gpr_id: str, seen: tuple[object, ...]) -> None:
        self._seen[gpr_id] = seen

    def keep(self, gpr_ids: Collection[str]) -> None:
        self._seen = {gpr_id: seen for gpr_id, seen in self._seen.items() if gpr_id in gpr_ids}
