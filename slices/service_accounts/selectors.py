from __future__ import annotations

from django.db.models import OuterRef, QuerySet, Subquery

from core.errors import NotFound
from core.rest.references import is_object
from slices.models import Membership, ServiceAccount, Slice


def service_accounts_of(slice_: Slice) -> QuerySet[ServiceAccount]:
    """Annotated with the `role`, which is None in a workspace that is removed."""
    role = Membership.objects.filter(slice=slice_, user=OuterRef("user")).values("role")
    return (
        slice_.service_accounts.filter(deleted_at=None)
        .annotate(role=Subquery(role))
        .select_related("user", "slice", "cluster", "created_by")
    )


def service_account_of(slice_: Slice, reference: str) -> ServiceAccount:
    """Raises NotFound."""
    found = service_accounts_of(slice_).filter(is_object(reference, path="user")).first()
    if found is None:
        raise NotFound("service account")
    return found
