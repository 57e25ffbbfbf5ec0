"""The people: they ask, change their minds, give back early, ask for more time."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from accounts.models import PlatformRole
from accounts.people.services import user_create
from gpr.approvals.services import gpr_approve
from gpr.models import Gpr, GprState
from gpr.queue.decisions import gpr_evict
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.services import gpr_submit
from gpr.requests.spec import GprSpec
from inventory.models import Cluster, Node
from inventory.services.clusters import cluster_create, join_token_issue
from inventory.services.nodes import node_uncordon
from slices.models import Role, Slice
from slices.namespaces.services import namespace_bind
from slices.services import member_set, project_create, slice_create
from tests.simulation.hub import SimHub
from tests.simulation.loop import Loop
from worker_agent.cluster.fleet import SimulatedFleet

SHAPE = "H100-80GB"


class People:
    def __init__(self, *, fleets: list[SimulatedFleet], loop: Loop, hub: SimHub, rng: random.Random) -> None:
        self._loop, self._hub, self._rng = loop, hub, rng
        now = loop.at
        self.admin = user_create(name="admin", now=now, role=PlatformRole.ADMIN)
        self.user = user_create(name="user", now=now)
        self.clusters = [cluster_create(name=fleet.name, actor=self.admin, now=now) for fleet in fleets]
        self.tokens = [self.issue_token(cluster, now) for cluster in self.clusters]
        project = project_create(name="p", actor=self.admin, now=now)
        self.slices = [self._slice(name, project, now) for name in ("red", "green", "blue", "gold")]
        self.submit_count = 0
        self.seen: set[str] = set()

    def issue_token(self, cluster: Cluster, now: datetime) -> str:
        return join_token_issue(cluster=cluster, actor=self.admin, now=now)[1]

    def _slice(self, name: str, project: object, now: datetime) -> Slice:
        slice_ = slice_create(name=name, project=project, clusters=self.clusters, actor=self.admin, now=now)  # type: ignore[arg-type]
        member_set(slice_=slice_, user=self.user, role=Role.OWNER, actor=self.admin, now=now)
        for cluster in self.clusters:
            namespace_bind(slice_=slice_, cluster=cluster, name=f"{name}-ns", actor=self.admin, now=now)
        return slice_

    # -- what they do --------------------------------------------------------------------------------------------------

    def plan_day(self, *, until_s: float, count: int) -> None:
        for _ in range(count):
            self._loop.after(self._rng.uniform(1.0, until_s), self.submit)
        for what, doing in [
            ("release", self._release),
            ("cancel", self._cancel),
            ("extend", self._extend),
            ("evict", self._evict),
            ("approve", self.approve),
        ]:
            for _ in range(self._rng.randint(0, 3) + (what == "extend")):
                self._plan(what, doing, self._rng.uniform(10.0, until_s + 20.0))

    def _plan(self, what: str, doing: Callable[[datetime], None], after_s: float) -> None:
        self._loop.after(after_s, lambda: self._hub.act(what, doing))

    def submit(self) -> None:
        """One who gets no answer from the hub asks again."""
        if not self._hub.is_up:
            self._loop.after(5.0, self.submit)
            return
        self.submit_count += 1
        rng, number = self._rng, self.submit_count
        spec = GprSpec(
            name=f"g{number}",
            slice=rng.choice(self.slices),
            nodes=rng.choice([1, 1, 2]),
            gpus_per_node=rng.choice([None, None, 1, 2]),
            duration_s=rng.choice([8, 15, 25, 50, 80]),
            shape=SHAPE,
            priority=rng.choice([50, 101, 250]) if rng.random() < 0.5 else 101,
            requeue_on_failure=rng.random() < 0.7,
        )
        self._hub.act(
            f"submit {spec.name} {spec.slice.name} {spec.nodes}x{spec.gpus_per_node} {spec.duration_s} s", lambda now: self._file(spec, now)
        )

    def _file(self, spec: GprSpec, now: datetime) -> None:
        gpr_submit(actor=self.admin if spec.priority > 200 else self.user, spec=spec, now=now)

    def _one(self, *states: GprState) -> Gpr | None:
        rows = list(Gpr.objects.filter(state__in=states).select_related("slice").order_by("created_at", "name"))
        return self._rng.choice(rows) if rows else None

    def _release(self, now: datetime) -> None:
        if gpr := self._one(GprState.ACTIVE, GprState.PROVISIONING):
            gpr_release(gpr=gpr, actor=self.user, now=now)
            self.seen.add("something was released early")

    def _cancel(self, now: datetime) -> None:
        if gpr := self._one(GprState.QUEUED):
            gpr_cancel(gpr=gpr, actor=self.user, now=now)
            self.seen.add("something was canceled")

    def _extend(self, now: datetime) -> None:
        later = now + timedelta(seconds=31)
        rows = Gpr.objects.filter(state=GprState.ACTIVE, ends_at__gt=later).select_related("slice").order_by("name")
        if gpr := rows.first():
            gpr_extend(gpr=gpr, extra_s=20, actor=self.user, now=now)
            self.seen.add("an extension was granted")

    def _evict(self, now: datetime) -> None:
        if gpr := self._one(GprState.ACTIVE):
            gpr_evict(gpr=gpr, actor=self.admin, why="maintenance", now=now)
            self.seen.add("something was evicted")

    def approve(self, now: datetime) -> None:
        for gpr in Gpr.objects.filter(state=GprState.PENDING_APPROVAL).order_by("created_at"):
            gpr_approve(gpr=gpr, actor=self.admin, now=now)

    def uncordon(self, now: datetime) -> None:
        for node in Node.objects.filter(cordoned_at__isnull=False, gone_at=None).order_by("name"):
            node_uncordon(node=node, actor=self.admin, now=now)


def token_life() -> timedelta:
    """Short, so that renewals happen within one run."""
    return timedelta(seconds=120)
