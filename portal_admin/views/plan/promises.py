from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_admin.pages.plan.promises import AdminPromisesPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only


@require_GET
@admin_only
def promises(request: PageRequest) -> HttpResponse:
    return show(request, AdminPromisesPage.build(request), "promises")
