from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from gpr.models import Gpr, GprState
from portal_admin.pages.nav import queue_count
from portal_admin.pages.plan.queue.inspector import InspectorPage
from portal_admin.pages.plan.queue.page import QueuePage, facts_of, table_of
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only


@require_GET
@admin_only
def home(request: PageRequest) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin-queue"))


@require_GET
@admin_only
def queue(request: PageRequest) -> HttpResponse:
    match request.GET.get("part"):
        case "facts":
            return render(request, "admin/queue/facts.html", {"facts": facts_of(request), "now": request.now})
        case "rows":
            return render(request, "admin/queue/rows.html", {"table": table_of(request), "now": request.now, "is_part": True})
    page = QueuePage.build(request)
    return render(request, "admin/queue/page.html", {"page": page, "facts": page.facts, "table": page.table, "shell": page.shell})


@require_GET
@admin_only
def count(request: PageRequest) -> HttpResponse:
    """Returns the count in the navigation."""
    return render(request, "components/shell/nav_count.html", {"count": queue_count(Gpr.objects.filter(state=GprState.QUEUED).count())})


@require_GET
@admin_only
def inspect(request: PageRequest, pk: UUID) -> HttpResponse:
    """Answers a fragment beside the queue, else a page."""
    whole = "queue/inspector" if request.htmx else "queue/inspect"
    return show(request, InspectorPage.build(request, pk), whole, head="queue/inspect_head", body="queue/inspect_body")
