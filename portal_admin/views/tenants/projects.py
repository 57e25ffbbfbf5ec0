from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import User
from core.rest.references import one_by_id, one_by_reference
from gpr.closing.selectors import endings_of
from portal_admin.forms import CloseForm, EndForm, PlainForm, ProjectAdminForm, ProjectAdminsForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.tenants.projects import ProjectsPage, ending_points
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent
from slices.closing.services import project_close, project_restore, slice_close, slice_restore
from slices.models import Life, Project, ProjectAdmin, Slice
from slices.services import project_admin_add, project_admin_remove, project_set_end, slice_set_end

TOPICS: Final = ("people",)
VERBS: Final = {Life.ARCHIVED: "Archive", Life.REMOVED: "Remove"}
SAYS: Final = {
    Life.ARCHIVED: "It takes no requests from now on. You can open it again.",
    Life.REMOVED: "It takes no requests from now on, and is gone for good when its last box has ended. Its name stays taken.",
}


@require_GET
@admin_only
def projects(request: PageRequest) -> HttpResponse:
    return show(request, ProjectsPage.build(request), "projects/page", rows="projects/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def add_admin(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)

    def do(user: str) -> str:
        person = one_by_reference(User.objects.filter(is_active=True, is_service=False), user, what="person")
        project_admin_add(project=project, user=person, actor=request.user, now=request.now)
        return f"{person.name} administers {project.name}"

    text = "An administrator of a project acts as an owner in all its workspaces, and decides on their requests."
    form = ProjectAdminForm(sent(request))
    return _decide(request, form, f"Add an administrator of {project.name}", text, "Add administrator", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def remove_admin(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)

    def do(row: ProjectAdmin) -> str:
        project_admin_remove(row=row, actor=request.user, now=request.now)
        return f"{row.user.name} does not administer {project.name} any more"

    form = ProjectAdminsForm(sent(request), project=project)
    return _decide(request, form, f"Remove an administrator of {project.name}", "Roles in workspaces stay.", "Remove administrator", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def close_project(request: PageRequest, pk: UUID, to: Life) -> HttpResponse:
    project = _project(pk)

    def do(drain: bool, why: str) -> str:
        project_close(project=project, to=to, drain=drain, actor=request.user, now=request.now, why=why)
        return f"Project {project.name} is {to.label.lower()}"

    return _close(request, project, to, do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def restore_project(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)

    def do() -> str:
        project_restore(project=project, actor=request.user, now=request.now)
        return f"Project {project.name} is open again"

    text = "The workspaces that were archived with it are open again, too. Canceled and ended requests stay as they are."
    return _decide(request, PlainForm(sent(request)), f"Open {project.name} again?", text, "Open it again", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def close_slice(request: PageRequest, pk: UUID, to: Life) -> HttpResponse:
    slice_ = _slice(pk)

    def do(drain: bool, why: str) -> str:
        slice_close(slice_=slice_, to=to, drain=drain, actor=request.user, now=request.now, why=why)
        return f"Workspace {slice_.name} is {to.label.lower()}"

    return _close(request, slice_, to, do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def restore_slice(request: PageRequest, pk: UUID) -> HttpResponse:
    slice_ = _slice(pk)

    def do() -> str:
        slice_restore(slice_=slice_, actor=request.user, now=request.now)
        return f"Workspace {slice_.name} is open again"

    text = "Its people, namespaces and quotas are as they were. Canceled and ended requests stay as they are."
    return _decide(request, PlainForm(sent(request)), f"Open {slice_.name} again?", text, "Open it again", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def set_slice_end(request: PageRequest, pk: UUID) -> HttpResponse:
    slice_ = _slice(pk)
    text = "It is archived then. Its owners are told 14 days, 3 days and a day before."
    return _set_end(request, slice_, text, partial(slice_set_end, slice_=slice_))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def set_project_end(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)
    text = "It is archived then, with all its workspaces. Their owners are told 14 days, 3 days and a day before."
    return _set_end(request, project, text, partial(project_set_end, project=project))


def _set_end(request: PageRequest, owner: Project | Slice, text: str, end: Callable[..., None]) -> HttpResponse:
    def do(ends_at: datetime | None) -> str:
        end(ends_at=ends_at, actor=request.user, now=request.now)
        return f"The end of {owner.name} is set" if ends_at else f"{owner.name} has no end of its own"

    form = EndForm(sent(request), initial={"ends_at": owner.ends_at})
    return _decide(request, form, f"Set the end of {owner.name}", text, "Set end", do)


def _close(request: PageRequest, owner: Project | Slice, to: Life, do: Callable[..., str]) -> HttpResponse:
    form = CloseForm(sent(request), initial={"drain": "now" if to is Life.REMOVED else ""})
    title, points = f"{VERBS[to]} {owner.name}?", ending_points(endings_of(owner), to=to)
    return _decide(request, form, title, SAYS[to], f"{VERBS[to]} {owner.name}", do, points=points, is_plain=False)


def _decide(
    request: PageRequest,
    form: forms.Form,
    title: str,
    text: str,
    verb: str,
    do: Callable[..., str],
    *,
    points: tuple[str, ...] = (),
    is_plain: bool = True,
) -> HttpResponse:
    shell, back_url = admin_shell(request, page="projects"), reverse("admin-projects")
    question = Question(title, text, verb, request.path, back_url, form, shell, points=points, is_plain=is_plain)
    return decide(request, question, do, topics=TOPICS)


def _project(pk: UUID) -> Project:
    return one_by_id(Project.objects.all(), pk, what="project")


def _slice(pk: UUID) -> Slice:
    return one_by_id(Slice.objects.select_related("project"), pk, what="workspace")
