"""Files, changes and ends GPRs as their objects in a cluster change; see inventory.cluster_requests.

A user who may change an object in its namespace changes its GPR, in the name of the GPR's owner and within the owner's role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

import msgspec
import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import QuerySet
from fast_update.fast import fast_update

from accounts.policy import Verb, may
from core.errors import EgsError, IllegalTransition, InvalidInput, NotAllowed, OverPolicy, StaleState
from gpr.allocation.stored_plan import plan_lock
from gpr.cluster_requests.answers import (
    NotNow,
    answer_of,
    failed,
    namespace_of,
    not_bound,
    nothing_to_do,
    object_event,
    ready_slice,
    refused,
    told,
)
from gpr.cluster_requests.filing import requests_file, spec_of_object, with_defaults
from gpr.models import ENDED, ClusterRequestRecord, EndReason, Gpr, GprState
from gpr.requests.editing import gpr_cancel, gpr_edit, gprs_cancel, spec_of
from gpr.requests.ending import exit_begin, goes_back, gpr_extend
from gpr.requests.spec import policy_breaches
from inventory.models import Cluster
from journal.models import Event
from journal.services import events_record
from protocol.decoding import convert
from protocol.tenancy.cluster_requests import (
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestSpec,
)
from slices.models import Namespace

log = structlog.get_logger(__name__)

S = GprState
CHANGEABLE = frozenset({"priority", "duration", "early_release"})


def cluster_requests_take(*, cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> list[ClusterRequestAnswer]:
    """Answers in order. Consecutive new requests are filed together, and consecutive deleted ones are canceled together."""
    known = set(
        ClusterRequestRecord.objects.filter(cluster=cluster, uid__in=[request.uid for request in requests]).values_list("uid", flat=True)
    )

    def is_new(request: ClusterRequest) -> bool:
        is_first = request.uid not in known
        known.add(request.uid)
        return is_first and not request.is_gone

    answers: list[ClusterRequestAnswer] = []
    for (are_new, are_gone), group in groupby(requests, key=lambda request: (is_new(request), request.is_gone)):
        run = list(group)
        if are_new:
            answers += requests_file(cluster, run, now)
        elif are_gone and len(run) > 1:
            answers += _cancel_each(cluster, run, now)
        else:
            answers += [_take_one(cluster, request, now) for request in run]
    return answers


def _cancel_each(cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> list[ClusterRequestAnswer]:
    """Cancels waiting GPRs in one transaction; all others, or all after an error, one by one."""
    answers: dict[str, ClusterRequestAnswer] = {}
    try:
        answers = _cancel_waiting(cluster, requests, now)
    except (OperationalError, InterfaceError):
        raise  # the database is away
    except EgsError as error:
        log.info("claims_each_alone", why=error.detail)
    except Exception:
        log.exception("claims_each_alone")
    return [answers.get(request.uid) or _take_one(cluster, request, now) for request in requests]


@transaction.atomic
def _cancel_waiting(cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> dict[str, ClusterRequestAnswer]:
    """Cancels the GPRs that still wait, and returns answers by uid."""
    plan_lock()
    said = {request.uid: request for request in requests}
    whose = dict(Namespace.objects.filter(cluster=cluster).values_list("name", "slice"))
    waits = [
        row
        for row in _rows(cluster).filter(uid__in=said, gpr__state__in=[S.QUEUED, S.PENDING_APPROVAL]).order_by("pk")
        if whose.get(row.namespace, row.gpr.slice_id) == row.gpr.slice_id
    ]
    events_record([_gone_event(row, now) for row in waits])
    for row in waits:
        row.generation, row.reason, row.message = max(row.generation, said[row.uid].generation), "", ""
    if waits:
        gprs_cancel([(row.gpr, _reason_text(row)) for row in waits], actor=None, now=now)
        fast_update(ClusterRequestRecord.objects.all(), waits, ["generation", "reason", "message"], None)
    return {row.uid: answer_of(row, said[row.uid]) for row in waits}


def _take_one(cluster: Cluster, request: ClusterRequest, now: datetime) -> ClusterRequestAnswer:
    row = _row(cluster, request)
    if row is None:
        return nothing_to_do(request) if request.is_gone else requests_file(cluster, [request], now)[0]
    namespace = namespace_of(cluster, row.namespace)
    if namespace is not None and namespace.slice_id != row.gpr.slice_id:
        # Another workspace has the namespace now: it may neither see nor end this GPR.
        return nothing_to_do(request) if request.is_gone else refused(request, not_bound(row.namespace))
    if row.generation >= request.generation and not request.is_gone:
        return answer_of(row, request)
    try:
        return _apply(cluster, request, namespace, now)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        return failed(request, error)


@transaction.atomic
def _apply(cluster: Cluster, request: ClusterRequest, namespace: Namespace | None, now: datetime) -> ClusterRequestAnswer:
    """Changes the GPR to what the object says now, or refuses and leaves it as it is."""
    plan_lock()
    row = _row(cluster, request)
    if row is None or (row.generation >= request.generation and not request.is_gone):
        return answer_of(row, request) if row else nothing_to_do(request)
    if request.template and not request.is_auto:  # what it took from its template when it was filed stays
        request = with_defaults(request, convert(row.asked, ClusterRequestSpec))
    try:
        with transaction.atomic():
            if request.is_gone:
                _end_gone(row, now)
            elif request.spec.early_release:
                _end(row, now)
            else:
                _change(row, request, namespace, now)
    except (NotNow, StaleState) as error:
        return refused(request, error, gpr_id=str(row.gpr_id))
    except EgsError as error:
        row.reason, row.message = error.code, told(error)
    else:
        row.reason = row.message = ""
    row.generation = max(row.generation, request.generation)
    row.save(update_fields=["generation", "asked", "reason", "message"])
    return answer_of(row, request)


def _end_gone(row: ClusterRequestRecord, now: datetime) -> None:
    if row.gpr.state not in {*ENDED, S.EXITING}:
        events_record([_gone_event(row, now)])
    _end(row, now)


def _gone_event(row: ClusterRequestRecord, now: datetime) -> Event:
    text = f"Object {row} of cluster {row.cluster.name}, as which {row.gpr.name} was filed, is gone."
    return object_event("gpr.object_gone", row, text, now)


def _end(row: ClusterRequestRecord, now: datetime) -> None:
    """Raises StaleState, or NotNow for an exiting GPR that will be queued again."""
    gpr, why = row.gpr, _reason_text(row)
    if gpr.state in {S.QUEUED, S.PENDING_APPROVAL}:
        gpr_cancel(gpr=gpr, actor=None, now=now, why=why)
    elif gpr.state in {S.PROVISIONING, S.ACTIVE}:
        exit_begin(gpr=gpr, reason=EndReason.EARLY_RELEASE, actor=None, now=now, why=why)
    elif gpr.state == S.EXITING and goes_back(gpr):
        raise NotNow("Its nodes are being taken back, and it is to wait again: it is withdrawn when it does.")


def _reason_text(row: ClusterRequestRecord) -> str:
    return f"So says the object that it was filed as, {row} of cluster {row.cluster.name}."


def _change(row: ClusterRequestRecord, request: ClusterRequest, namespace: Namespace | None, now: datetime) -> None:
    """Applies changes of priority and duration since the last generation. Raises EgsError."""
    gpr, owner = row.gpr, row.gpr.owner
    slice_ = ready_slice(namespace, row.namespace)
    if not owner.is_active or not may(owner, Verb.REQUEST, slice_):
        raise NotAllowed(
            f"This was filed for {owner.name}, who may not ask for GPUs in workspace {slice_.name} any more. Make a new object."
        )
    before = convert(row.asked, ClusterRequestSpec)
    if fixed := [
        name for name in request.spec.__struct_fields__ if name not in CHANGEABLE and getattr(request.spec, name) != getattr(before, name)
    ]:
        raise InvalidInput({name: ["It cannot be changed any more. Make a new object."] for name in fixed})
    # Its predecessor stays, and may have ended.
    asked_twice = (msgspec.structs.replace(asked, after="", after_condition="") for asked in (before, request.spec))
    had, wanted = (spec_of_object(row.name, asked, slice_, row.cluster, owner) for asked in asked_twice)
    changes = {name: getattr(wanted, name) for name in ("priority", "duration_s") if getattr(wanted, name) != getattr(had, name)}
    changes = {name: value for name, value in changes.items() if value != getattr(gpr, name)}
    if gpr.state == S.ACTIVE and changes.keys() == {"duration_s"}:
        _extend(gpr, wanted.duration_s, now)
    elif changes:
        gpr_edit(gpr=gpr, actor=owner, spec=spec_of(gpr, **changes), now=now)
    row.asked = msgspec.to_builtins(request.spec)


def _extend(gpr: Gpr, duration_s: int, now: datetime) -> None:
    if duration_s < gpr.duration_s:
        raise IllegalTransition(
            "Its nodes are there, so it can only become longer. To give them back, set earlyRelease or delete the object."
        )
    asked = spec_of(gpr)
    if may(gpr.owner, Verb.DECIDE, gpr) and (breaches := policy_breaches(replace(asked, duration_s=duration_s), granted=asked)):
        raise OverPolicy(f"{' '.join(breach.text for breach in breaches)} An administrator can extend it on its page.", limit="duration")
    gpr_extend(gpr=gpr, extra_s=duration_s - gpr.duration_s, actor=gpr.owner, now=now)


def _rows(cluster: Cluster) -> QuerySet[ClusterRequestRecord]:
    return ClusterRequestRecord.objects.select_related("cluster", "gpr__slice", "gpr__owner", "gpr__cluster").filter(cluster=cluster)


def _row(cluster: Cluster, request: ClusterRequest) -> ClusterRequestRecord | None:
    return _rows(cluster).filter(uid=request.uid).first()
