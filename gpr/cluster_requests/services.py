"""Files, changes and ends GPRs as their objects in a cluster change; see inventory.cluster_requests.

A user who may change an object in its namespace changes its GPR, in the name of the GPR's owner and within the owner's role.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import msgspec
import structlog
from django.db import DataError, InterfaceError, OperationalError, transaction
from django.db.models import Q, QuerySet
from fast_update.fast import fast_update

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import Conflict, EgsError, IllegalTransition, InvalidInput, NotAllowed, NotFound, OverPolicy, QueueFull, StaleState
from gpr.allocation.stored_plan import plan_lock
from gpr.events import gpr_event
from gpr.jobs.manifest_text import objects_of_text
from gpr.jobs.services import job_add, spec_for_job
from gpr.jobs.spec import JobSpec
from gpr.models import ENDED, ClusterRequestRecord, EndReason, Gpr, GprState, GprTemplate
from gpr.requests.editing import gpr_cancel, gpr_edit, gprs_cancel, spec_of
from gpr.requests.ending import exit_begin, goes_back, gpr_extend
from gpr.requests.inputs import GprCreate, spec_of_create
from gpr.requests.selectors import templates_of
from gpr.requests.services import gprs_submit
from gpr.requests.spec import NAME_MAX_CHARS, GprSpec, policy_breaches
from gpr.templates.automatic import spec_of_template
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal.models import Event
from journal.services import events_record
from protocol.cluster_names import ACCOUNTS, AGENT, NAMESPACE
from protocol.decoding import convert
from protocol.tenancy.cluster_requests import (
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestSpec,
    ClusterRequestVerdict,
    JobAsk,
    ModelDescription,
)
from protocol.tenancy.workspaces import BindingState
from slices.models import KubeconfigState, Namespace, Slice
from slices.selectors import first_owner, kubeconfig_behind, slices_visible_to_members
from slices.service_accounts.services import PREFIX, service_account_met

log = structlog.get_logger(__name__)

S = GprState
AGENT_USER = f"{PREFIX}{NAMESPACE}:{AGENT}"  # makes objects for waiting pods
# Object field names that are not just the camel case of the request field.
OBJECT_FIELDS = {"duration_s": "duration", "idle_timeout_s": "idleTimeout", "min_gpu_memory_gib": "minGpuMemoryGiB"}
# Request field names that differ from those of the protocol.
REQUEST_FIELDS = {"duration": "duration_s", "idle_timeout": "idle_timeout_s"}
NODES_DEFAULT = 1
NOT_ASKED = frozenset({"workspace", "early_release", "job"})
CHANGEABLE = frozenset({"priority", "duration", "early_release"})


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


class _Filing(NamedTuple):
    """`request`: with the fields of the template that it names."""

    request: ClusterRequest
    actor: User  # for whom it is filed
    spec: GprSpec
    what: JobSpec | None  # what is to run there


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
            answers += _file_each(cluster, run, now)
        elif are_gone and len(run) > 1:
            answers += _cancel_each(cluster, run, now)
        else:
            answers += [_take_one(cluster, request, now) for request in run]
    return answers


# -- new requests ------------------------------------------------------------------------------------------------------


def _file_each(cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> list[ClusterRequestAnswer]:
    """Files all in one transaction; after an unexpected error, each in its own."""
    try:
        return _file(cluster, requests, now)
    except (OperationalError, InterfaceError):
        raise  # the database is away
    except Exception as error:
        if len(requests) == 1:
            return [_failed(requests[0], error)]
        return [answer for request in requests for answer in _file_each(cluster, [request], now)]


@transaction.atomic
def _file(cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> list[ClusterRequestAnswer]:
    # One plan for all requests of one owner.
    plan_lock()
    answers: dict[str, ClusterRequestAnswer] = {}
    asks: dict[UUID, list[_Filing]] = defaultdict(list)
    # Another connection may have filed the same message while we waited for the lock.
    filed = {row.uid: row for row in ClusterRequestRecord.objects.filter(cluster=cluster, uid__in=[request.uid for request in requests])}
    for request in requests:
        try:
            if request.uid in filed:
                answers[request.uid] = _answer_of(filed[request.uid], request)
                continue
            ask = _ask_of(cluster, request, now)
        except EgsError as error:
            answers[request.uid] = _refused(request, error)
            continue
        asks[ask.actor.pk].append(ask)
    for asked in asks.values():
        made = gprs_submit(actor=asked[0].actor, specs=[ask.spec for ask in asked], now=now, collect_errors=(EgsError,))
        for ask, gpr in zip(asked, made, strict=True):
            request = ask.request
            answers[request.uid] = _store(cluster, request, gpr, ask.what, now) if isinstance(gpr, Gpr) else _refused(request, gpr)
    if asks:
        desired_set_changed([cluster.pk])
    return [answers[request.uid] for request in requests]


def _ask_of(cluster: Cluster, request: ClusterRequest, now: datetime) -> _Filing:
    """Raises EgsError."""
    slice_ = _ready_slice(_namespace(cluster, request.namespace), request.namespace)
    if request.spec.workspace not in {"", slice_.name}:
        other = request.spec.workspace
        raise OtherWorkspace(f"This namespace is not of workspace {other}. Leave the workspace out, or use a namespace of its own.")
    if request.spec.early_release:
        raise InvalidInput({"early_release": ["Nothing has been filed that could be released. Make a new object without it."]})
    actor = _owner_for(slice_, cluster, request, now)
    template = _template_of(slice_, cluster, request) if request.template else None
    if template is not None and not request.is_auto:
        request = _with_defaults(request, spec_of_template(template.asked))
    spec = replace(_spec_of(request.name, request.spec, slice_, cluster, actor), template=template)
    if request.is_auto:
        _refuse_if_served(slice_, cluster)
    if request.spec.job is None:
        return _Filing(request, actor, spec, None)
    what = _what(request.spec.job, request.namespace, template.job if template else {})
    return _Filing(request, actor, spec_for_job(spec, what), what)


def _template_of(slice_: Slice, cluster: Cluster, request: ClusterRequest) -> GprTemplate | None:
    """Returns the one of the workspace or of the platform that it names. Raises TemplateNotFound or InvalidInput."""
    if request.is_auto:  # it has the template's values already, so it is filed even if the template was deleted or renamed
        return slice_.templates.filter(name=request.template).first()
    template = templates_of(GprTemplate.objects.select_related("cluster"), Q(slice=slice_)).filter(name=request.template).first()
    if template is None:
        raise TemplateNotFound(
            f"There is no template {request.template}: neither a GPRTemplate of this namespace nor one of workspace {slice_.name} or of "
            "the platform in EGS. The request is filed once there is one."
        )
    if template.cluster is not None and template.cluster != cluster:
        raise InvalidInput({"template": [f"Template {template.name} is for cluster {template.cluster.name}."]})
    return template


def _with_defaults(request: ClusterRequest, defaults: ClusterRequestSpec) -> ClusterRequest:
    """Fills in what the request says nothing of."""
    said = {**msgspec.to_builtins(defaults), **msgspec.to_builtins(request.spec)}
    return msgspec.structs.replace(request, spec=convert(said, ClusterRequestSpec))


def _what(asked: JobAsk, namespace: str, of_template: Mapping[str, Any]) -> JobSpec:
    """Raises InvalidInput."""
    said = {name: value for name, value in msgspec.to_builtins(asked).items() if value is not None}
    if text := said.pop("manifest", ""):
        said["objects_wanted"] = objects_of_text(text)
    return JobSpec(**{**of_template, **said, "namespace": namespace})


def _owner_for(slice_: Slice, cluster: Cluster, request: ClusterRequest, now: datetime) -> User:
    """Returns the person of its kubeconfig, or the service account itself. Requests of EGS, and of users whom EGS does not know, are the
    workspace's first owner's. Raises NotAllowed, NoOwner or Conflict.
    """
    kubeconfig = kubeconfig_behind(cluster, request.requester)
    if kubeconfig is not None:
        if kubeconfig.state == KubeconfigState.REVOKED or not kubeconfig.user.is_active:
            raise NotAllowed("The kubeconfig by which this object was made has been revoked. Make it again with one that is good.")
        if not slices_visible_to_members(kubeconfig.user).filter(pk=slice_.pk).exists():
            raise NotAllowed(f"The kubeconfig by which this object was made is nobody's of workspace {slice_.name}.")
        return kubeconfig.user
    if request.requester.startswith(f"{PREFIX}{ACCOUNTS}:"):
        raise NotAllowed("The account by which this object was made is no kubeconfig of EGS any more. Make it again with one that is good.")
    if request.requester.startswith(PREFIX) and request.requester != AGENT_USER:
        return service_account_met(slice_=slice_, cluster=cluster, cluster_user=request.requester, now=now)
    owner = first_owner(slice_)
    if owner is None:
        raise NoOwner(f"Workspace {slice_.name} has no owner to file it for. Have an administrator give it one.")
    return owner


def _spec_of(name: str, asked: ClusterRequestSpec, slice_: Slice, cluster: Cluster, actor: User) -> GprSpec:
    """Validates as the REST API does. Raises InvalidInput or NotFound."""
    said = {field: value for field, value in msgspec.structs.asdict(asked).items() if field not in NOT_ASKED and value not in (None, "")}
    data: dict[str, Any] = {"nodes": NODES_DEFAULT} | {REQUEST_FIELDS.get(field, field): value for field, value in said.items()}
    data |= {"name": _name(name), "slice": str(slice_.pk), "clusters": [str(cluster.pk)]}
    data |= {"model": _model(asked.model)} if asked.model else {}
    data |= {"after": _name(asked.after)} if asked.after else {}
    form = GprCreate(data=data)
    if not form.is_valid():
        raise InvalidInput({str(name): [str(text) for text in texts] for name, texts in form.errors.items()})
    make = partial(spec_of_create, form.validated_data, actor=actor)
    return _behind(asked.after, make) if asked.after else make()


def _behind(after: str, make: Callable[[], GprSpec]) -> GprSpec:
    """A predecessor in another workspace counts as missing, since people who may make objects may not look there.

    Raises NotNow while it is missing, since it may come from an object that is filed later.
    """

    with suppress(NotFound, Conflict):
        spec = make()
        if spec.after is not None and spec.after.slice_id == spec.slice.pk:
            return spec
    raise NotNow(f"Its workspace has no one request {_name(after)} yet, after which it is to start. It is filed once there is one.")


def _model(asked: ModelDescription) -> dict[str, Any]:
    return {"name": asked.name, "parameters": {each.name: each.value for each in asked.parameters}}


def _name(text: str) -> str:
    # Names of objects may be longer than those of GPRs; other faults are left to the check of the request.
    return text[:NAME_MAX_CHARS].rstrip("-.")


def _refuse_if_served(slice_: Slice, cluster: Cluster) -> None:
    """Raises NotNow while a GPR that a person requested can serve the waiting pods."""
    may_run_here = Q(cluster=cluster) | Q(cluster=None) & (Q(clusters=cluster) | Q(clusters=None))
    open_ = Gpr.objects.filter(may_run_here, slice=slice_).exclude(state__in=ENDED)
    other = open_.exclude(cluster_request__is_auto=True).order_by("created_at").first()
    if other is not None:
        raise NotNow(f"{other.name} of the same workspace is {other.get_state_display().lower()}: its nodes are for these pods, too.")


def _store(cluster: Cluster, request: ClusterRequest, gpr: Gpr, what: JobSpec | None, now: datetime) -> ClusterRequestAnswer:
    row = ClusterRequestRecord.objects.create(
        cluster=cluster,
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        requester=request.requester,
        is_auto=request.is_auto,
        gpr=gpr,
        generation=request.generation,
        asked=msgspec.to_builtins(request.spec),
    )
    events_record([_event(row, "gpr.claimed", f"{gpr.name} was filed as {row.sentence}.", now, actor=gpr.owner)])
    if what is not None:
        job_add(gpr=gpr, what=what, actor=gpr.owner, now=now)
    return _answer_of(row, request)


# -- known requests ----------------------------------------------------------------------------------------------------


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
    return {row.uid: _answer_of(row, said[row.uid]) for row in waits}


def _take_one(cluster: Cluster, request: ClusterRequest, now: datetime) -> ClusterRequestAnswer:
    row = _row(cluster, request)
    if row is None:
        return _nothing_to_do(request) if request.is_gone else _file_each(cluster, [request], now)[0]
    namespace = _namespace(cluster, row.namespace)
    if namespace is not None and namespace.slice_id != row.gpr.slice_id:
        # Another workspace has the namespace now: it may neither see nor end this GPR.
        return _nothing_to_do(request) if request.is_gone else _refused(request, _not_bound(row.namespace))
    if row.generation >= request.generation and not request.is_gone:
        return _answer_of(row, request)
    try:
        return _apply(cluster, request, namespace, now)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        return _failed(request, error)


@transaction.atomic
def _apply(cluster: Cluster, request: ClusterRequest, namespace: Namespace | None, now: datetime) -> ClusterRequestAnswer:
    """Changes the GPR to what the object says now, or refuses and leaves it as it is."""
    plan_lock()
    row = _row(cluster, request)
    if row is None or (row.generation >= request.generation and not request.is_gone):
        return _answer_of(row, request) if row else _nothing_to_do(request)
    if request.template and not request.is_auto:  # what it took from its template when it was filed stays
        request = _with_defaults(request, convert(row.asked, ClusterRequestSpec))
    try:
        with transaction.atomic():
            if request.is_gone:
                _end_gone(row, now)
            elif request.spec.early_release:
                _end(row, now)
            else:
                _change(row, request, namespace, now)
    except (NotNow, StaleState) as error:
        return _refused(request, error, gpr_id=str(row.gpr_id))
    except EgsError as error:
        row.reason, row.message = error.code, _message(error)
    else:
        row.reason = row.message = ""
    row.generation = max(row.generation, request.generation)
    row.save(update_fields=["generation", "asked", "reason", "message"])
    return _answer_of(row, request)


def _end_gone(row: ClusterRequestRecord, now: datetime) -> None:
    if row.gpr.state not in {*ENDED, S.EXITING}:
        events_record([_gone_event(row, now)])
    _end(row, now)


def _gone_event(row: ClusterRequestRecord, now: datetime) -> Event:
    text = f"Object {row} of cluster {row.cluster.name}, as which {row.gpr.name} was filed, is gone."
    return _event(row, "gpr.object_gone", text, now)


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
    slice_ = _ready_slice(namespace, row.namespace)
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
    had, wanted = (_spec_of(row.name, asked, slice_, row.cluster, owner) for asked in asked_twice)
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


# -- shared ------------------------------------------------------------------------------------------------------------


def _rows(cluster: Cluster) -> QuerySet[ClusterRequestRecord]:
    return ClusterRequestRecord.objects.select_related("cluster", "gpr__slice", "gpr__owner", "gpr__cluster").filter(cluster=cluster)


def _row(cluster: Cluster, request: ClusterRequest) -> ClusterRequestRecord | None:
    return _rows(cluster).filter(uid=request.uid).first()


def _namespace(cluster: Cluster, name: str) -> Namespace | None:
    return Namespace.objects.select_related("slice").filter(cluster=cluster, name=name).first()


def _ready_slice(namespace: Namespace | None, name: str) -> Slice:
    """Raises NamespaceNotBound, or NotNow."""
    if namespace is None or namespace.state == BindingState.CONFLICT:
        raise _not_bound(name)
    if namespace.state != BindingState.READY:
        raise NotNow(f"Namespace {name} is not ready yet. {namespace.detail}".strip())
    return namespace.slice


def _not_bound(name: str) -> NamespaceNotBound:
    return NamespaceNotBound(f"Namespace {name} is bound to no workspace. An owner of a workspace can bind it.")


def _event(row: ClusterRequestRecord, kind: str, message: str, now: datetime, *, actor: User | None = None) -> Event:
    data = {"uid": row.uid, "requester": row.requester, "is_auto": row.is_auto}
    return gpr_event(kind, row.gpr, message, now, actor=actor, cluster_id=row.cluster_id, data=data)


def _answer_of(row: ClusterRequestRecord, request: ClusterRequest) -> ClusterRequestAnswer:
    return ClusterRequestAnswer(
        uid=row.uid,
        generation=request.generation,
        verdict=ClusterRequestVerdict.REFUSED if row.reason else ClusterRequestVerdict.TAKEN,
        gpr_id=str(row.gpr_id),
        reason=row.reason,
        message=row.message,
    )


def _nothing_to_do(request: ClusterRequest) -> ClusterRequestAnswer:
    return ClusterRequestAnswer(uid=request.uid, generation=request.generation, verdict=ClusterRequestVerdict.TAKEN)


def _refused(request: ClusterRequest, error: EgsError, *, gpr_id: str = "") -> ClusterRequestAnswer:
    # A full queue has room later, so the agent tries again.
    verdict = ClusterRequestVerdict.LATER if isinstance(error, NotNow | StaleState | QueueFull) else ClusterRequestVerdict.REFUSED
    return ClusterRequestAnswer(
        uid=request.uid, generation=request.generation, verdict=verdict, gpr_id=gpr_id, reason=error.code, message=_message(error)
    )


def _failed(request: ClusterRequest, error: Exception) -> ClusterRequestAnswer:
    # Nothing was stored.
    if isinstance(error, EgsError):
        return _refused(request, error)
    if isinstance(error, DataError | ValueError | OverflowError):
        log.warning("claim_unstorable", uid=request.uid, exc_info=error)
        return _refused(request, InvalidInput({"spec": ["A value is beyond what can be stored."]}))
    log.error("claim_failed", uid=request.uid, exc_info=error)
    return _refused(request, NotNow("The hub could not take it. It is tried again; tell an administrator if it stays."))


def _message(error: EgsError) -> str:
    """Names fields as the object does."""
    if not isinstance(error, InvalidInput):
        return error.detail
    errors: dict[str, list[str]] = error.extra["errors"]
    return " ".join(f"{_object_field(name)}: {' '.join(texts)}" for name, texts in errors.items())


def _object_field(name: str) -> str:
    first, *rest = name.split("_")
    return OBJECT_FIELDS.get(name) or first + "".join(word.capitalize() for word in rest)
