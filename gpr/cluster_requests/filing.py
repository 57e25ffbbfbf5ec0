"""Files GPRs for new objects, in the name of the person who made them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q

from accounts.models import User
from core.errors import Conflict, EgsError, InvalidInput, NotAllowed, NotFound
from gpr.allocation.stored_plan import plan_lock
from gpr.cluster_requests.answers import (
    NoOwner,
    NotNow,
    OtherWorkspace,
    TemplateNotFound,
    answer_of,
    failed,
    namespace_of,
    object_event,
    ready_slice,
    refused,
)
from gpr.jobs.manifest_text import objects_of_text
from gpr.jobs.services import job_add, spec_for_job
from gpr.jobs.spec import JobSpec
from gpr.models import ENDED, ClusterRequestRecord, Gpr, GprTemplate
from gpr.requests.inputs import GprCreate, spec_of_create
from gpr.requests.selectors import templates_of
from gpr.requests.services import gprs_submit
from gpr.requests.spec import NAME_MAX_CHARS, GprSpec
from gpr.templates.automatic import DURATION_FIELDS, spec_of_template
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal.services import events_record
from protocol.cluster_names import ACCOUNTS, AGENT, NAMESPACE
from protocol.decoding import convert
from protocol.tenancy.cluster_requests import (
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestSpec,
    JobAsk,
    ModelDescription,
)
from slices.models import KubeconfigState, Slice
from slices.selectors import first_owner, kubeconfig_behind, slices_visible_to_members
from slices.service_accounts.services import PREFIX, service_account_met

AGENT_USER = f"{PREFIX}{NAMESPACE}:{AGENT}"  # makes objects for waiting pods
# Request field names that differ from those of the protocol.
REQUEST_FIELDS = {name: field for field, name in DURATION_FIELDS.items()}
NODES_DEFAULT = 1
NOT_ASKED = frozenset({"workspace", "early_release", "job"})


class _Filing(NamedTuple):
    """`request`: with the fields of the template that it names."""

    request: ClusterRequest
    actor: User  # for whom it is filed
    spec: GprSpec
    what: JobSpec | None  # what is to run there


def requests_file(cluster: Cluster, requests: Sequence[ClusterRequest], now: datetime) -> list[ClusterRequestAnswer]:
    """Files all in one transaction; after an unexpected error, each in its own."""
    try:
        return _file(cluster, requests, now)
    except (OperationalError, InterfaceError):
        raise  # the database is away
    except Exception as error:
        if len(requests) == 1:
            return [failed(requests[0], error)]
        return [answer for request in requests for answer in requests_file(cluster, [request], now)]


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
                answers[request.uid] = answer_of(filed[request.uid], request)
                continue
            ask = _ask_of(cluster, request, now)
        except EgsError as error:
            answers[request.uid] = refused(request, error)
            continue
        asks[ask.actor.pk].append(ask)
    for asked in asks.values():
        made = gprs_submit(actor=asked[0].actor, specs=[ask.spec for ask in asked], now=now, collect_errors=(EgsError,))
        for ask, gpr in zip(asked, made, strict=True):
            request = ask.request
            answers[request.uid] = _store(cluster, request, gpr, ask.what, now) if isinstance(gpr, Gpr) else refused(request, gpr)
    if asks:
        desired_set_changed([cluster.pk])
    return [answers[request.uid] for request in requests]


def _ask_of(cluster: Cluster, request: ClusterRequest, now: datetime) -> _Filing:
    """Raises EgsError."""
    slice_ = ready_slice(namespace_of(cluster, request.namespace), request.namespace)
    if request.spec.workspace not in {"", slice_.name}:
        other = request.spec.workspace
        raise OtherWorkspace(f"This namespace is not of workspace {other}. Leave the workspace out, or use a namespace of its own.")
    if request.spec.early_release:
        raise InvalidInput({"early_release": ["Nothing has been filed that could be released. Make a new object without it."]})
    actor = _owner_for(slice_, cluster, request, now)
    template = _template_of(slice_, cluster, request) if request.template else None
    if template is not None and not request.is_auto:
        request = with_defaults(request, spec_of_template(template.asked))
    spec = replace(spec_of_object(request.name, request.spec, slice_, cluster, actor), template=template)
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


def with_defaults(request: ClusterRequest, defaults: ClusterRequestSpec) -> ClusterRequest:
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


def spec_of_object(name: str, asked: ClusterRequestSpec, slice_: Slice, cluster: Cluster, actor: User) -> GprSpec:
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
    events_record([object_event("gpr.claimed", row, f"{gpr.name} was filed as {row.sentence}.", now, actor=gpr.owner)])
    if what is not None:
        job_add(gpr=gpr, what=what, actor=gpr.owner, now=now)
    return answer_of(row, request)
