"""Shows one node: GPUs, past holders, events, and the steps of its last box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse

from accounts.models import User
from core.errors import NotFound
from core.pages import words
from core.pages.parts import EventRow, ListFoot, Pair, StepRow
from gpr.models import GprState
from inventory.models import Node, Reservation, ReservationState, StepResult
from inventory.selectors import nodes_known_to, with_holders
from journal.models import Event
from portal_admin.pages.fleet.inventory import BoxHolder, NodeLine, nodes_with_state, tiles_of
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.measures import measures_each
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell
from protocol.agents.events import Outcome

EVENTS_SHOWN = 15
HISTORY_ORDER = ("-starts_at", "id")
STEP_STATES = {Outcome.OK: "passed", Outcome.FAILED: "failed", Outcome.UNSUPPORTED: "skipped"}


@dataclass(frozen=True, slots=True)
class PastBox:
    id: UUID
    holder: BoxHolder
    starts_at: datetime
    ends_at: datetime
    took_s: float
    is_held: bool
    epoch: int
    failure: str


@dataclass(frozen=True, slots=True)
class NodeAction:
    label: str
    url: str
    is_stop: bool


@dataclass(frozen=True, slots=True)
class ConditionLine:
    name: str
    status: str
    why: str
    since_at: datetime | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ConditionLine:
        why = ": ".join(text for text in (told["reason"], told["message"]) if text)
        return cls(told["type"], told["status"], why, datetime.fromisoformat(told["since_at"]) if told["since_at"] else None)


@dataclass(frozen=True, slots=True)
class NodePage:
    shell: Shell
    name: str
    state: str
    line: NodeLine | None  # None: it is gone
    conditions: tuple[ConditionLine, ...]
    facts: tuple[Pair, ...]
    actions: tuple[NodeAction, ...]
    read_only: str  # why there are no buttons
    stays: tuple[PastBox, ...]
    foot: ListFoot
    events: tuple[EventRow, ...]
    steps: tuple[StepRow, ...]
    steps_of: str
    head_url: str
    url: str

    @classmethod
    def build(cls, request: PageRequest, pk: UUID) -> NodePage:
        present: Any = nodes_with_state(request.user, now=request.now).filter(pk=pk).first()
        known = present or node_known(request.user, pk)
        rows = with_holders(Reservation.objects.filter(node=pk))
        page = page_of(request, rows, ordering=HISTORY_ORDER)
        last = rows.order_by("-epoch").first()
        url = reverse("admin-node", args=[pk])
        return cls(
            shell=admin_shell(request, page="inventory"),
            name=known.name,
            state=present.state if present else "set-aside",
            line=NodeLine.of(present, tiles_of([present], request)[pk]) if present else None,
            conditions=tuple(ConditionLine.of(each) for each in present.conditions) if present else (),
            facts=_facts(known, request),
            actions=tuple(_actions(present)) if present and request.may_write else (),
            read_only=why_not_write(request) if present else "",
            stays=tuple(_stay(row, request.now) for row in page.rows),
            foot=foot_of(page, url),
            events=tuple(EventRow(event.at, event.message, event.severity) for event in Event.objects.filter(node_id=pk)[:EVENTS_SHOWN]),
            steps=tuple(_steps(last)) if last else (),
            steps_of=last.gpr.name if last else "",
            head_url=url_with(url, {"part": "head"}),
            url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "rows"}),
        )


def node_known(actor: User, pk: UUID) -> Node:
    """Includes nodes that are gone. Raises NotFound."""
    node = nodes_known_to(actor).filter(pk=pk).first()
    if node is None:
        raise NotFound("node")
    return node


def _hardware(node: Node) -> str:
    """UUIDs that a check has read."""
    return ", ".join(node.gpus.filter(gone_at=None).exclude(hardware_uuid="").order_by("index").values_list("hardware_uuid", flat=True))


def _facts(node: Node, request: PageRequest) -> tuple[Pair, ...]:
    def told(at: datetime | None) -> str:
        return words.moment(at, now=request.now, zone=request.zone) if at else ""

    facts = (
        Pair("Cluster", node.cluster.name),
        Pair("Shape", node.shape, words.plural(node.gpu_count, "GPU")),
        Pair("Node type", node.node_type),
        Pair("Zone, rack", ", ".join(part for part in (node.zone, node.rack) if part)),
        *((Pair("NVLink domain", node.nvlink_domain),) if node.nvlink_domain else ()),
        Pair("RDMA", "yes" if node.rdma else "no"),
        Pair("Epoch", str(node.epoch), "rises with every box"),
        Pair("Last reported", told(node.seen_at), "by its agent"),
        Pair("UID", node.uid, is_code=True),
        *((Pair("GPU UUIDs", uuids, is_code=True),) if (uuids := _hardware(node)) else ()),
    )
    return (*facts, Pair("Gone", told(node.gone_at))) if node.gone_at else facts


def _actions(node: Any) -> list[NodeAction]:
    """`node` has the selectors' annotations."""
    cordon = (
        NodeAction("Use again", reverse("admin-uncordon", args=[node.pk]), False)
        if node.cordoned_at
        else NodeAction("Set aside", reverse("admin-cordon", args=[node.pk]), True)
    )
    force = [NodeAction("Force release", reverse("admin-force-release", args=[node.pk]), True)] if node.held_by else []
    is_running = any(row.gpr.state == GprState.ACTIVE for row in node.held_by)
    replace = [NodeAction("Replace", reverse("admin-replace-node", args=[node.pk]), False)] if is_running else []
    return [cordon, *replace, *force]


def _stay(row: Reservation, now: datetime) -> PastBox:
    is_held = row.state == ReservationState.HELD
    took_s = ((now if is_held else row.ends_at) - row.starts_at).total_seconds()
    return PastBox(row.pk, BoxHolder.of(row), row.starts_at, row.ends_at, max(took_s, 0.0), is_held, row.epoch, row.failure)


def _steps(row: Reservation) -> list[StepRow]:
    """Returns every attempt in order of its end."""
    return [step_row(result) for result in StepResult.objects.filter(reservation=row).prefetch_related("results")]


def step_row(result: StepResult) -> StepRow:
    skipped_why = result.skipped_why
    state = "skipped" if skipped_why else STEP_STATES[Outcome(result.outcome)]
    notes = [f"skipped: {skipped_why}"] if skipped_why else []
    notes += [f"attempt {result.attempt}"] if result.attempt > 1 else []
    took = words.duration((result.ended_at - result.started_at).total_seconds())
    return StepRow(
        f"step-{result.pk}",
        state,
        words.step_name(result.step),
        ", ".join(notes),
        took=took,
        log=result.log,
        is_open=state == "failed",
        measures=measures_each(result),
    )
