"""Remembers boxes without room for any waiting pod, so that they are not evaluated again until something changes."""

from __future__ import annotations

from collections.abc import Collection


class FullBoxes:
    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, ...]] = {}  # by GPR: all objects that decide what fits

    def is_full(self, gpr_id: str, seen: tuple[object, ...]) -> bool:
        # Compared by identity: a changed object is another object, and stored ones keep theirs.
        known = self._seen.get(gpr_id, ())
        return len(known) == len(seen) > 0 and all(old is new for old, new in zip(known, seen, strict=True))

    def remember(self, gpr_id: str, seen: tuple[object, ...]) -> None:
        self._seen[gpr_id] = seen

    def keep(self, gpr_ids: Collection[str]) -> None:
        self._seen = {gpr_id: seen for gpr_id, seen in self._seen.items() if gpr_id in gpr_ids}
