"""A workspace, a cluster and its agent on one clock: what a test of a GPR's life needs, and nothing is a stand-in but the agent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from accounts.models import User
from gpr.allocation.allocator import TickReport, tick
from gpr.models import AllocatorRecord, Gpr
from gpr.requests.services import gpr_submit
from inventory.models import Cluster, Node, Reservation, ReservationState
from journal.models import Event
from protocol.assignments import Phase
from slices.models import Slice
from tests.builders import NOW, make_cluster, make_slice, make_user, node_view, nodes_of, spec
from tests.inventory.agent import Agent, seen

ENTRY = (Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE)
EXIT = (Phase.EXITING, Phase.RELEASED)


class Stage:
    def __init__(self, *, nodes: int = 2, gpus: int = 4) -> None:
        self.now: datetime = NOW
        self.admin: User = make_user(is_admin=True)
        self.owner: User = make_user()
        self.cluster: Cluster = make_cluster(nodes=nodes, gpus=gpus, is_heard=False)
        self.agent = Agent.joined(self.cluster)
        self.slice: Slice = make_slice(self.cluster, owner=self.owner)

    def after(self, seconds: float) -> datetime:
        """Nobody ticked meanwhile: to EGS a longer time is an absence of its own."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def watched(self, seconds: float) -> datetime:
        """Does what `after` does, but EGS was there all the while."""
        AllocatorRecord.objects.update(last_tick_at=self.after(seconds))
        return self.now

    def submit(self, slice_: Slice | None = None, **asked: Any) -> Gpr:
        return gpr_submit(actor=self.owner, spec=spec(slice_ or self.slice, **asked), now=self.now)

    def tick(self) -> TickReport:
        if self.agent.heard_at != self.now:
            self.agent.sync(at=self.now)
        report = tick(now=self.now)
        assert report is not None
        return report

    def held(self, gpr: Gpr | None = None) -> list[Reservation]:
        rows = Reservation.objects.filter(state=ReservationState.HELD).order_by("pk")
        return list(rows if gpr is None else rows.filter(gpr=gpr))

    def say(self, gpr: Gpr, *phases: Phase, **changes: Any) -> None:
        """The agent says so of each of its nodes."""
        for phase in phases:
            given = {"active_s": self.now.timestamp()} if phase == Phase.ACTIVE else {}
            self.agent.sync(*(seen(row, phase, **{**given, **changes}) for row in self.held(gpr)), at=self.now)

    def active(self, *, entry_s: float = 5.0, **asked: Any) -> Gpr:
        """Submits a GPR, starts it, and opens its box after `entry_s`."""
        gpr = self.submit(**asked)
        self.tick()
        self.after(entry_s)
        self.say(gpr, Phase.ACTIVE)  # an agent need not tell of what comes before
        self.tick()
        return fresh(gpr)

    def lose(self, node: Node) -> None:
        left = [node_view(each.name) for each in nodes_of(self.cluster) if each.pk != node.pk and each.gone_at is None]
        self.agent.inventory(*left, at=self.now)

    def approval_needed(self) -> dict[str, Any]:
        return {"duration_s": self.slice.duration_approval_s + 1}


def fresh(gpr: Gpr) -> Gpr:
    return Gpr.objects.select_related("slice").get(pk=gpr.pk)


def moves_of(gpr: Gpr) -> list[tuple[str, str, str]]:
    """Every transition that an Event tells of, oldest first."""
    rows = Event.objects.filter(gpr_id=gpr.pk, kind="gpr.transition").order_by("id")
    return list(rows.values_list("old", "new", "reason"))


def length_s(gpr: Gpr) -> int:
    return int(settings.EGS_ENTRY_ALLOWANCE_S + gpr.remaining_s + settings.EGS_EXIT_ALLOWANCE_S)
