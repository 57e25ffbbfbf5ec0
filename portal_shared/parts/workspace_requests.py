from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.urls import reverse

from core.pages import words
from slices.models import RequestState, WorkspaceRequest

CSS = {RequestState.PENDING: "wait", RequestState.APPROVED: "good", RequestState.REFUSED: "late"}


@dataclass(frozen=True, slots=True)
class WorkspaceRequestRow:
    """`approve_url` and `refuse_url` are for administrators, `cancel_url` for the requester; empty when it is decided."""

    id: UUID
    name: str
    project: str
    purpose: str
    asks: str
    requester: str
    at: datetime
    word: str
    css: str
    why: str
    approve_url: str
    refuse_url: str
    cancel_url: str

    @classmethod
    def of(cls, row: WorkspaceRequest) -> WorkspaceRequestRow:
        is_open = row.state == RequestState.PENDING
        return cls(
            id=row.pk,
            name=row.name,
            project=row.project,
            purpose=row.purpose,
            asks=_asks(row),
            requester=row.requester.name,
            at=row.created_at,
            word=RequestState(row.state).label,
            css=CSS.get(RequestState(row.state), "soft"),
            why=row.why,
            approve_url=reverse("admin-workspace-approve", args=[row.pk]) if is_open else "",
            refuse_url=reverse("admin-workspace-refuse", args=[row.pk]) if is_open else "",
            cancel_url=reverse("workspace-ask-cancel", args=[row.pk]) if is_open else "",
        )


def _asks(row: WorkspaceRequest) -> str:
    """Returns e.g. "aurora; 2 namespaces; 3 people; 16 H100-80GB"."""
    parts = [", ".join(row.clusters)] if row.clusters else []
    parts += [words.plural(len(row.namespaces), "namespace")] if row.namespaces else []
    parts += [words.plural(len(row.people), "member")] if row.people else []
    parts += [f"{count} {shape}" for shape, count in row.quota.items()]
    return "; ".join(parts)
