from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from portal_shared.access import PageRequest, signed_in
from portal_user.pages.quota_bars import quota_bars
from portal_user.pages.requests.facts import facts_of
from portal_user.pages.requests.listing import GROUPS, RequestListing, RequestsPage, RequestTable
from portal_user.pages.tenants.workspaces import WorkspacesPage
from slices.selectors import slice_for


@require_GET
@signed_in
def workspaces(request: PageRequest) -> HttpResponse:
    page = WorkspacesPage.build(request)
    template = "user/workspaces/list.html" if request.GET.get("part") == "list" else "user/workspaces/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_GET
@signed_in
def workspace(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = slice_for(request.user, slice)
    part, listing = request.GET.get("part"), RequestListing.of(request, slice_)
    if part == "facts":
        facts = {"facts": facts_of(request, slice_, listing.tally()), "url": request.get_full_path()}
        return render(request, "user/requests/facts.html", {**facts, "now": request.now})
    if part == "quotas":
        return render(request, "user/requests/quotas.html", {"quotas": quota_bars(slice_, now=request.now), "url": request.get_full_path()})
    if part == "tabs":
        return render(request, "user/requests/tabs.html", {"tabs": listing.tabs(listing.tally().counts), "url": request.get_full_path()})
    if part in GROUPS:
        table = RequestTable.build(request, listing.only(part))
        return render(request, "user/requests/table.html", {"table": table, "is_part": True, "now": request.now})
    if part == "axis":
        return render(request, "user/requests/axis.html", {"table": RequestTable.build(request, listing.only(""))})
    page = RequestsPage.build(request, slice_)
    return render(request, "user/requests/page.html", {"page": page, "table": page.table, "shell": page.shell, "now": request.now})
