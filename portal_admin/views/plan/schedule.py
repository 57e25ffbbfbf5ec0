from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from inventory.selectors import cluster_for
from portal_admin.pages.plan.schedule import SchedulePage, ScheduleWindow, part_of
from portal_shared.access import PageRequest, admin_only


@require_GET
@admin_only
def schedule(request: PageRequest) -> HttpResponse:
    """`?part=head`: the axis; any other part is a cluster."""
    part = request.GET.get("part")
    if part == "head":
        return render(request, "admin/schedule/head.html", {"axis": ScheduleWindow.of(request).axis, "head_url": request.get_full_path()})
    if part:
        cluster = cluster_for(request.user, part)
        return render(request, "admin/schedule/part.html", {"part": part_of(request, cluster), "now": request.now})
    page = SchedulePage.build(request)
    return render(
        request, "admin/schedule/page.html", {"page": page, "shell": page.shell, "axis": page.window.axis, "head_url": page.head_url}
    )
