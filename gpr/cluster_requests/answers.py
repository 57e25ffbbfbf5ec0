"""Answers an agent on objects of its cluster, and says why one is refused."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import structlog
from django.db import DataError

from accounts.models import User
from core.errors import EgsError, InvalidInput, QueueFull, StaleState
from gpr.events import gpr_event
from gpr.models import ClusterRequestRecord
from inventory.models import Cluster
from journal.models import Event
from protocol.tenancy.cluster_requests import (
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestVerdict,
)
from protocol.tenancy.workspaces import BindingState
from slices.models import Namespace, Slice

log = structlog.get_logger(__name__)

# Object field names that are not just the camel case of the request field.
OBJECT_FIELDS = {"duration_s": "duration", "idle_timeout_s": "idleTimeout", "min_gpu_memory_gib": "minGpuMemoryGiB"}


class NamespaceNotBound(EgsError):
    code: ClassVar[str] = "namespace_not_bound"
    title: ClassVar[str] = "The namespace is no workspace's"


class OtherWorkspace(EgsError):
    code: ClassVar[str] = "other_workspace"
    title: ClassVar[str] = "The namespace is not of that workspace"


class TemplateNotFound(EgsError):
    code: ClassVar[str] = "template_not_found"
    title: ClassVar[str] = "There is no such template"


class NoOwner(EgsError):
    code: ClassVar[str] = "no_owner"
    title: ClassVar[str] = "No owner to file it for"


class NotNow(EgsError):
    # The agent asks again later.

    code: ClassVar[str] = "not_now"
    title: ClassVar[str] = "Not at present"


def namespace_of(cluster: Cluster, name: str) -> Namespace | None:
    return Namespace.objects.select_related("slice").filter(cluster=cluster, name=name).first()


def ready_slice(namespace: Namespace | None, name: str) -> Slice:
    """Raises NamespaceNotBound, or NotNow."""
    if namespace is None or namespace.state == BindingState.CONFLICT:
        raise not_bound(name)
    if namespace.state != BindingState.READY:
        raise NotNow(f"Namespace {name} is not ready yet. {namespace.detail}".strip())
    return namespace.slice


def not_bound(name: str) -> NamespaceNotBound:
    return NamespaceNotBound(f"Namespace {name} is bound to no workspace. An owner of a workspace can bind it.")


def object_event(kind: str, row: ClusterRequestRecord, message: str, now: datetime, *, actor: User | None = None) -> Event:
    data = {"uid": row.uid, "requester": row.requester, "is_auto": row.is_auto}
    return gpr_event(kind, row.gpr, message, now, actor=actor, cluster_id=row.cluster_id, data=data)


def answer_of(row: ClusterRequestRecord, request: ClusterRequest) -> ClusterRequestAnswer:
    return ClusterRequestAnswer(
        uid=row.uid,
        generation=request.generation,
        verdict=ClusterRequestVerdict.REFUSED if row.reason else ClusterRequestVerdict.TAKEN,
        gpr_id=str(row.gpr_id),
        reason=row.reason,
        message=row.message,
    )


def nothing_to_do(request: ClusterRequest) -> ClusterRequestAnswer:
    return ClusterRequestAnswer(uid=request.uid, generation=request.generation, verdict=ClusterRequestVerdict.TAKEN)


def refused(request: ClusterRequest, error: EgsError, *, gpr_id: str = "") -> ClusterRequestAnswer:
    # A full queue has room later, so the agent tries again.
    verdict = ClusterRequestVerdict.LATER if isinstance(error, NotNow | StaleState | QueueFull) else ClusterRequestVerdict.REFUSED
    return ClusterRequestAnswer(
        uid=request.uid, generation=request.generation, verdict=verdict, gpr_id=gpr_id, reason=error.code, message=told(error)
    )


def failed(request: ClusterRequest, error: Exception) -> ClusterRequestAnswer:
    # Nothing was stored.
    if isinstance(error, EgsError):
        return refused(request, error)
    if isinstance(error, DataError | ValueError | OverflowError):
        log.warning("claim_unstorable", uid=request.uid, exc_info=error)
        return refused(request, InvalidInput({"spec": ["A value is beyond what can be stored."]}))
    log.error("claim_failed", uid=request.uid, exc_info=error)
    return refused(request, NotNow("The hub could not take it. It is tried again; tell an administrator if it stays."))


def told(error: EgsError) -> str:
    """Names fields as the object does."""
    if not isinstance(error, InvalidInput):
        return error.detail
    errors: dict[str, list[str]] = error.extra["errors"]
    return " ".join(f"{_object_field(name)}: {' '.join(texts)}" for name, texts in errors.items())


def _object_field(name: str) -> str:
    first, *rest = name.split("_")
    return OBJECT_FIELDS.get(name) or first + "".join(word.capitalize() for word in rest)
