"""Serializers of GPRs, and the data that a page of them loads once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.models import User
from core.rest.sealed import SealedId
from gpr.evictions.failed_jobs import failed_jobs_of
from gpr.evictions.services import WHY, notices_of
from gpr.models import Claim, EndReason, EvictionVictim, Gpr, GprState, VictimKind
from gpr.promises.forecasts import BOOKED, LEARNED, NO_HISTORY
from gpr.queue.explanations import VisibleExplanation
from gpr.queue.status import QueueStatus, queue_statuses
from gpr.quotas.borrowing import borrowers_among
from gpr.replacement.selectors import ReplacementOutcome, replacements_of
from gpr.requests.estimates import NODES, ORDER, RECLAIM, Estimate
from gpr.requests.selectors import names_visible_to
from inventory.check_api import CheckResultSerializer
from inventory.models import PHASES, Cluster, Reservation, StepResult, SupplyOrder
from planner.plan import Cause, Reason
from protocol.steps import Milestone

BORROWS_HELP = "It runs, or is to run, beyond what its project is guaranteed: it may be evicted, after notice."
AT_RISK_HELP = (
    "Why nobody knows at present whether the promise can be kept; null where that is known. Its cluster is not heard: its place is kept, "
    "and the promise stands as it was, even if its time has passed, until the cluster is heard again."
)
POSITION_HELP = "By planned start, among all that wait: 1 starts first. Null where it has no planned start."
PROMISED_HELP = "It starts no later, but for recorded causes. Null while it can never start, or the time that it was booked for is taken."

FAILED_JOBS_HELP = (
    "Jobs (namespace/name) that ran in it and have failed since its nodes were taken back, while it waits again and no GPU pod of its "
    "workspace waits: cancel it, or start them again."
)
DRAIN_HELP = "How long its pods may hold the box beyond its end; null while it has no cluster."

CAUSES = [(cause.value, cause.value) for cause in Cause]


@dataclass(frozen=True, slots=True)
class GprPage:
    """What the reader may see of these GPRs beyond their rows."""

    now: datetime
    statuses: Mapping[UUID, QueueStatus]
    notices: Mapping[UUID, EvictionVictim]
    borrowers: Set[UUID]
    failed_jobs: Mapping[UUID, Sequence[str]]

    @classmethod
    def build(cls, gprs: Sequence[Gpr], *, actor: User, now: datetime) -> GprPage:
        return cls(now, queue_statuses(gprs, actor=actor, now=now), notices_of(gprs), borrowers_among(gprs, now=now), failed_jobs_of(gprs))


class ToldBlockerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(allow_null=True, help_text="Null for all strangers together.")
    name = serializers.CharField()
    is_running = serializers.BooleanField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    nodes = serializers.IntegerField(allow_null=True, help_text="That it holds, or waits for. Null for strangers.")
    gpus_per_node = serializers.IntegerField(allow_null=True, help_text="Null, where `nodes` is not: all of each node.")


class ToldSerializer(serializers.Serializer[VisibleExplanation]):
    reason = serializers.ChoiceField(choices=[(reason.value, reason.value) for reason in Reason])
    sentence = serializers.CharField()
    blockers = ToldBlockerSerializer(many=True)
    ahead_count = serializers.IntegerField(help_text="How many start before it, of whomever.")


class WaitSerializer(serializers.Serializer[Any]):
    start_at = serializers.DateTimeField(help_text="By the plan as the queue stands.")
    p50_at = serializers.DateTimeField()
    p90_at = serializers.DateTimeField()
    basis = serializers.CharField()


class EvictionNoticeSerializer(serializers.Serializer[EvictionVictim]):
    ends_at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=VictimKind.choices)
    why = serializers.SerializerMethodField(help_text="As part of a sentence.")
    restart_at = serializers.DateTimeField(
        allow_null=True, help_text="When the time that is left would start, by the last plan; null: never, or it is not known yet."
    )

    def get_why(self, row: EvictionVictim) -> str:
        return WHY[VictimKind(row.kind)]


class AssignedNodeSerializer(serializers.Serializer[Any]):
    node_id = serializers.UUIDField()
    node = serializers.CharField(source="node.name")
    gpus = serializers.SerializerMethodField()
    phase = serializers.ChoiceField(choices=PHASES)
    failure = serializers.CharField(help_text="Why its agent does not go on, or what failed; empty while all is well.")
    is_spare = serializers.BooleanField(source="is_coming", help_text="On its way in, to take the place of a node that fails.")
    failing_at = serializers.DateTimeField(allow_null=True, help_text="Since when it is to be replaced: see `replacements`.")

    def get_gpus(self, row: Reservation) -> list[str]:
        return sorted(reserved.gpu.uuid for reserved in row.gpus.all())


class OriginSerializer(serializers.Serializer[Claim]):
    cluster = serializers.CharField(source="cluster.name")
    namespace = serializers.CharField()
    name = serializers.CharField()
    requester = serializers.CharField(help_text="Who made the object, by the word of the cluster; empty: not known.")
    is_auto = serializers.BooleanField(help_text="The agent made the object, for pods that wait.")


class DrainSerializer(serializers.Serializer[Cluster]):
    """A setting of the cluster, see `clusters/`."""

    grace_s = serializers.IntegerField(source="drain_grace_s", help_text="So long a disruption budget may hold up a pod.")
    force_after_s = serializers.IntegerField(
        source="drain_force_after_s", help_text="So long a pod has to stop, before it is ended by force."
    )


class GprSerializer(serializers.ModelSerializer[Gpr]):
    slice = serializers.CharField(source="slice.name")
    slice_id = serializers.UUIDField()
    owner = serializers.CharField(source="owner.name")
    owner_id = serializers.UUIDField()
    clusters = serializers.SerializerMethodField(help_text="Allowed ones; none means any of the slice.")
    cluster = serializers.SerializerMethodField(help_text="Where its nodes are.")
    cluster_id = serializers.UUIDField(allow_null=True)
    model = serializers.DictField()
    state = serializers.ChoiceField(choices=GprState.choices)
    end_reason = serializers.SerializerMethodField()
    approval_reasons = serializers.ListField(child=serializers.CharField())
    position = serializers.SerializerMethodField(help_text=POSITION_HELP)
    promised_start_at = serializers.SerializerMethodField(help_text=PROMISED_HELP)
    at_risk = serializers.SerializerMethodField(help_text=AT_RISK_HELP)
    estimate = serializers.SerializerMethodField()
    explanation = serializers.SerializerMethodField()
    nodes_assigned = serializers.SerializerMethodField(help_text="Those that it holds now.")
    drain = serializers.SerializerMethodField(help_text=DRAIN_HELP)
    time_left_s = serializers.SerializerMethodField(help_text="Of the present window.")
    eviction_notice = serializers.SerializerMethodField(help_text="That it is to be evicted, while it is, and when it would go on.")
    failed_jobs = serializers.SerializerMethodField(help_text=FAILED_JOBS_HELP)
    borrows = serializers.SerializerMethodField(help_text=BORROWS_HELP)
    template = serializers.CharField(source="template.name", default=None, allow_null=True, help_text="What it was filed from.")
    template_id = serializers.UUIDField(allow_null=True)
    origin = serializers.SerializerMethodField(help_text="The object of a cluster as which it was filed; null: it was filed here.")
    idle_timeout_s = serializers.IntegerField(allow_null=True, help_text="As stored; nothing comes of it while EGS cannot see idle GPUs.")
    remaining_s = serializers.IntegerField(help_text="Of its duration, what it has not had: what it waits for when it is queued again.")

    class Meta:
        model = Gpr
        fields = ["id", "name", "slice", "slice_id", "owner", "owner_id", "shape", "min_gpu_memory_gib", "nodes", "gpus_per_node"]
        fields += ["duration_s", "priority", "clusters", "earliest_start_at", "is_booking", "node_type", "rdma", "within", "idle_timeout_s"]
        fields += ["evictable"]
        fields += ["may_evict", "requeue_on_failure", "run_checks", "model", "state", "end_reason", "version", "approval_reasons"]
        fields += ["position", "promised_start_at", "at_risk", "estimate", "explanation", "cluster", "cluster_id", "nodes_assigned"]
        fields += ["created_at", "queued_at", "provisioning_at", "active_at", "ends_at", "ended_at", "time_left_s", "remaining_s"]
        fields += ["drain", "borrows", "eviction_notice", "failed_jobs", "template", "template_id", "origin"]
        read_only_fields = fields

    @property
    def _page(self) -> GprPage:
        page: GprPage = self.context["page"]
        return page

    def get_clusters(self, gpr: Gpr) -> list[str]:
        return [cluster.name for cluster in gpr.clusters.all()]

    def get_cluster(self, gpr: Gpr) -> str | None:
        return gpr.cluster.name if gpr.cluster else None

    @extend_schema_field(DrainSerializer(allow_null=True))
    def get_drain(self, gpr: Gpr) -> Any:
        return DrainSerializer(gpr.cluster).data if gpr.cluster else None

    @extend_schema_field(serializers.ChoiceField(choices=EndReason.choices, allow_null=True))
    def get_end_reason(self, gpr: Gpr) -> str | None:
        return gpr.end_reason or None

    def get_position(self, gpr: Gpr) -> int | None:
        return self._page.statuses[gpr.pk].position

    def get_promised_start_at(self, gpr: Gpr) -> datetime | None:
        return promised_start_of(gpr)

    @extend_schema_field(serializers.ChoiceField(choices=CAUSES, allow_null=True))
    def get_at_risk(self, gpr: Gpr) -> str | None:
        promise = getattr(gpr, "promise", None)
        return (promise.risk or None) if promise else None

    @extend_schema_field(WaitSerializer(allow_null=True))
    def get_estimate(self, gpr: Gpr) -> Any:
        promised_at = promised_start_of(gpr)
        if gpr.state != GprState.QUEUED or gpr.planned_start_at is None or promised_at is None:
            return None
        wait = {
            "start_at": gpr.planned_start_at,
            "p50_at": gpr.promise.p50_at or gpr.planned_start_at,
            "p90_at": gpr.promise.p90_at or max(promised_at, gpr.planned_start_at),
            "basis": BOOKED if gpr.is_booking else LEARNED if gpr.promise.p90_at else NO_HISTORY,
        }
        return WaitSerializer(wait).data

    @extend_schema_field(ToldSerializer(allow_null=True))
    def get_explanation(self, gpr: Gpr) -> Any:
        explanation = self._page.statuses[gpr.pk].explanation
        return ToldSerializer(explanation).data if explanation else None

    @extend_schema_field(AssignedNodeSerializer(many=True))
    def get_nodes_assigned(self, gpr: Any) -> Any:
        return AssignedNodeSerializer(gpr.held_now, many=True).data

    @extend_schema_field(EvictionNoticeSerializer(allow_null=True))
    def get_eviction_notice(self, gpr: Gpr) -> Any:
        row = self._page.notices.get(gpr.pk)
        return EvictionNoticeSerializer(row).data if row else None

    @extend_schema_field(OriginSerializer(allow_null=True))
    def get_origin(self, gpr: Gpr) -> Any:
        claim = getattr(gpr, "claim", None)
        return OriginSerializer(claim).data if claim else None

    def get_failed_jobs(self, gpr: Gpr) -> list[str]:
        return list(self._page.failed_jobs.get(gpr.pk, ()))

    def get_borrows(self, gpr: Gpr) -> bool:
        return gpr.pk in self._page.borrowers

    def get_time_left_s(self, gpr: Gpr) -> float | None:
        return gpr.time_left_s(self._page.now)


class MoveSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    old_start_at = serializers.DateTimeField()
    new_start_at = serializers.DateTimeField()
    cause = serializers.ChoiceField(choices=CAUSES)


class PromiseMoveSerializer(MoveSerializer):
    cause_id = serializers.CharField(
        allow_null=True, help_text="The GPR, node, maintenance or order behind it, if the reader may know of it."
    )


class ReplacementSerializer(serializers.Serializer[Any]):
    node_id = serializers.UUIDField()
    node = serializers.CharField()
    failing_at = serializers.DateTimeField()
    why = serializers.CharField(help_text="What it suffers from, or why an administrator wants another.")
    outcome = serializers.ChoiceField(choices=ReplacementOutcome.choices)
    spare_id = serializers.UUIDField(allow_null=True)
    spare = serializers.CharField(help_text="Empty while there is none.")
    since_at = serializers.DateTimeField(allow_null=True, help_text="When the spare began to enter.")
    joined_at = serializers.DateTimeField(allow_null=True, help_text="When it took the place of the other.")
    why_not = serializers.CharField(help_text="Why there is no spare, or why it did not take the place.")


class GprDetailSerializer(GprSerializer):
    promise_moves = serializers.SerializerMethodField(help_text="When the promise was moved, and by what.")
    replacements = serializers.SerializerMethodField(help_text="Nodes that failed while it ran, and what took their places. Its end stays.")

    class Meta(GprSerializer.Meta):
        fields = [*GprSerializer.Meta.fields, "promise_moves", "replacements"]
        read_only_fields = fields

    @extend_schema_field(ReplacementSerializer(many=True))
    def get_replacements(self, gpr: Gpr) -> Any:
        return ReplacementSerializer(replacements_of(gpr), many=True).data

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
        return PromiseMoveSerializer(moves, many=True).data


def _own_orders(gpr: Gpr, ids: Sequence[str]) -> set[str]:
    rows = SupplyOrder.objects.filter(gpr=gpr, pk__in=ids) if ids else SupplyOrder.objects.none()
    return {str(pk) for pk in rows.values_list("pk", flat=True)}


class StepSerializer(serializers.ModelSerializer[StepResult]):
    id = SealedId()
    name = serializers.CharField(source="step")
    node_id = serializers.UUIDField(source="reservation.node_id")
    node = serializers.CharField(source="reservation.node.name")
    run = serializers.IntegerField(source="reservation.run", help_text="Which start of the GPR this was.")
    stage = serializers.SerializerMethodField()
    gpr_id = serializers.UUIDField(source="reservation.gpr_id")
    evidence = serializers.DictField()
    results = CheckResultSerializer(many=True)
    skipped_why = serializers.CharField(help_text="Why it measured nothing, though it passed; empty where it measured.")

    class Meta:
        model = StepResult
        fields = [
            "id",
            "name",
            "step",
            "stage",
            "gpr_id",
            "node_id",
            "node",
            "run",
            "attempt",
            "outcome",
            "skipped_why",
            "started_at",
            "ended_at",
            "blames_node",
            "log",
            "evidence",
            "results",
        ]
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=["entry", "exit"]))
    def get_stage(self, row: StepResult) -> str:
        return "entry" if row.step in {Milestone.CLAIM, *row.reservation.entry_steps, Milestone.OPEN} else "exit"


class QueueRowSerializer(serializers.ModelSerializer[Gpr]):
    position = serializers.SerializerMethodField(help_text=POSITION_HELP)
    slice = serializers.CharField(source="slice.name")
    slice_id = serializers.UUIDField()
    owner = serializers.CharField(source="owner.name")
    promised_start_at = serializers.SerializerMethodField(help_text=PROMISED_HELP)
    reason = serializers.SerializerMethodField(help_text="A sentence.")
    explanation = serializers.SerializerMethodField()

    class Meta:
        model = Gpr
        fields = ["id", "name", "position", "slice", "slice_id", "owner", "priority", "shape", "nodes", "gpus_per_node", "duration_s"]
        fields += ["queued_at", "planned_start_at", "promised_start_at", "reason", "explanation"]
        read_only_fields = fields

    def _status(self, gpr: Gpr) -> QueueStatus:
        page: GprPage = self.context["page"]
        return page.statuses[gpr.pk]

    def get_position(self, gpr: Gpr) -> int | None:
        return self._status(gpr).position

    def get_promised_start_at(self, gpr: Gpr) -> datetime | None:
        return promised_start_of(gpr)

    def get_reason(self, gpr: Gpr) -> str:
        explanation = self._status(gpr).explanation
        return explanation.sentence if explanation else ""

    @extend_schema_field(ToldSerializer(allow_null=True))
    def get_explanation(self, gpr: Gpr) -> Any:
        explanation = self._status(gpr).explanation
        return ToldSerializer(explanation).data if explanation else None


class OrderSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Of the supply.")
    lead_time_s = serializers.IntegerField(help_text="From the order to the node.")


class AlternativeSerializer(serializers.Serializer[Any]):
    differs = serializers.ListField(
        child=serializers.ChoiceField(choices=["nodes", "gpus_per_node", "duration_s", "shape", "clusters", "node_type"]),
        help_text="The fields of the request that are not as asked: with these changed it gets this start.",
    )
    cluster = serializers.CharField()
    shape = serializers.CharField(help_text="As asked, or another with as much memory.")
    node_type = serializers.CharField()
    nodes = serializers.IntegerField()
    gpus_per_node = serializers.IntegerField(allow_null=True, help_text="null: all of each node.")
    duration_s = serializers.IntegerField()
    start_at = serializers.DateTimeField()
    wait_s = serializers.IntegerField()
    sooner_s = serializers.IntegerField(help_text="Seconds before the start of this offer.")
    order = OrderSerializer(allow_null=True, help_text="What nodes would be ordered from for it.")


class OfferSerializer(serializers.Serializer[Estimate]):
    cluster = serializers.CharField()
    shape = serializers.CharField()
    node_type = serializers.CharField()
    supply = serializers.ChoiceField(
        choices=[NODES, RECLAIM, ORDER],
        help_text="`reclaim`: it starts after others have been evicted for it. `order`: on nodes that are ordered.",
    )
    order = OrderSerializer(allow_null=True, help_text="What its nodes are ordered from; null: they are there.")
    borrows = serializers.BooleanField(help_text=BORROWS_HELP)
    start_at = serializers.DateTimeField()
    wait_s = serializers.IntegerField()
    promised_start_at = serializers.DateTimeField()
    p50_s = serializers.IntegerField(help_text="Seconds of wait.")
    p90_s = serializers.IntegerField(help_text="Seconds of wait.")
    basis = serializers.CharField()
    explanation = ToldSerializer()
    alternatives = AlternativeSerializer(
        many=True,
        help_text="What would start sooner, five at most. A smaller one asks for the most that has room at once, or else in half the wait; "
        "where only evictions or orders of nodes would make room, for one size from the middle, and there may be others.",
    )


class OffersSerializer(serializers.Serializer[Any]):
    offers = OfferSerializer(many=True)
    approval_reasons = serializers.ListField(
        child=serializers.CharField(),
        help_text="The rules that it exceeds: it would wait for approval first, and the offers count from then.",
    )


def promised_start_of(gpr: Gpr) -> datetime | None:
    promise = gpr.current_promise
    return promise.promised_start_at if promise else None
