from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from core.streaming import StreamedText
from journal.audit_api import audit_file
from portal_admin.pages.audit import AuditPage, audit_filtered
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only


@require_GET
@admin_only
def audit(request: PageRequest) -> HttpResponse:
    return show(request, AuditPage.build(request), "audit/page")


@require_GET
@admin_only
def export(request: PageRequest) -> StreamedText:
    return audit_file(audit_filtered(request))
