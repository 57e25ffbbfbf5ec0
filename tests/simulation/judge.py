"""Invariants of the hub's database after every event, and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from gpr.models import ENDED, PROVISIONED, TRANSITIONS, Gpr, GprState
from inventory.models import AgentSession, Cluster, Reservation, ReservationState
from protocol.assignments import Phase
from tests.simulation.cluster import Violation, WatchedCluster

PHASES = list(Phase)
FIRST = {GprState.QUEUED, GprState.PENDING_APPROVAL}


class Judge:
    def __init__(self, clusters: Sequence[WatchedCluster]) -> None:
        self._clusters = clusters
        self.is_restored = [False]
        self._generations: dict[UUID, int] = {}
        self._states: dict[UUID, str] = {}
        self._phases: dict[object, int] = {}
        self._last_event = self._released_count = 0

    def forget(self) -> None:
        """The database was turned back: what it said after that never happened."""
        self.is_restored[0] = True
        self._generations, self._states, self._phases, self._last_event = {}, {}, {}, 0

    def check(self) -> None:
        """After every event: plain SQL, since it runs hundreds of times in each run."""
        self._check_transitions()
        self._check_generations()
        self._check_phases()
        self._check_released()
        if faults := rows("SELECT message FROM journal_event WHERE kind = 'planner.fault'"):
            raise Violation(f"a plan was not whole: {faults}")

    def _check_transitions(self) -> None:
        """I6, I12: each move is legal, has one Event, and the Events tell the whole story."""
        news = rows(
            "SELECT id, gpr_id, old, new FROM journal_event WHERE id > %s AND kind IN ('gpr.created', 'gpr.transition') ORDER BY id",
            self._last_event,
        )
        for pk, raw_id, old, new in news:
            self._last_event, gpr_id = pk, uuid_of(raw_id)
            known = self._states.get(gpr_id)
            legal = new in FIRST if known is None and not old else old == known and new in TRANSITIONS.get(old, ())
            if not legal:
                raise Violation(f"GPR {gpr_id}: {old or 'nothing'} -> {new}, known as {known}")
            self._states[gpr_id] = new
        if news:
            self._check_states()

    def _check_states(self) -> None:
        states = {uuid_of(pk): state for pk, state in rows("SELECT id, state FROM gpr_gpr")}
        if states != self._states:
            raise Violation(f"GPRs are not what their Events say: {states} instead of {self._states}")
        provisioned = [slice_id for slice_id, state in rows("SELECT slice_id, state FROM gpr_gpr") if state in PROVISIONED]
        if len(provisioned) > len(set(provisioned)):
            raise Violation("a slice has two provisioned GPRs")
        over = "SELECT r.id FROM inventory_reservation r JOIN gpr_gpr g ON g.id = r.gpr_id "
        if rows(over + "WHERE r.state = 'HELD' AND g.ended_at IS NOT NULL"):
            raise Violation("a GPR has ended while its nodes are still held")
        held = [gpu for (gpu,) in rows("SELECT gpu_id FROM inventory_reservedgpu WHERE state = 'HELD'")]
        if len(held) > len(set(held)):
            raise Violation("a GPU is in two held reservations")

    def _check_generations(self) -> None:
        """Checks I16."""
        for raw_id, generation in rows("SELECT id, generation FROM inventory_cluster"):
            cluster_id = uuid_of(raw_id)
            if generation < self._generations.get(cluster_id, 0):
                raise Violation(f"the generation of {cluster_id} fell to {generation}")
            self._generations[cluster_id] = generation

    def _check_phases(self) -> None:
        """An older word of an agent never takes back a newer one."""
        for pk, phase in rows("SELECT id, phase FROM inventory_reservation WHERE state = 'HELD'"):
            rank = PHASES.index(phase)
            if rank < self._phases.get(pk, 0):
                raise Violation(f"reservation {pk} went back to {phase}")
            self._phases[pk] = rank

    def _check_released(self) -> None:
        """I5, I8: what the hub calls released is released on the ground; no stale word got through."""
        count = rows("SELECT count(*) FROM inventory_reservation WHERE state = 'RELEASED'")[0][0]
        if count == self._released_count or self.is_restored[0]:
            return
        self._released_count = count
        ids = [held for cluster in self._clusters for held in cluster.held_assignments()]
        released = Reservation.objects.filter(pk__in=ids).exclude(state=ReservationState.HELD)
        if early := list(released.values_list("pk", flat=True)):
            raise Violation(f"the hub released {early}, which the cluster still holds")

    # -- at the end ----------------------------------------------------------------------------------------------------

    def unrest(self) -> list[str]:
        """I11: what should have come to rest and has not."""
        left = [
            f"{gpr.name} is {gpr.state}, {[(r.phase, r.desired, r.failure) for r in gpr.reservations.filter(state='HELD')]}"
            for gpr in Gpr.objects.filter(state__in=[GprState.PROVISIONING, GprState.EXITING]).order_by("created_at")
        ]
        waiting: dict[str, Any] = dict(Gpr.objects.filter(state=GprState.QUEUED).values_list("name", "explanation"))
        left += [f"{name} waits without a reason" for name, why in waiting.items() if not why]
        over = Reservation.objects.filter(state=ReservationState.HELD, gpr__state__in=ENDED)
        left += [f"reservation {pk} outlives its GPR" for pk in over.values_list("pk", flat=True)]
        left += [f"{cluster.name} is rewound" for cluster in Cluster.objects.exclude(rewound_at=None)]
        left += [f"the {agent} is locked" for agent in AgentSession.objects.exclude(locked_at=None)]
        return left


def rows(sql: str, *params: int) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def uuid_of(raw: object) -> UUID:
    """SQLite keeps a UUID as text."""
    return raw if isinstance(raw, UUID) else UUID(str(raw))
