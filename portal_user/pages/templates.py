"""Shows request templates of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from django.http import QueryDict
from django.urls import reverse

from accounts.policy import Verb, may
from core.pages.parts import ListFoot
from gpr.models import GprTemplate
from gpr.requests.spec import shapes_of
from gpr.templates.fields import labeled, runs
from gpr.templates.services import TemplateChange
from portal_shared.access import PageRequest
from portal_shared.forms.questions import Question
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.forms import ServiceForm, TemplateForm
from portal_user.pages.requests.listing import may_create
from slices.models import Slice


@dataclass(frozen=True, slots=True)
class Switch:
    """`label`: of the button; `title`, `text`: of the question; `done`: completes "NAME ..." in the toast."""

    change: TemplateChange
    label: str
    title: str
    text: str
    done: str


SWITCHES: Final = {
    "make-default": Switch(
        {"is_default": True},
        "Make default",
        "Make {name} the default?",
        "It replaces the current default for {place}, if there is one.",
        "is the default",
    ),
    "drop-default": Switch(
        {"is_default": False},
        "No default",
        "Remove {name} as the default?",
        "Then there is no default for {place}.",
        "is no longer the default",
    ),
    "auto-on": Switch(
        {"auto": True},
        "Auto on",
        "Create requests from {name} for waiting pods?",
        "While it is the default for {place}, GPU pods that wait in this workspace's namespaces get a request from it.",
        "creates requests for waiting pods",
    ),
    "auto-off": Switch(
        {"auto": False},
        "Auto off",
        "Stop creating requests from {name}?",
        "Existing requests stay as they are.",
        "no longer creates requests",
    ),
}


@dataclass(frozen=True, slots=True)
class SwitchLink:
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class TemplateRow:
    id: UUID
    name: str
    place: str
    says: str
    runs: str  # empty: it is for requests alone
    is_default: bool
    auto: bool
    use_url: str  # empty: not allowed
    change_url: str  # empty: not allowed
    delete_url: str
    switches: tuple[SwitchLink, ...]

    @classmethod
    def of(cls, row: GprTemplate, *, may_use: bool, may_change: bool) -> TemplateRow:
        at = [row.slice.name, row.pk]
        keys = ("drop-default" if row.is_default else "make-default", "auto-off" if row.auto else "auto-on")
        return cls(
            id=row.pk,
            name=row.name,
            place=place_of(row),
            says=", ".join(f"{name} {value}" for name, value in labeled(row.asked)),
            runs=runs(row.job),
            is_default=row.is_default,
            auto=row.auto,
            use_url=f"{reverse('job-create' if row.job else 'gpr-create', args=[row.slice.name])}?template={row.pk}" if may_use else "",
            change_url=reverse("template", args=at) if may_change else "",
            delete_url=reverse("template-delete", args=at) if may_change else "",
            switches=tuple(SwitchLink(SWITCHES[key].label, reverse("template-switch", args=[*at, key])) for key in keys)
            if may_change
            else (),
        )

    @property
    def is_idle(self) -> bool:
        """Automatic requests need the default."""
        return self.auto and not self.is_default


@dataclass(frozen=True, slots=True)
class TemplatesPage:
    shell: Shell
    mark: WorkspaceMark
    rows: tuple[TemplateRow, ...]
    foot: ListFoot
    part_url: str  # of its fragment
    create_url: str  # empty: not allowed

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> TemplatesPage:
        may_use = may_create(request, slice_)
        may_change = request.may_write and may(request.user, Verb.MANAGE, slice_)
        found = page_of(request, slice_.templates.select_related("slice", "cluster"), ordering=("name", "id"))
        url = reverse("templates", args=[slice_.name])
        return cls(
            shell=Shell.user(request, page="templates", slice_=slice_, may_create=may_use),
            mark=WorkspaceMark.of(slice_),
            rows=tuple(TemplateRow.of(row, may_use=may_use, may_change=may_change) for row in found.rows),
            foot=foot_of(found, url),
            part_url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "list"}),
            create_url=reverse("template-create", args=[slice_.name]) if may_change else "",
        )


@dataclass(frozen=True, slots=True)
class TemplatePage:
    shell: Shell
    mark: WorkspaceMark
    title: str
    verb: str
    form: TemplateForm
    back_url: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice, template: GprTemplate | None, form: TemplateForm) -> TemplatePage:
        return cls(
            shell=Shell.user(request, page="templates", slice_=slice_),
            mark=WorkspaceMark.of(slice_),
            title=f"Change template {template.name}" if template else "Make a template",
            verb="Change template" if template else "Make template",
            form=form,
            back_url=reverse("templates", args=[slice_.name]),
        )


def form_of(slice_: Slice, template: GprTemplate | None, data: Mapping[str, Any] | None) -> TemplateForm:
    shapes = shapes_of(slice_)
    if template is None:
        return TemplateForm(data, slice_=slice_, shapes=shapes)
    own = template.asked.get("shape")
    typed = TemplateForm.typed(template)
    shapes = sorted({*shapes, *([own] if own else [])})
    return TemplateForm(data, slice_=slice_, shapes=shapes, own=template.cluster, initial=typed)


def switch_question(request: PageRequest, template: GprTemplate, key: str, data: QueryDict | None) -> Question:
    switch = SWITCHES[key]
    said = {"name": template.name, "place": place_of(template)}
    is_so = all(getattr(template, field) == value for field, value in switch.change.items())
    asked = _question(request, template, switch.title.format(**said), switch.text.format(**said), switch.label, data)
    url = reverse("template-switch", args=[template.slice.name, template.pk, key])
    closed = f"{template.name} {switch.done}: there is nothing to change." if is_so else ""
    return replace(asked, url=url, is_plain=True, closed=closed)


def delete_question(request: PageRequest, template: GprTemplate, data: QueryDict | None) -> Question:
    text = "Requests made from it stay as they are."
    return _question(request, template, f"Delete template {template.name}?", text, "Delete template", data)


def place_of(template: GprTemplate) -> str:
    return f"cluster {template.cluster.name}" if template.cluster else "all clusters"


def _question(request: PageRequest, template: GprTemplate, title: str, text: str, verb: str, data: QueryDict | None) -> Question:
    return Question(
        title=title,
        text=text,
        verb=verb,
        url=reverse("template-delete", args=[template.slice.name, template.pk]),
        back_url=reverse("templates", args=[template.slice.name]),
        form=ServiceForm(data),
        shell=Shell.user(request, page="templates", slice_=template.slice),
        keep="Leave it",
    )
