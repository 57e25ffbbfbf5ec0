"""A fleet whose readings and clock a test sets, and the step of alerts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gpr.models import Gpr, GprState
from inventory.models import Cluster, Gpu, Node
from journal.models import Event, Notice
from journal.notices.kinds import NoticeKind
from journal.notices.outbox import outbox_expand
from observability.alerts.evaluation import alerts_evaluate
from observability.alerts.models import Alert, AlertRule
from observability.models import LatestReading
from protocol.assignments import Phase
from protocol.gpus.telemetry import GpuReading
from slices.models import Slice
from tests.builders import NOW, agent_heard, agent_says, hold, make_gpr
from tests.observability.telemetry.saying import reading, store, with_xids

STEP = timedelta(seconds=15)


class Fleet:
    """Readings every 15 s of all GPUs of a cluster. `values` hold for all, `of` for one GPU."""

    def __init__(self, cluster: Cluster, at: datetime = NOW) -> None:
        self.cluster, self.now = cluster, at
        self.gpus = list(Gpu.objects.filter(node__cluster=cluster).select_related("node").order_by("node__name", "index"))
        self.values: dict[str, float] = {"temperature_c": 60, "utilization_percent": 50, "power_w": 400, "throttled_percent": 0}
        self.of: dict[Any, dict[str, float]] = {}
        self.xids: dict[int, int] = {}  # of all, as their exporter counts them
        self.is_heard = True
        self.silent: set[Any] = set()  # GPUs without readings

    def set(self, gpu: Gpu, **values: float) -> None:
        self.of.setdefault(gpu.pk, {}).update(values)

    def run(self, span: timedelta, *, step: timedelta = STEP, values: Mapping[str, float] | None = None) -> None:
        self.values.update(values or {})
        until = self.now + span
        while self.now < until:
            self.now += step
            if self.is_heard:
                agent_heard(self.cluster, self.now)
                told = [gpu for gpu in self.gpus if gpu.pk not in self.silent]
                store(self.cluster, *map(self._reading, told), now=self.now)
            alerts_evaluate(now=self.now)

    def _reading(self, gpu: Gpu) -> GpuReading:
        return with_xids(reading(gpu, at=self.now, **{**self.values, **self.of.get(gpu.pk, {})}), self.xids)

    def minutes(self, count: float, **values: float) -> None:
        self.run(timedelta(minutes=count), values=values)


def only(*codes: str) -> None:
    """All other rules are off, so that a test is about one cause."""
    from observability.alerts.defaults import defaults_ensure

    defaults_ensure(now=NOW)
    AlertRule.objects.exclude(code__in=codes).update(is_on=False)
    AlertRule.objects.filter(code__in=codes).update(is_on=True)


def alerts(code: str = "", **where: Any) -> list[Alert]:
    rows = Alert.objects.filter(**({"rule__code": code} if code else {}), **where)
    return list(rows.select_related("rule").order_by("began_at", "pk"))


def states(code: str = "") -> list[str]:
    return [alert.state for alert in alerts(code, slice=None)]


def told(kind: str = "alert.fired") -> list[str]:
    return list(Event.objects.filter(kind=kind).order_by("pk").values_list("message", flat=True))


def notices(user: Any) -> list[str]:
    """Returns those of alerts, in the order in which they were told."""
    while outbox_expand(now=NOW):
        pass
    rows = Notice.objects.filter(user=user, kind=NoticeKind.ALERT).order_by("event__pk")
    return list(rows.values_list("event__message", flat=True))


def box(slice_: Slice, *nodes: Node, owner: Any, at: datetime, **fields: Any) -> Gpr:
    """An active box that holds the nodes."""
    ends_at = at + timedelta(days=1)
    gpr = make_gpr(slice_, owner=owner, **fields)
    rows = Gpr.objects.filter(pk=gpr.pk)
    rows.update(state=GprState.PROVISIONING, cluster=nodes[0].cluster, provisioning_at=at)
    rows.update(state=GprState.ACTIVE, active_at=at, ends_at=ends_at)
    gpr.refresh_from_db()
    for row in hold(gpr, *nodes, starts_at=at, ends_at=ends_at):
        agent_says(row, Phase.ACTIVE, now=at, active_at=at)
    return gpr


def latest(gpu: Gpu) -> LatestReading:
    return LatestReading.objects.get(gpu=gpu)
