from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from core.errors import NotFound
from portal_shared.access import PageRequest, signed_in
from portal_user.pages.policies import PolicyPage
from slices.policies.selectors import policies_visible_to
from slices.policies.services import policy_of
from slices.selectors import slice_for


@require_GET
@signed_in
def of_workspace(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = slice_for(request.user, slice)
    sees_project = policies_visible_to(request.user).filter(project=slice_.project_id).exists()
    return _show(request, PolicyPage.build(request, policy_of(slice_), slice_, sees_project=sees_project))


@require_GET
@signed_in
def of_project(request: PageRequest, project: str) -> HttpResponse:
    """Shows a project's policy to its administrators."""
    policy = policies_visible_to(request.user).filter(project__name=project).first()
    if policy is None:
        raise NotFound("project")
    return _show(request, PolicyPage.build(request, policy, None, sees_project=True))


def _show(request: PageRequest, page: PolicyPage) -> HttpResponse:
    part = "body" if request.GET.get("part") == "body" else "page"
    return render(request, f"user/policies/{part}.html", {"page": page, "shell": page.shell, "now": request.now})
