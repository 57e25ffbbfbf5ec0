"""Finds pods that no node of an open box could hold even if empty: their owners are told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from protocol.assignments import Assignment
from worker_agent.kube.pods.lifting import Amounts, NodeCapacity, why_nowhere
from worker_agent.kube.pods.needs import PodAssessment


@dataclass(frozen=True, slots=True)
class Misfit:
    gpr_name: str
    why: str


class Misfits:
    """One thread writes it, and any may read it."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Misfit]] = {}  # by GPR, by UID of the pod

    def see(self, box: Assignment, capacities: Sequence[NodeCapacity], judgements: Iterable[PodAssessment]) -> None:
        # Without nodes it is unknown whether a pod fits.
        why: dict[frozenset[object], str] = {}
        found: dict[str, Misfit] = {}
        for judgement in judgements if capacities else ():
            needs = frozenset[object](judgement.needs.items())
            if needs not in why:
                why[needs] = _why(capacities, judgement.needs, has_devices=bool(judgement.devices))
            if why[needs]:
                found[judgement.pod.metadata.uid] = Misfit(box.gpr_name, why[needs])
        self._known[box.gpr_id] = found

    def keep(self, gpr_ids: Collection[str]) -> None:
        self._known = {gpr_id: found for gpr_id, found in self._known.items() if gpr_id in gpr_ids}

    def of(self, uid: str) -> Misfit | None:
        return next((found[uid] for found in list(self._known.values()) if uid in found), None)


def _why(capacities: Sequence[NodeCapacity], needs: Amounts, *, has_devices: bool) -> str:
    # Only whole nodes provide devices, and pods that request them are told so elsewhere.
    return "" if has_devices and any(capacity.is_shared for capacity in capacities) else why_nowhere(capacities, needs)
