"""Builds the navigation of the admin portal, with the length of the queue and how many need approval."""

from __future__ import annotations

from typing import Final

from django.db.models import Count, Q
from django.urls import reverse

from accounts.policy import ObjectKind, Verb, may_all
from gpr.models import Gpr, GprState
from portal_shared.access import PageRequest, admin_only
from portal_shared.parts.portals import Portal
from portal_shared.shell import NavCount, Shell


def admin_shell(request: PageRequest, *, page: str) -> Shell:
    """Fragments show no navigation, so nothing is counted for them."""
    if request.htmx:
        return Shell.admin(request, page=page, queue=None, approvals=None)
    queued, approval = Q(state=GprState.QUEUED), Q(state=GprState.PENDING_APPROVAL)
    counted = Gpr.objects.filter(queued | approval).aggregate(waiting=Count("pk", filter=queued), approval=Count("pk", filter=approval))
    return counted_shell(request, page=page, **counted)


def counted_shell(request: PageRequest, *, page: str, waiting: int, approval: int) -> Shell:
    approvals = NavCount.of_approvals(approval) if may_all(request.user, Verb.APPROVE, ObjectKind.GPR) else None
    return Shell.admin(request, page=page, queue=queue_count(waiting), approvals=approvals)


def queue_count(waiting: int) -> NavCount:
    return NavCount(waiting, "waiting", url=reverse("admin-queue-count"), id="nav-queue")


PORTAL: Final = Portal(
    "admin",
    prefix="admin-",
    request_page="admin-inspect",
    is_admin=True,
    shell_of=lambda request, nav: admin_shell(request, page=nav),
    guard=admin_only,
)
