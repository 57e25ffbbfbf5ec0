from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_admin.pages.tenants.policies import AdminPolicyPage, PoliciesPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only
from slices.policies.selectors import policy_for

TOPICS = ("policies", "queue", "gpr")


@require_GET
@admin_only
def policies(request: PageRequest) -> HttpResponse:
    return show(request, PoliciesPage.build(request), "policies/page")


@require_GET
@admin_only
def policy(request: PageRequest, pk: UUID) -> HttpResponse:
    return show(request, AdminPolicyPage.build(request, policy_for(request.user, pk)), "policies/policy", rows="policies/policy_body")
