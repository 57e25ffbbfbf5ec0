"""Builds the navigation of the admin portal, with the length of the queue."""

from __future__ import annotations

from django.db.models import Count, Q
from django.urls import reverse

from gpr.models import Gpr, GprState
from portal_shared.access import PageRequest
from portal_shared.shell import NavCount, Shell


def admin_shell(request: PageRequest, *, page: str) -> Shell:
    """Fragments show no navigation, so nothing is counted for them."""
    return Shell.admin(request, page=page, queue=None if request.htmx else queue_count())


def queue_count() -> NavCount:
    """One query."""
    queued, approval = Q(state=GprState.QUEUED), Q(state=GprState.PENDING_APPROVAL)
    counted = Gpr.objects.filter(queued | approval).aggregate(waiting=Count("pk", filter=queued), approval=Count("pk", filter=approval))
    return nav_count(**counted)


def nav_count(*, waiting: int, approval: int) -> NavCount:
    asks = f", {approval} {'needs' if approval == 1 else 'need'} approval" if approval else ""
    return NavCount(waiting, f"waiting{asks}", is_alert=approval > 0, url=reverse("admin-queue-count"))
