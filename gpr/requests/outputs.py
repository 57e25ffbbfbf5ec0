"""Serializes GPRs, and loads the data of a page of them once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.models import User
from core.rest.nested import nested
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.sealed import SealedId
from gpr.evictions.failed_jobs import failed_jobs_of
from gpr.evictions.services import WHY, notices_of
from gpr.followers.selectors import predecessors_of
from gpr.idle.selectors import Idleness, idleness_of
from gpr.models import ClusterRequestRecord, EndReason, EvictionVictim, Gpr, GprState, VictimKind
from gpr.promises.forecasts import BOOKED, LEARNED, NO_HISTORY
from gpr.queue.explanations import VisibleExplanation
from gpr.queue.outputs import POSITION_HELP, PROMISED_HELP, ExplanationSerializer
from gpr.queue.status import queue_statuses
from gpr.quotas.borrowing import borrowers_among
from gpr.replacement.selectors import ReplacementOutcome, replacements_of
from gpr.requests.estimates import NODES, ORDER, RECLAIM, Estimate
from gpr.requests.selectors import names_visible_to
from inventory.check_api import CheckResultSerializer
from inventory.models import PHASES, Cluster, Reservation, StepResult, SupplyOrder
from inventory.rows import gpus_by_reservation
from planner.causes import Cause
from protocol.nodes.steps import Milestone

BORROWS_HELP = "Whether it uses, or will use, GPUs beyond its project's guarantee. It may then be evicted after notice."
AT_RISK_HELP = (
    "Why it is unknown at present whether the promise can be kept; else null. While the agent of its cluster is silent, the promise and "
    "its place stay as they are, even if the promised time has passed."
)
PREDECESSOR_HELP = "The request that has to end before it starts, by name. Null without one."
FAILED_JOBS_HELP = (
    "Jobs (namespace/name) that failed after its nodes were taken back, if it waits again and no GPU pod of its workspace waits. Start "
    "them again, or cancel the request."
)
DRAIN_HELP = "How long its pods may stay after its end; null while it has no cluster."
CAUSES = [(cause.value, cause.value) for cause in Cause]


@dataclass(frozen=True, slots=True)
class AssignedNode:
    held: Reservation
    gpus: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GprFacts:
    """Holds what is told of a GPR beyond its row, limited to what the reader may see."""

    position: int | None
    explanation: VisibleExplanation | None
    after: str | None
    after_id: UUID | None
    nodes: Sequence[AssignedNode]
    time_left_s: float | None
    notice: EvictionVictim | None
    failed_jobs: Sequence[str]
    borrows: bool
    origin: ClusterRequestRecord | None
    idle: Idleness | None


def facts_add(gprs: Sequence[Any], *, actor: User, now: datetime) -> None:
    """Loads `facts` of all of them. They come from `with_nodes`."""
    statuses, predecessors = queue_statuses(gprs, actor=actor, now=now), predecessors_of(gprs, actor=actor)
    notices, failed_jobs, borrowers = notices_of(gprs), failed_jobs_of(gprs), borrowers_among(gprs, now=now)
    gpus = gpus_by_reservation([row.pk for gpr in gprs for row in gpr.held_now])
    for gpr in gprs:
        status, before = statuses[gpr.pk], predecessors.get(gpr.pk)
        gpr.facts = GprFacts(
            position=status.position,
            explanation=status.explanation,
            after=before.name if before else None,
            after_id=before.id if before else None,
            nodes=[AssignedNode(row, gpus.get(row.pk, ())) for row in gpr.held_now],
            time_left_s=gpr.time_left_s(now),
            notice=notices.get(gpr.pk),
            failed_jobs=failed_jobs.get(gpr.pk, ()),
            borrows=gpr.pk in borrowers,
            origin=getattr(gpr, "cluster_request", None),
            idle=idleness_of(gpr),
        )


class WaitSerializer(OutputSerializer[Any]):
    start_at = serializers.DateTimeField(help_text="The planned start in the present queue.")
    p50_at = serializers.DateTimeField()
    p90_at = serializers.DateTimeField()
    basis = serializers.CharField()


class EvictionNoticeSerializer(OutputSerializer[EvictionVictim]):
    ends_at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=VictimKind.choices)
    why = serializers.SerializerMethodField(help_text="A clause, for use in a sentence.")
    restart_at = serializers.DateTimeField(
        allow_null=True, help_text="When its remaining time would start, by the last plan. Null: never, or not known yet."
    )

    def get_why(self, row: EvictionVictim) -> str:
        return WHY[VictimKind(row.kind)]


class IdlenessSerializer(OutputSerializer[Idleness]):
    since_at = serializers.DateTimeField(help_text="Since then its GPUs have done nothing, or somebody kept it then.")
    timeout_s = serializers.IntegerField()
    ends_at = serializers.DateTimeField(help_text="It is released some minutes later, unless a GPU works or somebody keeps it.")


class AssignedNodeSerializer(OutputSerializer[AssignedNode]):
    node_id = serializers.UUIDField(source="held.node_id")
    node = serializers.CharField(source="held.node.name")
    gpus = serializers.ListField(child=serializers.CharField())
    phase = serializers.ChoiceField(source="held.phase", choices=PHASES)
    failure = serializers.CharField(
        source="held.failure", help_text="Why its agent cannot continue, or what failed; empty if there is no problem."
    )
    is_spare = serializers.BooleanField(source="held.is_coming", help_text="Whether it is entering in order to replace a failing node.")
    failing_at = serializers.DateTimeField(
        source="held.failing_at", allow_null=True, help_text="When the node was found to fail; see `replacements`."
    )


class OriginSerializer(OutputSerializer[ClusterRequestRecord]):
    cluster = serializers.CharField(source="cluster.name")
    namespace = serializers.CharField()
    name = serializers.CharField()
    requester = serializers.CharField(help_text="The Kubernetes user who created the object; empty if unknown.")
    is_auto = serializers.BooleanField(help_text="Whether the agent created the object for waiting pods.")


class DrainSerializer(OutputSerializer[Cluster]):
    """Shows the drain settings of the cluster; see `clusters/`."""

    grace_s = serializers.IntegerField(source="drain_grace_s", help_text="How long a disruption budget may keep a pod.")
    force_after_s = serializers.IntegerField(source="drain_force_after_s", help_text="How long a pod has to stop before it is killed.")


class GprSerializer(ModelOutputSerializer[Gpr]):
    clusters = serializers.ListField(
        source="named_clusters",
        child=serializers.CharField(),
        read_only=True,
        help_text="The clusters where it may run. Empty: all clusters of the slice.",
    )
    after = serializers.CharField(source="facts.after", allow_null=True, read_only=True, help_text=PREDECESSOR_HELP)
    after_id = serializers.UUIDField(
        source="facts.after_id", allow_null=True, read_only=True, help_text="Null without one, or if the reader may not see it."
    )
    cluster = serializers.CharField(allow_null=True, read_only=True, help_text="The cluster of its nodes.")
    model = serializers.DictField()
    state = serializers.ChoiceField(choices=GprState.choices)
    end_reason = serializers.SerializerMethodField()
    approval_reasons = serializers.ListField(child=serializers.CharField())
    position = serializers.IntegerField(source="facts.position", allow_null=True, read_only=True, help_text=POSITION_HELP)
    promised_start_at = serializers.DateTimeField(
        source="current_promise.promised_start_at", default=None, allow_null=True, read_only=True, help_text=PROMISED_HELP
    )
    at_risk = serializers.SerializerMethodField(help_text=AT_RISK_HELP)
    estimate = serializers.SerializerMethodField()
    explanation = ExplanationSerializer(source="facts.explanation", allow_null=True, read_only=True)
    nodes_assigned = AssignedNodeSerializer(source="facts.nodes", many=True, read_only=True, help_text="The nodes that it holds now.")
    drain = DrainSerializer(source="cluster", allow_null=True, read_only=True, help_text=DRAIN_HELP)
    time_left_s = serializers.FloatField(
        source="facts.time_left_s", allow_null=True, read_only=True, help_text="Seconds until the end of its present window."
    )
    eviction_notice = EvictionNoticeSerializer(
        source="facts.notice", allow_null=True, read_only=True, help_text="The notice of its eviction, and when it would run again."
    )
    failed_jobs = serializers.ListField(
        source="facts.failed_jobs", child=serializers.CharField(), read_only=True, help_text=FAILED_JOBS_HELP
    )
    borrows = serializers.BooleanField(source="facts.borrows", read_only=True, help_text=BORROWS_HELP)
    template = serializers.CharField(source="template.name", default=None, allow_null=True, help_text="The template that was used.")
    origin = OriginSerializer(
        source="facts.origin",
        allow_null=True,
        read_only=True,
        help_text="The Kubernetes object that it was created from; null without one.",
    )
    idle_timeout_s = serializers.IntegerField(allow_null=True, help_text="The requested value. 0: never; null: the policy's.")
    idle = IdlenessSerializer(
        source="facts.idle",
        allow_null=True,
        read_only=True,
        help_text="Null: its GPUs work or are not measured, or it has no idle time-out.",
    )
    remaining_s = serializers.IntegerField(help_text="The part of its duration that it has not run; it is queued again for this time.")

    class Meta:
        model = Gpr
        fields = ["id", "name", "slice", "slice_id", "owner", "owner_id", "shape", "min_gpu_memory_gib", "nodes", "gpus_per_node"]
        fields += ["duration_s", "priority", "clusters", "earliest_start_at", "after", "after_id", "after_condition"]
        fields += ["is_booking", "node_type", "rdma", "within", "idle_timeout_s", "evictable", "may_evict", "requeue_on_failure"]
        fields += ["run_checks", "model", "state", "end_reason", "version", "approval_reasons", "decide_by_at", "policy_version"]
        fields += ["position", "promised_start_at", "at_risk", "estimate", "explanation", "cluster", "cluster_id", "nodes_assigned"]
        fields += ["created_at", "queued_at", "provisioning_at", "active_at", "ends_at", "ended_at", "time_left_s", "remaining_s"]
        fields += ["idle", "drain", "borrows", "eviction_notice", "failed_jobs", "template", "template_id", "origin"]

    @extend_schema_field(serializers.ChoiceField(choices=EndReason.choices, allow_null=True))
    def get_end_reason(self, gpr: Gpr) -> str | None:
        return gpr.end_reason or None

    @extend_schema_field(serializers.ChoiceField(choices=CAUSES, allow_null=True))
    def get_at_risk(self, gpr: Gpr) -> str | None:
        promise = getattr(gpr, "promise", None)
        return (promise.risk or None) if promise else None

    @extend_schema_field(WaitSerializer(allow_null=True))
    def get_estimate(self, gpr: Gpr) -> Any:
        promise = gpr.current_promise
        if gpr.state != GprState.QUEUED or gpr.planned_start_at is None or promise is None:
            return None
        wait = {
            "start_at": gpr.planned_start_at,
            "p50_at": promise.p50_at or gpr.planned_start_at,
            "p90_at": promise.p90_at or max(promise.promised_start_at, gpr.planned_start_at),
            "basis": BOOKED if gpr.is_booking else LEARNED if promise.p90_at else NO_HISTORY,
        }
        return nested(WaitSerializer, wait)


class MoveSerializer(OutputSerializer[Any]):
    at = serializers.DateTimeField()
    old_start_at = serializers.DateTimeField()
    new_start_at = serializers.DateTimeField()
    cause = serializers.ChoiceField(choices=CAUSES)


class PromiseMoveSerializer(MoveSerializer):
    cause_id = serializers.CharField(
        allow_null=True, help_text="The GPR, node, maintenance or order that caused it, if the reader may see it."
    )


class ReplacementSerializer(OutputSerializer[Any]):
    node_id = serializers.UUIDField()
    node = serializers.CharField()
    failing_at = serializers.DateTimeField()
    why = serializers.CharField(help_text="Why the node failed, or why an administrator replaces it.")
    outcome = serializers.ChoiceField(choices=ReplacementOutcome.choices)
    spare_id = serializers.UUIDField(allow_null=True)
    spare = serializers.CharField(help_text="Name of the node; empty without a spare.")
    since_at = serializers.DateTimeField(allow_null=True, help_text="When the spare began to enter.")
    joined_at = serializers.DateTimeField(allow_null=True, help_text="When the spare replaced the node.")
    why_not = serializers.CharField(help_text="Why there is no spare, or why it did not replace the node.")


class GprDetailSerializer(GprSerializer):
    promise_moves = serializers.SerializerMethodField(help_text="All changes of its promised start, with their causes.")
    replacements = serializers.SerializerMethodField(help_text="Nodes that failed while it ran, and their spares. Its end does not change.")

    class Meta(GprSerializer.Meta):
        fields = [*GprSerializer.Meta.fields, "promise_moves", "replacements"]

    @extend_schema_field(ReplacementSerializer(many=True))
    def get_replacements(self, gpr: Gpr) -> Any:
        return [nested(ReplacementSerializer, row) for row in replacements_of(gpr)]

    @extend_schema_field(PromiseMoveSerializer(many=True))
    def get_promise_moves(self, gpr: Gpr) -> Any:
        moves = list(gpr.promise_moves.all())
        # Nodes and maintenances are visible: the slot was in a cluster that this slice may use. GPRs and orders may belong to others.
        of_gprs = [move for move in moves if move.cause not in {Cause.NODE_FAILURE, Cause.MAINTENANCE}]
        orders = [move.cause_id for move in of_gprs if move.cause == Cause.SUPPLY]
        known = {*names_visible_to(self.context["actor"], {move.cause_id for move in of_gprs}), *_own_orders(gpr, orders)}
        for move in of_gprs:
            if move.cause_id not in known:
                move.cause_id = None  # type: ignore[assignment]
        return [nested(PromiseMoveSerializer, move) for move in moves]


def _own_orders(gpr: Gpr, ids: Sequence[str]) -> set[str]:
    return {str(pk) for pk in SupplyOrder.objects.filter(gpr=gpr, pk__in=ids).values_list("pk", flat=True)} if ids else set()


class StepSerializer(ModelOutputSerializer[StepResult]):
    id = SealedId()
    name = serializers.CharField(source="step")
    node_id = serializers.UUIDField(source="reservation.node_id")
    node = serializers.CharField(source="reservation.node.name")
    run = serializers.IntegerField(source="reservation.run", help_text="The number of the run: 1 for the first start of the GPR.")
    stage = serializers.SerializerMethodField()
    gpr_id = serializers.UUIDField(source="reservation.gpr_id")
    evidence = serializers.DictField()
    results = CheckResultSerializer(many=True)
    skipped_why = serializers.CharField(help_text="Why it passed without a measurement; else empty.")

    class Meta:
        model = StepResult
        fields = ["id", "name", "step", "stage", "gpr_id", "node_id", "node", "run", "attempt", "outcome", "skipped_why"]
        fields += ["started_at", "ended_at", "blames_node", "log", "evidence", "results"]

    @extend_schema_field(serializers.ChoiceField(choices=["entry", "exit"]))
    def get_stage(self, row: StepResult) -> str:
        entry_steps = row.reservation.entry_steps if row.reservation is not None else []
        return "entry" if row.step in {Milestone.ISOLATE, *entry_steps, Milestone.OPEN} else "exit"


class OrderSerializer(OutputSerializer[Any]):
    name = serializers.CharField(help_text="Name of the supply.")
    lead_time_s = serializers.IntegerField(help_text="Seconds from the order to the arrival of the node.")


class AlternativeSerializer(OutputSerializer[Any]):
    differs = serializers.ListField(
        child=serializers.ChoiceField(choices=["nodes", "gpus_per_node", "duration_s", "shape", "clusters", "node_type"]),
        help_text="The fields that differ from the request. With these values it gets this start.",
    )
    cluster = serializers.CharField()
    shape = serializers.CharField(help_text="The requested shape, or another with at least as much memory.")
    node_type = serializers.CharField()
    nodes = serializers.IntegerField()
    gpus_per_node = serializers.IntegerField(allow_null=True, help_text="Null: all GPUs of each node.")
    duration_s = serializers.IntegerField()
    start_at = serializers.DateTimeField()
    wait_s = serializers.IntegerField()
    sooner_s = serializers.IntegerField(help_text="How many seconds it starts before this offer.")
    order = OrderSerializer(allow_null=True, help_text="The supply that its nodes would be ordered from; null: no order is needed.")


class OfferSerializer(OutputSerializer[Estimate]):
    cluster = serializers.CharField()
    shape = serializers.CharField()
    node_type = serializers.CharField()
    supply = serializers.ChoiceField(
        choices=[NODES, RECLAIM, ORDER],
        help_text="`reclaim`: it starts after other requests are evicted. `order`: it starts on ordered nodes.",
    )
    order = OrderSerializer(allow_null=True, help_text="The supply that its nodes are ordered from; null: no order is needed.")
    borrows = serializers.BooleanField(help_text=BORROWS_HELP)
    start_at = serializers.DateTimeField()
    wait_s = serializers.IntegerField()
    promised_start_at = serializers.DateTimeField()
    p50_s = serializers.IntegerField(help_text="Seconds of wait.")
    p90_s = serializers.IntegerField(help_text="Seconds of wait.")
    basis = serializers.CharField()
    explanation = ExplanationSerializer()
    alternatives = AlternativeSerializer(
        many=True,
        help_text="At most five changed requests that would start sooner. A smaller one asks for the most that fits at once or in half the "
        "wait. If only evictions or ordered nodes make it possible, one medium size is tried, so others may exist.",
    )


class BulkVerdictSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField()
    is_done = serializers.BooleanField()
    code = serializers.CharField(help_text="The code of the error; empty: it is done.")
    detail = serializers.CharField()


class BulkVerdictsSerializer(OutputSerializer[Any]):
    results = BulkVerdictSerializer(many=True)


class OffersSerializer(OutputSerializer[Any]):
    offers = OfferSerializer(many=True)
    approval_reasons = serializers.ListField(
        child=serializers.CharField(),
        help_text="The policy rules that it exceeds. It would first wait for approval, and the offers count from then.",
    )
