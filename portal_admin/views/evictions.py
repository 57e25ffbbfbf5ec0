"""What was evicted for whom."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from egs.pages.access import PageRequest, admin_only
from portal_admin.pages.evictions import EvictionsPage


@require_GET
@admin_only
def evictions(request: PageRequest) -> HttpResponse:
    page = EvictionsPage.build(request)
    template = "admin/eviction_rows.html" if request.GET.get("part") == "rows" else "admin/evictions.html"
    return render(request, template, {"page": page, "shell": page.shell})
