"""Shows when a request would start: offers on a time axis, excluded kinds with reasons, changes that start sooner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from django.urls import reverse

from core.errors import BookingDoesNotFit, EgsError
from core.pages import words
from core.pages.axis import Axis
from core.pages.parts import OfferRow, SwapRow
from core.pages.strip import StripBox, strip_of
from gpr.models import Gpr
from gpr.requests.alternatives import Alternative
from gpr.requests.editing import granted_to
from gpr.requests.estimates import RECLAIM, Estimate, gpr_estimate
from gpr.requests.spec import Breach, GprSpec, approval_breaches
from portal_shared.access import PageRequest, moment_formatter
from portal_shared.parts.gpr_box import entry_allowance
from portal_shared.shell import mark_of
from portal_user.as_api import change_body
from portal_user.forms import GprForm
from portal_user.job_form import BoxJobForm
from portal_user.pages.capacity import Stock
from portal_user.pages.requests.one_at_a_time import OneAtATime

SUPPLY_ICONS = {"Free nodes": "server-2", "Planned end": "clock", "Evictions": "arrow-back-up", "Ordered nodes": "truck-delivery"}
SPANS = tuple(timedelta(minutes=minutes) for minutes in (20, 60, 180, 360, 720, 1440, 2880, 5760, 10_080, 20_160, 43_200, 131_040, 600_000))
STRIP_PX = 26
SOONER_S = 60
SWAPS_MOST = 5


@dataclass(frozen=True, slots=True)
class NotOffered:
    cluster: str
    shape: str
    why: str


@dataclass(frozen=True, slots=True)
class BreachLine:
    """`value`: what fits into the field; empty if no single field can fix it."""

    text: str
    field_id: str = ""
    value: str = ""
    label: str = ""

    @classmethod
    def of(cls, breach: Breach) -> BreachLine:
        match breach.field:
            case "nodes" if breach.fitting:
                return cls(breach.text, "id_nodes", str(breach.fitting), words.plural(breach.fitting, "node"))
            case "idle_timeout_s":
                span = words.duration_exact(breach.fitting)
                return cls(breach.text, "id_idle_timeout", span, span)
            case "duration_s" | "gpu_hours" if breach.fitting:
                span = words.duration_exact(breach.fitting)
                return cls(breach.text, "id_duration", span, span)
            case "priority":
                return cls(breach.text, "id_priority", str(breach.fitting), f"priority {breach.fitting}")
            case _:
                return cls(breach.text)


@dataclass(frozen=True, slots=True)
class Confirm:
    """Summarizes the request."""

    what: str
    note: str
    verb: str
    total: str
    ends: str


@dataclass(frozen=True, slots=True)
class OffersPanel:
    """`problem`: why there are no offers. `is_asked` False: offers are not computed yet."""

    url: str
    asked_at: datetime
    asked_at_text: str
    is_asked: bool = True
    axis: Axis | None = None
    offers: tuple[OfferRow, ...] = ()
    not_offered: tuple[NotOffered, ...] = ()
    swaps: tuple[SwapRow, ...] = ()
    breaches: tuple[BreachLine, ...] = ()
    problem: tuple[str, ...] = ()
    alone: OneAtATime | None = None
    gone: str = ""
    confirm: Confirm | None = None
    snippet: str = ""

    @property
    def summary(self) -> str:
        if not self.offers:
            return ""
        return f"{words.plural(len(self.offers), 'offer')}, soonest {words.relative(self.offers[0].start_at, now=self.asked_at)}"

    @classmethod
    def build(cls, request: PageRequest, form: GprForm, *, url: str, stock: Sequence[Stock], edited: Gpr | None = None) -> OffersPanel:
        if not form.is_valid():
            return cls(url, request.now, _clock(request), problem=tuple(_faults(form)))
        spec = form.open_spec()
        try:
            found = gpr_estimate(actor=request.user, spec=spec, now=request.now, edited=edited, format_time=moment_formatter(request))
        except BookingDoesNotFit as error:
            form.refuse(error)
            return _Drawing(request, form, (), stock, edited).refused_booking(url, spec, error)
        except EgsError as error:
            form.refuse(error)
            return cls(url, request.now, _clock(request), problem=tuple(_faults(form)))
        drawing = _Drawing(request, form, found, stock, edited)
        return drawing.panel(url) if found else drawing.without_place(url)


@dataclass(frozen=True, slots=True)
class _Change:
    """Names a change of one form field."""

    text: str
    instead_of: str
    field_id: str
    value: str


@dataclass(frozen=True, slots=True)
class _Drawing:
    request: PageRequest
    form: GprForm
    found: Sequence[Estimate]
    stock: Sequence[Stock]
    edited: Gpr | None

    def panel(self, url: str) -> OffersPanel:
        wanted = str(self.form.cleaned_data["offer"])
        chosen = next((each for each in self.found if _value(each) == wanted), None)
        spec, axis = self.form.open_spec(), self._axis()
        breaches = tuple(
            BreachLine.of(breach)
            for breach in approval_breaches(spec, now=self.request.now, granted=granted_to(self.edited) if self.edited else None)
        )
        return OffersPanel(
            url=url,
            asked_at=self.request.now,
            asked_at_text=_clock(self.request),
            axis=axis,
            offers=tuple(self._offer(number, each, chosen, axis) for number, each in enumerate(self.found)),
            not_offered=tuple(_not_offered(spec, self.found, self.stock)),
            swaps=tuple(self._swaps(spec, axis)),
            breaches=breaches,
            alone=OneAtATime.of(self.request, spec, (chosen or self.found[0]).explanation, self.stock),
            gone=wanted.replace("/", ", ") if wanted and chosen is None else "",
            confirm=self._confirm(spec, chosen, needs_approval=bool(breaches)),
            snippet=self._snippet(),
        )

    def without_place(self, url: str) -> OffersPanel:
        """Its predecessor waits for approval, or can never start."""
        after: Gpr | None = self.form.cleaned_data["after"]
        name = after.name if after else "the request before it"
        problem = f"It starts after {name}, which has no place in the plan yet. You can send it; it gets a promise once {name} has one."
        confirm = Confirm(
            what=f"After {name}",
            note="Nothing is promised yet. You can cancel until it starts.",
            verb=self._verb("GPUs"),
            total="",
            ends="",
        )
        return OffersPanel(url, self.request.now, _clock(self.request), problem=(problem,), confirm=confirm, snippet=self._snippet())

    def refused_booking(self, url: str, spec: GprSpec, error: BookingDoesNotFit) -> OffersPanel:
        """Offers the nearest times that fit."""
        near = [at for name in ("nearest_before_at", "nearest_after_at") if (at := error.extra[name]) is not None]
        axis = offers_axis([at + self._length for at in near], now=self.request.now, zone=self.request.zone)
        return OffersPanel(
            url=url,
            asked_at=self.request.now,
            asked_at_text=_clock(self.request),
            axis=axis,
            swaps=tuple(self._other_time(spec, at, axis) for at in near),
            problem=tuple(_faults(self.form)),
        )

    def _axis(self) -> Axis:
        now, zone = self.request.now, self.request.zone
        return offers_axis([each.start_at + self._length for each in self.found], now=now, zone=zone)

    @property
    def _length(self) -> timedelta:
        had_s = self.edited.duration_s - self.edited.remaining_s if self.edited else 0
        return entry_allowance() + timedelta(seconds=max(self.form.cleaned_data["duration"] - had_s, 1))

    def _offer(self, number: int, each: Estimate, chosen: Estimate | None, axis: Axis) -> OfferRow:
        supply = _supply(each)
        return OfferRow(
            # The soonest offer does not fix the cluster: the request may start elsewhere if that is earlier.
            value=_value(each) if number else "",
            cluster=each.cluster,
            shape=each.shape,
            start_at=each.start_at,
            strip=strip_of(self._box(each.start_at, self._length, each.promised_start_at), axis, height=STRIP_PX),
            why=each.explanation.sentence,
            supply=f"{supply}, {words.duration(each.order.lead_time_s)} lead" if each.order else supply,
            supply_icon=SUPPLY_ICONS[supply],
            promised_at=each.promised_start_at,
            is_checked=each is chosen if chosen else number == 0,
        )

    def _box(self, start_at: datetime, length: timedelta, promised_at: datetime | None = None) -> StripBox:
        hue, mark = mark_of(self.form.slice.number)
        return StripBox("OFFER", planned_start_at=start_at, ends_at=start_at + length, promised_at=promised_at, hue=hue, mark=mark)

    def _swaps(self, spec: GprSpec, axis: Axis) -> Iterable[SwapRow]:
        """Returns for each change its soonest start, if it is sooner than the soonest offer."""
        best: dict[_Change, Alternative] = {}
        for other in (other for each in self.found for other in each.alternatives):
            change = _change(spec, other)
            is_sooner = self.found[0].wait_s - other.wait_s >= SOONER_S
            if change and is_sooner and (change not in best or other.start_at < best[change].start_at):
                best[change] = other
        for change, other in [each for each in best.items() if not _is_outdone(each[1], best.values())][:SWAPS_MOST]:
            length = self._length - timedelta(seconds=spec.duration_s - other.duration_s)
            yield self._swap(change, other.start_at, length, axis, why=self._why_sooner(other))

    def _why_sooner(self, other: Alternative) -> str:
        start = "at once, " if other.wait_s == 0 else ""
        sooner = f"{words.duration(self.found[0].wait_s - other.wait_s)} sooner"
        return f"On {other.cluster}, {other.shape}: {start}{sooner}{', on ordered nodes' if other.order else ''}."

    def _other_time(self, spec: GprSpec, start_at: datetime, axis: Axis) -> SwapRow:
        asked_at = spec.earliest_start_at or start_at
        side = "earlier" if start_at < asked_at else "later"
        value = f"{start_at.astimezone(self.request.zone):%Y-%m-%dT%H:%M}"
        change = _Change(self._says(start_at), self._says(asked_at), "id_earliest_start_at", value)
        why = f"{words.duration(abs((start_at - asked_at).total_seconds()))} {side}."
        return self._swap(change, start_at, self._length, axis, why=why)

    def _swap(self, change: _Change, start_at: datetime, length: timedelta, axis: Axis, *, why: str) -> SwapRow:
        return SwapRow(
            change=change.text,
            instead_of=change.instead_of,
            start_at=start_at,
            strip=strip_of(self._box(start_at, length), axis, height=STRIP_PX),
            why=why,
            field_id=change.field_id,
            field_value=change.value,
        )

    def _confirm(self, spec: GprSpec, chosen: Estimate | None, *, needs_approval: bool) -> Confirm:
        each = chosen or self.found[0]
        ends_at = each.start_at + self._length
        start, end, promised = (self._says(at) for at in (each.start_at, ends_at, each.promised_start_at))
        per_node = spec.gpus_per_node or _gpus_per_node(each, self.stock)
        gpus = words.plural(spec.nodes * per_node, "GPU")
        whole = ", whole nodes" if per_node == _gpus_per_node(each, self.stock) else ""
        if needs_approval:
            note = "An administrator decides first; the times count from then."
        else:
            note = f"Promised by {promised}. You can cancel until it starts."
        return Confirm(
            what=f"{each.cluster}, {words.ask(spec.nodes, per_node, each.shape)}, {start} to {end}",
            note=note,
            verb=self._verb(gpus),
            total=f"{spec.nodes} × {per_node} = {gpus}{whole}",
            ends=f"Runs {start} to {end} {words.zone_name(ends_at, zone=self.request.zone)} and ends on time.",
        )

    def _verb(self, gpus: str) -> str:
        return "Save changes" if self.edited else f"{self.form.VERB} {gpus}"

    def _says(self, at: datetime) -> str:
        return words.moment(at, now=self.request.now, zone=self.request.zone)

    def _snippet(self) -> str:
        """It is empty without a name, which a request needs."""
        if not self.form.cleaned_data["name"]:
            return ""
        return change_snippet(self.request, self.form.spec(), self.edited) if self.edited else api_snippet(self.request, self.form)


def offers_axis(ends: Sequence[datetime], *, now: datetime, zone: tzinfo) -> Axis:
    last = max(ends, default=now)
    span = next((span for span in SPANS if now + span * 0.95 >= last), SPANS[-1])
    start = now - span * 0.05
    return Axis(start, start + span, now, zone, width_px=330, name="offers")


def api_snippet(request: PageRequest, form: GprForm | BoxJobForm) -> str:
    key = str(form.cleaned_data.get("key") or "")
    return _curl(request, "POST", form.API_PATH, form.body(), f' \\\n  -H "Idempotency-Key: {key}"' if key else "")


def change_snippet(request: PageRequest, spec: GprSpec, edited: Gpr) -> str:
    return _curl(request, "PATCH", f"/api/v1/gprs/{edited.pk}/", change_body(spec, edited), "")


def _curl(request: PageRequest, method: str, path: str, body: Mapping[str, Any], header: str) -> str:
    text = json.dumps(body, ensure_ascii=False).replace("'", "\\u0027")
    headers = '-H "Authorization: Bearer $EGS_TOKEN" -H "Content-Type: application/json"'
    lines = [f"curl -X {method} {request.build_absolute_uri(path)}", f"{headers}{header}", f"-d '{text}'"]
    return " \\\n  ".join(lines)


def offers_url(slice_name: str, form: GprForm, edited: Gpr | None) -> str:
    return reverse(form.OFFERS_PAGE, args=[slice_name]) + (f"?edit={edited.pk}" if edited else "")


def _clock(request: PageRequest) -> str:
    return f"{request.now.astimezone(request.zone):%H:%M:%S}"


def _faults(form: GprForm) -> Iterable[str]:
    for name, texts in form.errors.items():
        label, text = form.fields[name].label if name in form.fields else "", " ".join(map(str, texts))
        yield f"{label}: {text}" if label else text


def _supply(each: Estimate) -> str:
    if each.order:
        return "Ordered nodes"
    return "Evictions" if each.supply == RECLAIM else "Free nodes" if each.wait_s == 0 else "Planned end"


def _value(each: Estimate) -> str:
    return f"{each.cluster}/{each.shape}"


def _gpus_per_node(each: Estimate, stock: Iterable[Stock]) -> int:
    return max((kind.gpus_per_node for kind in stock if (kind.cluster, kind.shape) == (each.cluster, each.shape)), default=1)


def _not_offered(spec: GprSpec, found: Iterable[Estimate], stock: Sequence[Stock]) -> Iterable[NotOffered]:
    """Kinds of nodes that the workspace may use and the request excludes, with reasons."""
    offered = {(each.cluster, each.shape) for each in found}
    kinds: dict[tuple[str, str], list[Stock]] = {}
    for kind in stock:
        if (kind.cluster, kind.shape) not in offered and spec.shape in {"", kind.shape}:
            kinds.setdefault((kind.cluster, kind.shape), []).append(kind)
    for (cluster, shape), alike in kinds.items():
        yield NotOffered(cluster, shape, _why_not(spec, alike))


def _why_not(spec: GprSpec, kinds: Sequence[Stock]) -> str:
    if spec.clusters and kinds[0].cluster not in {cluster.name for cluster in spec.clusters}:
        return "You left this cluster out."
    memory_gib = max(kind.memory_gib for kind in kinds)
    if spec.min_gpu_memory_gib and memory_gib < spec.min_gpu_memory_gib:
        return f"{memory_gib} GiB per GPU; you ask for at least {spec.min_gpu_memory_gib}."
    if spec.node_type and spec.node_type not in {kind.node_type for kind in kinds}:
        return f"It has no nodes of type {spec.node_type}."
    if spec.rdma and not any(kind.rdma for kind in kinds):
        return "Its nodes have no RDMA."
    largest = max(kind.gpus_per_node for kind in kinds)
    if spec.gpus_per_node and largest < spec.gpus_per_node:
        return f"Its nodes have {words.plural(largest, 'GPU')} each; you ask for {spec.gpus_per_node}."
    return f"It has {words.plural(sum(kind.node_count for kind in kinds), 'node')}; you ask for {spec.nodes} that are alike."


def _change(spec: GprSpec, other: Alternative) -> _Change | None:
    """Returns None if it takes more than one field."""
    match other.differs:
        case ("nodes",):
            return _Change(words.plural(other.nodes, "node"), words.number(spec.nodes), "id_nodes", str(other.nodes))
        case ("gpus_per_node",) if other.gpus_per_node:
            text = f"{words.plural(other.gpus_per_node, 'GPU')} per node"
            instead = words.number(spec.gpus_per_node) if spec.gpus_per_node else "all"
            return _Change(text, instead, "id_gpus_per_node", str(other.gpus_per_node))
        case ("duration_s",):
            asked, instead = words.duration(spec.duration_s), words.duration(other.duration_s)
            return _Change(instead, asked, "id_duration", words.duration_exact(other.duration_s))
        case ("shape",):
            return _Change(other.shape, spec.shape, "id_shape", other.shape)
    return None


def _is_outdone(other: Alternative, others: Iterable[Alternative]) -> bool:
    """Tell whether a bigger variant of the same change starts no later."""
    return any(
        each.differs == other.differs and each.start_at <= other.start_at and _size(each) > _size(other)
        for each in others
        if other.differs != ("shape",)
    )


def _size(each: Alternative) -> tuple[int, int, int]:
    return each.nodes, each.gpus_per_node or 0, each.duration_s
