from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse

from core.pages import words
from gpr.closing.selectors import EndingRow, Endings, endings_of
from portal_shared.access import PageRequest
from portal_shared.forms.limit_forms import CloseForm, EndForm
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.parts.portals import Portal
from slices.closing.services import slice_close
from slices.models import Life, Project, Slice
from slices.selectors import slice_run_by
from slices.services import slice_set_end

NAMED_MAX: Final = 5
TOPICS: Final = ("people",)
VERBS: Final = {Life.ARCHIVED: "Archive", Life.REMOVED: "Remove"}
SAYS: Final = {
    Life.ARCHIVED: "It takes no requests from now on. An administrator of the platform can open it again.",
    Life.REMOVED: "It takes no requests from now on, and is gone for good when its last box has ended. Its name stays taken.",
}


def set_slice_end(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    slice_ = slice_run_by(request.user, pk)
    text = "It is archived then. Its owners are told 14 days, 3 days and a day before."
    return set_end(request, portal, slice_, text, lambda at: slice_set_end(slice_=slice_, ends_at=at, actor=request.user, now=request.now))


def close_slice(request: PageRequest, portal: Portal, pk: UUID, to: Life) -> HttpResponse:
    slice_ = slice_run_by(request.user, pk)

    def do(drain: bool, why: str) -> str:
        slice_close(slice_=slice_, to=to, drain=drain, actor=request.user, now=request.now, why=why)
        return f"Workspace {slice_.name} is {to.label.lower()}"

    return close(request, portal, slice_, to, do)


def set_end(
    request: PageRequest, portal: Portal, owner: Project | Slice, text: str, end: Callable[[datetime | None], None]
) -> HttpResponse:
    def do(ends_at: datetime | None) -> str:
        end(ends_at)
        return f"The end of {owner.name} is set" if ends_at else f"{owner.name} has no end of its own"

    form = EndForm(sent(request), initial={"ends_at": owner.ends_at})
    return ask_of_owner(request, portal, owner, form, f"Set the end of {owner.name}", text, "Set end", do)


def close(request: PageRequest, portal: Portal, owner: Project | Slice, to: Life, do: Callable[..., str]) -> HttpResponse:
    form = CloseForm(sent(request), initial={"drain": "now" if to is Life.REMOVED else ""})
    title, points = f"{VERBS[to]} {owner.name}?", ending_points(endings_of(owner), to=to)
    return ask_of_owner(request, portal, owner, form, title, SAYS[to], f"{VERBS[to]} {owner.name}", do, points=points, is_plain=False)


def ask_of_owner(
    request: PageRequest,
    portal: Portal,
    owner: Project | Slice,
    form: forms.Form,
    title: str,
    text: str,
    verb: str,
    do: Callable[..., str],
    *,
    points: tuple[str, ...] = (),
    is_plain: bool = True,
) -> HttpResponse:
    shell, back_url = portal.shell_of(request, "projects"), back_of(portal, owner)
    question = Question(title, text, verb, request.path, back_url, form, shell, points=points, is_plain=is_plain)
    return decide(request, question, do, topics=TOPICS)


def back_of(portal: Portal, owner: Project | Slice | None) -> str:
    """Returns the page from which the limits of a workspace are changed."""
    if portal.is_admin:
        return portal.url("projects")
    return reverse("workspace-policy", args=[owner.name]) if isinstance(owner, Slice) else reverse("workspaces")


def ending_points(ends: Endings, *, to: Life) -> tuple[str, ...]:
    """Returns what the dialog says of the endings."""
    told = [
        _told("Running: {}. Boxes run to their end, unless you end them now.", (ends.running, "request")),
        _told("Canceled now: {}.", (ends.waiting, "request"), (ends.booked, "booking"), (ends.series, "repeated booking")),
        _told("Revoked when nothing runs any more: {}.", (ends.kubeconfigs, "kubeconfig")),
    ]
    if to is Life.REMOVED:
        given_up = (
            (ends.workspaces, "workspace"),
            (ends.namespaces, "namespace"),
            (ends.members, "member"),
            (ends.invitations, "invitation"),
        )
        told.append(_told("Given up then: {}, and its quotas, budgets and channels.", *given_up))
    elif ends.workspaces.count:
        told.append(_told("Archived with it: {}.", (ends.workspaces, "workspace")))
    told.append("Events, use and past requests stay for administrators and auditors.")
    return tuple(point for point in told if point)


def _told(text: str, *endings: tuple[EndingRow, str]) -> str:
    parts = [f"{words.plural(ending.count, noun)} ({_names(ending)})" for ending, noun in endings if ending.count]
    return text.format(", ".join(parts)) if parts else ""


def _names(ending: EndingRow) -> str:
    more = ending.count - NAMED_MAX
    return ", ".join(ending.names[:NAMED_MAX]) + (f" and {words.number(more)} more" if more > 0 else "")
