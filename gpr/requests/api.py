"""Serves the REST endpoints of `gprs/` and `queue/`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from accounts.authentication import actor_of
from accounts.models import Scope
from accounts.permissions import ADMINS_ONLY, HasScope, has_scope
from accounts.policy import Verb, is_platform_admin
from accounts.rates import ask_count
from core.errors import EgsError, NotAllowed, StaleState
from core.rest.fields import COUNT, StrictSerializer, count_given
from core.rest.preconditions import refuse_stale
from core.rest.views import ApiViewSet
from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.followers.selectors import predecessor_for
from gpr.idle.services import gpr_keep
from gpr.models import AfterCondition, Gpr
from gpr.queue.decision_previews import Act, PossibleDecision
from gpr.queue.decisions import gpr_evict, gpr_set_priority
from gpr.queue.moves import gpr_move
from gpr.queue.outputs import DecisionPreviewSerializer, QueueRowSerializer
from gpr.queue.status import queue_statuses
from gpr.replacement.services import node_replace
from gpr.requests.editing import gpr_cancel, gpr_edit, granted_to, refuse_started, spec_of
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.estimates import gpr_estimate
from gpr.requests.filters import GprFilter
from gpr.requests.inputs import (
    VERSION_HELP,
    Bulk,
    BulkActs,
    Decision,
    DecisionQuestion,
    EvictionDecision,
    Extension,
    GprAsk,
    GprCreate,
    GprPatch,
    Move,
    NodeReplacement,
    PriorityChange,
    ReasonedDecision,
    Versioned,
    clusters_of,
    spec_of_create,
)
from gpr.requests.outputs import (
    BulkVerdictsSerializer,
    GprDetailSerializer,
    GprSerializer,
    OffersSerializer,
    StepSerializer,
    facts_add,
)
from gpr.requests.selectors import (
    LISTED,
    START_ORDER,
    as_filed,
    gpr_for,
    gprs_joined,
    gprs_visible_to,
    queue_visible_to,
    steps_of,
    steps_on,
    with_nodes,
)
from gpr.requests.services import gpr_submit
from gpr.requests.spec import GprSpec, approval_reasons
from inventory.models import StepResult
from inventory.selectors import node_known_to
from journal.refusals import error_record

DECISIONS = {"approve", "reject", "evict"}
DECISION_VERBS: dict[str, Verb] = {
    Act.APPROVE: Verb.APPROVE,
    Act.REJECT: Verb.APPROVE,
    Act.EVICT: Verb.DECIDE,
    Act.PRIORITY: Verb.CHANGE,
    Act.MOVE: Verb.CHANGE,
}
BULK: dict[BulkActs, tuple[Callable[..., object], Verb]] = {
    BulkActs.CANCEL: (gpr_cancel, Verb.CHANGE),
    BulkActs.RELEASE: (gpr_release, Verb.CHANGE),
    BulkActs.APPROVE: (gpr_approve, Verb.APPROVE),
    BulkActs.REJECT: (gpr_reject, Verb.APPROVE),
}
VERSION = OpenApiParameter("version", COUNT, OpenApiParameter.QUERY, description=VERSION_HELP)


class GprViewSet(ApiViewSet[Gpr]):
    queryset = Gpr.objects.none()
    serializer_class = GprDetailSerializer
    change_body = GprPatch
    filterset_class = GprFilter
    read_actions = ("estimate", "estimate_change", "preview")
    own_transactions = ("create",)  # the answer is made after it, since others wait for the plan meanwhile

    @property
    def write_scope(self) -> Scope:
        return Scope.WRITE if self.action in DECISIONS else Scope.GPR_WRITE

    admin_actions = ("priority", "move", "replace_node")

    @extend_schema(responses=GprSerializer(many=True))
    def list(self, request: Request) -> Response:
        rows = with_nodes(gprs_visible_to(actor_of(request))).only(*LISTED)
        gprs = self.paginate_queryset(self.filter_queryset(rows)) or []
        facts_add(gprs, actor=actor_of(request), now=self.now)
        return self.get_paginated_response(GprSerializer(gprs, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=GprCreate, responses={201: GprDetailSerializer})
    def create(self, request: Request) -> Response:
        """Create a request. It is QUEUED with a promised start, or PENDING_APPROVAL with the policy rules that it exceeds."""
        data, actor = self.body(GprCreate), actor_of(request)
        spec = spec_of_create(data, actor=actor)
        made = gpr_submit(actor=actor, spec=spec, now=self.now, remember=self.remember)
        return self._answer_of(as_filed(made, spec.clusters), status=status.HTTP_201_CREATED)

    @extend_schema(request=GprAsk, responses={200: OffersSerializer})
    @action(detail=False, methods=["post"])
    def estimate(self, request: Request) -> Response:
        """Estimate the start of a request: one offer for each cluster and shape, the soonest first. Nothing is written."""
        spec = spec_of_create(self.body(GprAsk), actor=actor_of(request))
        offers = gpr_estimate(actor=actor_of(request), spec=spec, now=self.now)
        return Response(OffersSerializer({"offers": offers, "approval_reasons": approval_reasons(spec, now=self.now)}).data)

    @extend_schema(request=GprPatch)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a waiting request. It keeps its age; a change of what it asks for may change its promised start."""
        gpr, spec = self._changed(pk)
        gpr_edit(gpr=gpr, actor=actor_of(request), spec=spec, now=self.now)
        return self._answer(pk)

    @extend_schema(request=GprPatch, responses={200: OffersSerializer})
    @action(detail=True, methods=["post"], url_path="estimate-change")
    def estimate_change(self, request: Request, pk: str) -> Response:
        """Estimate the start of a waiting request after such a change, the soonest first. Nothing is written."""
        gpr, spec = self._changed(pk)
        refuse_started(gpr)
        offers = gpr_estimate(actor=actor_of(request), spec=spec, now=self.now, edited=gpr)
        reasons = approval_reasons(spec, now=self.now, granted=granted_to(gpr))
        return Response(OffersSerializer({"offers": offers, "approval_reasons": reasons}).data)

    def _changed(self, pk: str) -> tuple[Gpr, GprSpec]:
        data, actor = self.body(GprPatch), actor_of(self.request)
        gpr = self._gpr(pk, data.pop("version", None))
        if "clusters" in data:
            data["clusters"] = clusters_of(data["clusters"], actor=actor)
        if "after" in data:
            data["after"] = predecessor_for(actor, data["after"], slice_=gpr.slice) if data["after"] else None
            if data["after"] is None:
                data.setdefault("after_condition", AfterCondition.ANY)
        return gpr, spec_of(gpr, **data)

    @extend_schema(parameters=[VERSION])
    def destroy(self, request: Request, pk: str) -> Response:
        """Cancel a waiting request. It stays in the list as CANCELED."""
        version = count_given(request.query_params, "version")
        self._change(pk, version, partial(gpr_cancel, actor=actor_of(request), now=self.now))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=Versioned)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Give the nodes back before the end."""
        return self._do(pk, Versioned, gpr_release)

    @extend_schema(request=Versioned)
    @action(detail=True, methods=["post"])
    def keep(self, request: Request, pk: str) -> Response:
        """Keep an idle box: its idle time-out begins anew. The policy of the slice may leave that to administrators."""
        return self._do(pk, Versioned, gpr_keep)

    @extend_schema(request=Extension)
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str) -> Response:
        """Extend a running request, if this moves no promise.

        If it would harm other requests, the answer is 409 `conflict` with two more members: `max_ends_at`, the latest possible end (the
        present end if no extension is possible), and `next_id`, the request that needs the nodes next. `next_id` is null if the reader
        may not see that request, or if a maintenance is next.
        """
        return self._do(pk, Extension, gpr_extend)

    @extend_schema(request=Decision)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        return self._do(pk, Decision, gpr_approve, Verb.APPROVE)

    @extend_schema(request=ReasonedDecision)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        return self._do(pk, ReasonedDecision, gpr_reject, Verb.APPROVE)

    @extend_schema(request=EvictionDecision)
    @action(detail=True, methods=["post"])
    def evict(self, request: Request, pk: str) -> Response:
        """Take the nodes back now. If the request is queued again, it keeps its age, and it may get free nodes at once."""
        return self._do(pk, EvictionDecision, gpr_evict, Verb.DECIDE)

    @extend_schema(request=DecisionQuestion, responses={200: DecisionPreviewSerializer})
    @action(detail=True, methods=["post"])
    def preview(self, request: Request, pk: str) -> Response:
        """Tell what a decision would do, to this request and to others. Nothing is written; what the act refuses, this refuses."""
        actor, decision = actor_of(request), PossibleDecision(**self.body(DecisionQuestion))
        gpr = gpr_for(actor, pk, verb=DECISION_VERBS[decision.act])
        is_for_admin = is_platform_admin(actor)
        if decision.act in self.admin_actions and not is_for_admin:
            raise NotAllowed(ADMINS_ONLY)
        ask_count(str(gpr.slice_id), name=gpr.slice.name)
        made = decision.preview(gpr, actor=actor, now=self.now)
        context = {"is_for_admin": is_for_admin, "sentence": decision.sentence(made, now=self.now)}
        return Response(DecisionPreviewSerializer(made, context=context).data)

    @extend_schema(request=Bulk, responses={200: BulkVerdictsSerializer})
    @action(detail=False, methods=["post"])
    def bulk(self, request: Request) -> Response:
        """Cancel, release, approve or reject many requests. Each gets its own verdict; one that is refused stops none of the others."""
        data = self.body(Bulk)
        if BULK[data["act"]][1] == Verb.APPROVE and not has_scope(request, Scope.WRITE):
            raise NotAllowed(HasScope.message)
        reason = {"why": data["why"]} if "why" in data else {}
        verdicts = [self._verdict(BulkActs(data["act"]), str(pk), reason) for pk in data["ids"]]
        return Response(BulkVerdictsSerializer({"results": verdicts}).data)

    @extend_schema(request=PriorityChange)
    @action(detail=True, methods=["post"])
    def priority(self, request: Request, pk: str) -> Response:
        """Change the priority. This moves no promise."""
        return self._do(pk, PriorityChange, gpr_set_priority)

    @extend_schema(request=Move)
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: str) -> Response:
        """Move the request up or down among those of its priority. Promises that have to move get the cause `admin`."""
        return self._do(pk, Move, gpr_move)

    @extend_schema(request=NodeReplacement)
    @action(detail=True, methods=["post"], url_path="replace-node")
    def replace_node(self, request: Request, pk: str) -> Response:
        """Replace a node of a running request and set the old node aside. Its end stays, and no promise moves.

        If there is no spare, the answer is 409 with the reason, and nothing changes.
        """
        data = self.body(NodeReplacement)
        node = node_known_to(actor_of(request), data.pop("node"))
        gpr = self._gpr(pk, data.pop("version", None))
        node_replace(gpr=gpr, node_id=node.pk, actor=actor_of(request), why=data["why"], now=self.now)
        return self._answer(pk)

    def _verdict(self, act: BulkActs, pk: str, reason: dict[str, str]) -> dict[str, Any]:
        service, verb = BULK[act]
        try:
            with transaction.atomic():
                self._change(pk, None, partial(service, actor=actor_of(self.request), now=self.now, **reason), verb)
        except EgsError as error:
            error_record(error, actor=actor_of(self.request), path=self.request.path, now=self.now)
            return {"id": pk, "is_done": False, "code": error.code, "detail": error.detail}
        return {"id": pk, "is_done": True, "code": "", "detail": ""}

    def _do(self, pk: str, kind: type[StrictSerializer], service: Callable[..., None], verb: Verb = Verb.CHANGE) -> Response:
        """Calls the service with the fields of the body as keyword arguments."""
        data = self.body(kind)
        version = data.pop("version", None)
        self._change(pk, version, partial(service, actor=actor_of(self.request), now=self.now, **data), verb)
        # A deputy sees no more of it than this answer.
        return self._answer(pk, rows=gprs_joined() if verb == Verb.APPROVE else None)

    def _change(self, pk: str, version: int | None, service: Callable[..., object], verb: Verb = Verb.CHANGE) -> None:
        """A caller who names no version means the request as it stands, even if it changes between our reading and writing."""
        try:
            service(gpr=self._gpr(pk, version, verb))
        except StaleState:
            if version is not None or "If-Match" in self.request.headers:
                raise
            service(gpr=self._gpr(pk, None, verb))

    def heed_if_match(self, body: type[Serializer[Any]]) -> None:
        """The services compare the version when they write."""

    def _gpr(self, pk: str, version: int | None, verb: Verb = Verb.CHANGE) -> Gpr:
        gpr = gpr_for(actor_of(self.request), pk, verb=verb, version=version)
        refuse_stale(self.request, f'"{gpr.version}"')
        return gpr

    def _answer(self, pk: str, *, rows: QuerySet[Gpr] | None = None) -> Response:
        actor = actor_of(self.request)
        return self._answer_of(gpr_for(actor, pk, rows=with_nodes(gprs_visible_to(actor) if rows is None else rows)))

    def _answer_of(self, gpr: Gpr, **kwargs: Any) -> Response:
        actor = actor_of(self.request)
        facts_add([gpr], actor=actor, now=self.now)
        return Response(GprDetailSerializer(gpr, context={"actor": actor}).data, **kwargs)


class GprStepViewSet(ApiViewSet[StepResult]):
    """List all attempts at entry and exit steps on each node, with their logs, the oldest first."""

    queryset = StepResult.objects.none()
    serializer_class = StepSerializer
    ordering = ("started_at", "id")

    def list(self, request: Request, gpr_pk: str) -> Response:
        gpr = gpr_for(actor_of(request), gpr_pk)
        steps = self.paginate_queryset(self.filter_queryset(steps_of(gpr)))
        return self.get_paginated_response(StepSerializer(steps, many=True).data)


class NodeStepViewSet(ApiViewSet[StepResult]):
    """List all attempts at entry and exit steps on a node, of every request, the newest first. Administrators alone call it."""

    queryset = StepResult.objects.none()
    serializer_class = StepSerializer
    ordering = ("-started_at", "-id")
    admin_actions = ("list",)

    def list(self, request: Request, node_ref: str) -> Response:
        node = node_known_to(actor_of(request), node_ref)
        steps = self.paginate_queryset(self.filter_queryset(steps_on(node)))
        return self.get_paginated_response(StepSerializer(steps, many=True).data)


class QueueViewSet(ApiViewSet[Gpr]):
    """List waiting requests by planned start; those without one are last. A member sees his slices' rows; the position counts all."""

    queryset = Gpr.objects.none()
    serializer_class = QueueRowSerializer
    ordering = START_ORDER

    def list(self, request: Request) -> Response:
        gprs: Any = self.paginate_queryset(self.filter_queryset(queue_visible_to(actor_of(request)))) or []
        statuses = queue_statuses(gprs, actor=actor_of(request), now=self.now)
        for gpr in gprs:
            gpr.status = statuses[gpr.pk]
        return self.get_paginated_response(QueueRowSerializer(gprs, many=True).data)
