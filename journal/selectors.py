from __future__ import annotations

from django.db.models import Q, QuerySet

from journal.models import Event


def audit_trail() -> QuerySet[Event]:
    """Returns acts of people and refusals, refused sign-ins included. The caller checks the reader."""
    return Event.objects.filter(Q(actor__isnull=False) | ~Q(request_id="")).select_related("actor").order_by("-id")
