from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_admin.pages.plan.evictions import EvictionsPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only


@require_GET
@admin_only
def evictions(request: PageRequest) -> HttpResponse:
    return show(request, EvictionsPage.build(request), "evictions/page", rows="evictions/rows")
