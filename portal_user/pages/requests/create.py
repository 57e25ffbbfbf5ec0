"""Shows the form of a new or changed GPU request, with its offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import F, Q, prefetch_related_objects
from django.urls import reverse

from accounts.models import User
from core.pages import words
from core.pages.parts import EventRow, Tab
from gpr.models import ENDED, Gpr, GprTemplate, Nearness
from gpr.requests.selectors import templates_of
from journal.models import Event
from portal_shared.access import PageRequest
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.forms import GprForm, initial_of, new_key
from portal_user.job_form import JobForm
from portal_user.pages.capacity import ShapeStock, Stock, shapes_in, stock_for
from portal_user.pages.requests.job_preview import JobPreview
from portal_user.pages.requests.offers import OffersPanel, offers_url
from slices.models import Slice

USUAL_DURATIONS = ("30 min", "1 h", "2 h", "3 h", "6 h", "12 h", "1 d")
CHANGES_SHOWN = 10
TEMPLATES_SHOWN = 20
AFTER_SHOWN = 50


@dataclass(frozen=True, slots=True)
class ShapeChoice:
    value: str
    label: str
    note: str
    gpus_per_node: int  # of its largest node; 0: not known
    is_checked: bool


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    name: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class ChangesMeanwhile:
    """Changes by others while the GPR was edited, and the differences to the form."""

    title: str
    hint: str
    events: tuple[EventRow, ...]
    differences: tuple[tuple[str, str, str], ...]  # field, now, yours


@dataclass(frozen=True, slots=True)
class CreatePage:
    shell: Shell
    mark: WorkspaceMark
    form: GprForm
    choices: tuple[ShapeChoice, ...]
    folds: Mapping[str, str]  # what the closed sections of the form hold
    opens: Mapping[str, bool]
    usual: tuple[str, ...]
    longest: str
    panel: OffersPanel
    back_url: str
    edited: Gpr | None = None
    meanwhile: ChangesMeanwhile | None = None
    filed_url: str = ""  # the list of requests, if this form was sent before
    templates: tuple[TemplateChoice, ...] = ()
    templates_url: str = ""  # the list of all templates, if not all are shown
    after_choices: tuple[str, ...] = ()  # names of requests that it may start after, the newest
    tabs: tuple[Tab, ...] = ()
    job: JobPreview | None = None  # None: it is no job, or not complete
    access_url: str = ""  # empty: it needs no namespace, or there is one

    @classmethod
    def build(
        cls,
        request: PageRequest,
        slice_: Slice,
        request_forms: RequestForms,
        form: GprForm,
        *,
        meanwhile: ChangesMeanwhile | None = None,
        filed_url: str = "",
    ) -> CreatePage:
        url = offers_url(slice_.name, form, request_forms.edited)
        templates = () if request_forms.edited else tuple(_templates(slice_, form))
        if form.is_bound:
            panel = OffersPanel.build(
                request, request_forms.question(form), url=url, stock=request_forms.stock, edited=request_forms.edited
            )
        else:
            panel = OffersPanel(url, request.now, "", is_asked=False)
        return cls(
            shell=Shell.user(request, page="requests" if request_forms.edited else form.NAV, slice_=slice_),
            mark=WorkspaceMark.of(slice_),
            form=form,
            choices=tuple(_choices(form, request_forms.shapes)),
            folds=folds_of(form, request),
            opens=_opens(form),
            usual=USUAL_DURATIONS,
            longest=words.duration(min(slice_.duration_max_s, settings.EGS_DURATION_MAX_S)),
            panel=panel,
            back_url=reverse("gpr", args=[request_forms.edited.pk]) if request_forms.edited else reverse("workspace", args=[slice_.name]),
            edited=request_forms.edited,
            meanwhile=meanwhile,
            filed_url=filed_url,
            templates=templates[:TEMPLATES_SHOWN],
            after_choices=tuple(_after_choices(slice_, request_forms.edited)),
            templates_url=reverse("templates", args=[slice_.name]) if len(templates) > TEMPLATES_SHOWN else "",
            tabs=() if request_forms.edited else tuple(_tabs(slice_, form)),
            job=JobPreview.of(request_forms.question(form), request_forms.stock) if form.is_bound else None,
            access_url=reverse("access", args=[slice_.name]) if isinstance(form, JobForm) and not form.has_namespace else "",
        )


@dataclass(frozen=True, slots=True)
class RequestForms:
    """Builds the forms of a workspace from the kinds of nodes and the edited GPR."""

    slice_: Slice
    user: User
    stock: Sequence[Stock]
    edited: Gpr | None = None
    kind: type[GprForm] = GprForm

    @classmethod
    def set_up(cls, request: PageRequest, slice_: Slice, *, edited: Gpr | None = None, kind: type[GprForm] = GprForm) -> RequestForms:
        prefetch_related_objects([slice_], "clusters")
        return cls(slice_, request.user, stock_for(request.user, now=request.now, slice_=slice_), edited, kind)

    @property
    def shapes(self) -> list[ShapeStock]:
        return shapes_in(self.stock)

    def form(self, data: Mapping[str, Any] | None = None, *, initial: dict[str, Any] | None = None, is_question: bool = False) -> GprForm:
        names = {shape.shape for shape in self.shapes} | ({self.edited.shape} if self.edited and self.edited.shape else set())
        form = self.kind(
            data, initial=initial, slice_=self.slice_, shapes=sorted(names), user=self.user, edited=self.edited, is_question=is_question
        )
        per_node = {shape.shape: shape.gpus_per_node for shape in self.shapes}.get(form["shape"].value() or "")
        if per_node:
            form.fields["gpus_per_node"].widget.attrs |= {"placeholder": f"all {per_node}", "data-all": per_node}
        return form

    def first_form(self, *, like: Gpr | None = None, template: GprTemplate | None = None, name: str = "") -> GprForm:
        """Takes as `like` a GPR to copy. `name`: what was typed before a template was chosen."""
        model = self.edited or like
        given = initial_of(model, self.user) if model else self._usual()
        if like is not None:
            given["after"] = ""
        if template is not None:
            given = {**given, **self.kind.begun_by(template), "name": name}
        return self.form(initial={**given, "key": new_key()})

    def question(self, form: GprForm) -> GprForm:
        """Returns the form with an optional name."""
        return self.form(form.data, is_question=True)

    def _usual(self) -> dict[str, Any]:
        """Returns the GPU of this user's last request in the workspace, else the one with the most nodes.

        GPUs per node stay empty, which means all of the node.
        """
        if not self.shapes:
            return {"shape": "", "min_gpu_memory_gib": 1}
        least = min(shape.memory_gib for shape in self.shapes)
        mine = Gpr.objects.filter(slice=self.slice_, owner=self.user).only("shape", "min_gpu_memory_gib")
        last = mine.order_by("-created_at", "id").first()
        if last is not None and last.shape in {"", *(shape.shape for shape in self.shapes)}:
            return {"shape": last.shape, "min_gpu_memory_gib": last.min_gpu_memory_gib or least}
        most = max(self.shapes, key=lambda shape: (shape.node_count, shape.shape))
        return {"shape": most.shape, "min_gpu_memory_gib": least}


def meanwhile_of(form: GprForm, gpr: Gpr) -> ChangesMeanwhile:
    """`form` must be valid."""
    events = Event.objects.filter(gpr_id=gpr.pk, kind__in=["gpr.edited", "gpr.priority_changed", "gpr.transition", "promise.moved"])
    found = tuple(EventRow(event.at, event.message, event.severity) for event in events.order_by("-id")[:CHANGES_SHOWN])
    hint = "Your changes are kept. Save again to apply them to the current request."
    return ChangesMeanwhile("It changed while you were writing", hint, found, tuple(_differences(form, gpr)))


def not_whole(form: GprForm, gpr: Gpr) -> ChangesMeanwhile:
    """Answers a form without a version."""
    hint = "Your changes are kept. Reload the page to start over, or save again to apply them to the current request."
    return ChangesMeanwhile("This page was too old or incomplete", hint, (), tuple(_differences(form, gpr)))


def _network(said: Mapping[str, Any]) -> Iterator[str]:
    if said["within"] in Nearness.values and said["within"]:
        yield str(Nearness(said["within"]).label)
    if said["rdma"]:
        yield "RDMA"


def folds_of(form: GprForm, request: PageRequest) -> dict[str, str]:
    said = {name: form[name].value() for name in form.fields}
    after = said["earliest_start_at"]
    if isinstance(after, datetime):
        after = words.moment(after, now=request.now, zone=request.zone)
    begin = "booked for" if said["is_booking"] else "not before"
    waits_for = f", after {said['after']}" if said["after"] else ""
    choices = dict(form.fields["clusters"].choices)  # type: ignore[attr-defined]
    chosen = [name for name in said["clusters"] or [] if name in choices]
    model = said["model_name"] or ("parameters only" if said["model_parameters"] else "none")
    return {
        "start": f"{said['priority']}, {f'{begin} {after}' if after else 'as soon as possible'}{waits_for}",
        "where": ", ".join([", ".join(chosen) or f"any of {len(choices)}", said["node_type"] or "any type", *_network(said)]),
        "rules": ", ".join(
            [
                "all checks" if said["run_checks"] else "few checks",
                "evictable" if said["evictable"] else "not evictable",
                *([f"idle: {said['idle_timeout']}"] if said["idle_timeout"] else []),
            ]
        ),
        "model": str(model),
        **form.fold_values(said),
    }


def _opens(form: GprForm) -> dict[str, bool]:
    """Sections with an error are open; `where` also for an initial cluster that is no longer available."""
    if not form.is_bound:
        return {"where": bool(form.clusters_not_used)}
    return {fold: any(name in form.errors for name in names) for fold, names in form.FOLDS.items()}


def _choices(form: GprForm, shapes: Sequence[ShapeStock]) -> list[ShapeChoice]:
    chosen = form["shape"].value() or ""
    known = {shape.shape: shape for shape in shapes}
    return [
        ShapeChoice(
            value,
            label,
            (known[value].free_text if value in known else "not there now") if value else "",
            known[value].gpus_per_node if value in known else 0,
            value == chosen,
        )
        for value, label in form.fields["shape"].choices  # type: ignore[attr-defined]
    ]


def _templates(slice_: Slice, form: GprForm) -> Iterator[TemplateChoice]:
    """Returns defaults first; at most one more than is shown."""
    current = str(form["template"].value() or "")
    url = reverse(form.CREATE_PAGE, args=[slice_.name])
    rows = templates_of(GprTemplate.objects.all(), Q(slice=slice_)).order_by(F("slice").asc(nulls_last=True), "-is_default", "name")
    for pk, name, own in rows.values_list("pk", "name", "slice")[: TEMPLATES_SHOWN + 1]:
        yield TemplateChoice(name if own == slice_.pk else f"{name} (platform)", f"{url}?template={pk}", str(pk) == current)


def _tabs(slice_: Slice, form: GprForm) -> Iterator[Tab]:
    for kind, label in ((GprForm, "GPUs"), (JobForm, "A job with its GPUs")):
        yield Tab(label, reverse(kind.CREATE_PAGE, args=[slice_.name]), is_current=type(form) is kind)


def _after_choices(slice_: Slice, edited: Gpr | None) -> Iterator[str]:
    """Returns requests of the workspace that have not ended; people type the names of others."""
    rows = Gpr.objects.filter(slice=slice_).exclude(state__in=ENDED).order_by("-created_at", "id")
    others = rows.exclude(pk=edited.pk) if edited else rows
    return iter(dict.fromkeys(others.values_list("name", flat=True)[:AFTER_SHOWN]))


def _differences(form: GprForm, gpr: Gpr) -> list[tuple[str, str, str]]:
    now = initial_of(gpr, form.user)
    spec = form.spec()
    typed = {
        **{name: getattr(spec, name) for name in now if hasattr(spec, name)},
        "duration": words.duration_exact(spec.duration_s),
        "clusters": [cluster.name for cluster in spec.clusters],
    }
    return [
        (str(form.fields[name].label), _said(now[name]), _said(value))
        for name, value in typed.items()
        if name in form.fields and _said(now[name]) != _said(value)
    ]


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) or "any"
    return "none" if value in (None, "") else str(value)
