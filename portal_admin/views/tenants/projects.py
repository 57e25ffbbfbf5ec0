from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import User
from core.rest.references import one_by_id, one_by_reference
from portal_admin.forms import PlainForm, ProjectAdminForm, ProjectAdminsForm
from portal_admin.pages.nav import PORTAL
from portal_admin.pages.tenants.projects import ProjectsPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import sent
from portal_shared.parts.limits.endings import ask_of_owner, close, set_end
from slices.closing.services import project_close, project_restore, slice_restore
from slices.models import Life, Project, ProjectAdmin, Slice
from slices.services import project_admin_add, project_admin_remove, project_set_end


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
    return ask_of_owner(request, PORTAL, project, form, f"Add an administrator of {project.name}", text, "Add administrator", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def remove_admin(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)

    def do(row: ProjectAdmin) -> str:
        project_admin_remove(row=row, actor=request.user, now=request.now)
        return f"{row.user.name} does not administer {project.name} any more"

    form = ProjectAdminsForm(sent(request), project=project)
    return ask_of_owner(
        request,
        PORTAL,
        project,
        form,
        f"Remove an administrator of {project.name}",
        "Roles in workspaces stay.",
        "Remove administrator",
        do,
    )


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def close_project(request: PageRequest, pk: UUID, to: Life) -> HttpResponse:
    project = _project(pk)

    def do(drain: bool, why: str) -> str:
        project_close(project=project, to=to, drain=drain, actor=request.user, now=request.now, why=why)
        return f"Project {project.name} is {to.label.lower()}"

    return close(request, PORTAL, project, to, do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def restore_project(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)

    def do() -> str:
        project_restore(project=project, actor=request.user, now=request.now)
        return f"Project {project.name} is open again"

    text = "The workspaces that were archived with it are open again, too. Canceled and ended requests stay as they are."
    return ask_of_owner(request, PORTAL, project, PlainForm(sent(request)), f"Open {project.name} again?", text, "Open it again", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def restore_slice(request: PageRequest, pk: UUID) -> HttpResponse:
    slice_ = _slice(pk)

    def do() -> str:
        slice_restore(slice_=slice_, actor=request.user, now=request.now)
        return f"Workspace {slice_.name} is open again"

    text = "Its people, namespaces and quotas are as they were. Canceled and ended requests stay as they are."
    return ask_of_owner(request, PORTAL, slice_, PlainForm(sent(request)), f"Open {slice_.name} again?", text, "Open it again", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def set_project_end(request: PageRequest, pk: UUID) -> HttpResponse:
    project = _project(pk)
    text = "It is archived then, with all its workspaces. Their owners are told 14 days, 3 days and a day before."
    return set_end(
        request, PORTAL, project, text, lambda at: project_set_end(project=project, ends_at=at, actor=request.user, now=request.now)
    )


def _project(pk: UUID) -> Project:
    return one_by_id(Project.objects.all(), pk, what="project")


def _slice(pk: UUID) -> Slice:
    return one_by_id(Slice.objects.select_related("project"), pk, what="workspace")
