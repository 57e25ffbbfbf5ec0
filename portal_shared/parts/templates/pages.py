"""Shows request templates of a workspace, or of the platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.urls import reverse

from core.pages.parts import ListFoot
from gpr.models import GprTemplate
from gpr.requests.selectors import templates_of
from gpr.requests.spec import shapes_anywhere, shapes_of
from gpr.templates.fields import labeled, runs
from gpr.templates.services import TemplateChange
from portal_shared.access import PageRequest
from portal_shared.forms.questions import Question
from portal_shared.forms.service_form import ServiceForm
from portal_shared.forms.template_form import TemplateForm
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from slices.models import Slice


@dataclass(frozen=True, slots=True)
class Switch:
    """Has a button's `label`, a question's `title` and `text`, and `done`, which completes "NAME ..." in the toast."""

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
class Home:
    """Says where templates stand: in a workspace, or, with `slice` None, on the platform."""

    slice: Slice | None
    shell_of: Callable[[PageRequest], Shell]
    may_use: bool
    may_change: bool

    def url(self, page: str, *args: object) -> str:
        return reverse(f"admin-{page}", args=args) if self.slice is None else reverse(page, args=[self.slice.name, *args])

    @property
    def mark(self) -> WorkspaceMark | None:
        return WorkspaceMark.of(self.slice) if self.slice else None

    def rows(self) -> QuerySet[GprTemplate]:
        """A workspace lists the platform's templates, too, since its requests may start from them."""
        rows = GprTemplate.objects.select_related("slice", "cluster")
        return templates_of(rows, Q(slice=self.slice)) if self.slice else rows.filter(slice=None)


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
    def of(cls, row: GprTemplate, home: Home) -> TemplateRow:
        may_change = home.may_change and row.slice == home.slice
        create = "job-create" if row.job else "gpr-create"
        keys = ("drop-default" if row.is_default else "make-default", "auto-off" if row.auto else "auto-on")
        return cls(
            id=row.pk,
            name=row.name,
            place=place_of(row),
            says=", ".join(f"{name} {value}" for name, value in labeled(row.asked)),
            runs=runs(row.job),
            is_default=row.is_default,
            auto=row.auto,
            use_url=f"{home.url(create)}?template={row.pk}" if home.may_use else "",
            change_url=home.url("template", row.pk) if may_change else "",
            delete_url=home.url("template-delete", row.pk) if may_change else "",
            switches=tuple(SwitchLink(SWITCHES[key].label, home.url("template-switch", row.pk, key)) for key in keys)
            if may_change and row.slice
            else (),
        )

    @property
    def is_idle(self) -> bool:
        """Automatic requests need the default."""
        return self.auto and not self.is_default


@dataclass(frozen=True, slots=True)
class TemplatesPage:
    shell: Shell
    mark: WorkspaceMark | None  # None: the platform's
    rows: tuple[TemplateRow, ...]
    foot: ListFoot
    part_url: str  # of its fragment
    create_url: str  # empty: not allowed

    @classmethod
    def build(cls, request: PageRequest, home: Home) -> TemplatesPage:
        found = page_of(request, home.rows(), ordering=("name", "id"))
        url = home.url("templates")
        return cls(
            shell=home.shell_of(request),
            mark=home.mark,
            rows=tuple(TemplateRow.of(row, home) for row in found.rows),
            foot=foot_of(found, url),
            part_url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "list"}),
            create_url=home.url("template-create") if home.may_change else "",
        )

    @property
    def is_platform(self) -> bool:
        return self.mark is None


@dataclass(frozen=True, slots=True)
class TemplatePage:
    shell: Shell
    mark: WorkspaceMark | None
    title: str
    verb: str
    form: TemplateForm
    back_url: str

    @classmethod
    def build(cls, request: PageRequest, home: Home, template: GprTemplate | None, form: TemplateForm) -> TemplatePage:
        return cls(
            shell=home.shell_of(request),
            mark=home.mark,
            title=f"Change template {template.name}" if template else "Make a template",
            verb="Change template" if template else "Make template",
            form=form,
            back_url=home.url("templates"),
        )


def form_of(home: Home, template: GprTemplate | None, data: Mapping[str, Any] | None) -> TemplateForm:
    shapes = shapes_of(home.slice) if home.slice else shapes_anywhere()
    if template is None:
        return TemplateForm(data, slice_=home.slice, shapes=shapes)
    own = template.asked.get("shape")
    typed = TemplateForm.typed(template)
    shapes = sorted({*shapes, *([own] if own else [])})
    return TemplateForm(data, slice_=home.slice, shapes=shapes, own=template.cluster, initial=typed)


def switch_question(request: PageRequest, home: Home, template: GprTemplate, key: str, data: QueryDict | None) -> Question:
    switch = SWITCHES[key]
    said = {"name": template.name, "place": place_of(template)}
    is_so = all(getattr(template, field) == value for field, value in switch.change.items())
    asked = _question(request, home, template, switch.title.format(**said), switch.text.format(**said), switch.label, data)
    closed = f"{template.name} {switch.done}: there is nothing to change." if is_so else ""
    return replace(asked, url=home.url("template-switch", template.pk, key), is_plain=True, closed=closed)


def delete_question(request: PageRequest, home: Home, template: GprTemplate, data: QueryDict | None) -> Question:
    text = "Requests made from it stay as they are."
    if home.slice is None:
        text += " No workspace can start from it any more."
    return _question(request, home, template, f"Delete template {template.name}?", text, "Delete template", data)


def place_of(template: GprTemplate) -> str:
    if template.slice is None:
        return "all workspaces, from the platform"
    return f"cluster {template.cluster.name}" if template.cluster else "all clusters"


def _question(
    request: PageRequest, home: Home, template: GprTemplate, title: str, text: str, verb: str, data: QueryDict | None
) -> Question:
    return Question(
        title=title,
        text=text,
        verb=verb,
        url=home.url("template-delete", template.pk),
        back_url=home.url("templates"),
        form=ServiceForm(data),
        shell=home.shell_of(request),
        keep="Leave it",
    )
