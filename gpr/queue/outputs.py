"""Serializes the queue, why requests wait in it, and what a decision would do there."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.rest.output import ModelOutputSerializer, OutputSerializer
from gpr.models import Gpr
from gpr.queue.decision_previews import summary_of
from gpr.queue.explanations import VisibleExplanation
from gpr.queue.previews import DecisionPreview
from planner.plan import Reason

POSITION_HELP = "The position by planned start among all waiting requests; 1 starts first. Null without a planned start."
PROMISED_HELP = "It starts by then, unless a recorded cause moves the promise. Null if it can never start or its booked time is taken."
OTHERS_MAX = 100


class BlockerSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField(allow_null=True, help_text="Null: all requests that the reader may not see, together.")
    name = serializers.CharField()
    is_running = serializers.BooleanField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    nodes = serializers.IntegerField(allow_null=True, help_text="The nodes that it holds or waits for. Null if the reader may not see it.")
    gpus_per_node = serializers.IntegerField(allow_null=True, help_text="Null while `nodes` is not: all GPUs of each node.")


class ExplanationSerializer(OutputSerializer[VisibleExplanation]):
    reason = serializers.ChoiceField(choices=[(reason.value, reason.value) for reason in Reason])
    sentence = serializers.CharField()
    blockers = BlockerSerializer(many=True)
    ahead_count = serializers.IntegerField(help_text="How many requests start before it, of all workspaces.")


class QueueRowSerializer(ModelOutputSerializer[Gpr]):
    position = serializers.IntegerField(source="status.position", read_only=True, allow_null=True, help_text=POSITION_HELP)
    promised_start_at = serializers.DateTimeField(
        source="current_promise.promised_start_at", default=None, allow_null=True, read_only=True, help_text=PROMISED_HELP
    )
    reason = serializers.CharField(source="status.reason", read_only=True, help_text="Why it waits, as a sentence.")
    explanation = ExplanationSerializer(source="status.explanation", read_only=True, allow_null=True)

    class Meta:
        model = Gpr
        fields = ["id", "name", "position", "slice", "slice_id", "owner", "priority", "shape", "nodes", "gpus_per_node", "duration_s"]
        fields += ["queued_at", "planned_start_at", "promised_start_at", "reason", "explanation"]


class StartChangeSerializer(OutputSerializer[Any]):
    gpr_id = serializers.UUIDField(source="gpr.pk")
    gpr = serializers.CharField(source="gpr.name")
    slice = serializers.CharField(source="gpr.slice.name")
    old_start_at = serializers.DateTimeField(allow_null=True, help_text="The planned start; null: none.")
    new_start_at = serializers.DateTimeField(allow_null=True)


class EvictedSerializer(OutputSerializer[Gpr]):
    gpr_id = serializers.UUIDField(source="pk")
    gpr = serializers.CharField(source="name")
    slice = serializers.CharField(source="slice.name")


class OthersSerializer(OutputSerializer[DecisionPreview]):
    summary = serializers.SerializerMethodField(help_text="A sentence.")
    later_count = serializers.SerializerMethodField()
    earlier_count = serializers.SerializerMethodField()
    moved = serializers.SerializerMethodField(help_text=f"Those whose start changes most, {OTHERS_MAX} at most.")
    evicted = EvictedSerializer(many=True, help_text="Those that would get an eviction notice.")

    def get_summary(self, preview: DecisionPreview) -> str:
        return summary_of(preview)

    def get_later_count(self, preview: DecisionPreview) -> int:
        return len(preview.later)

    def get_earlier_count(self, preview: DecisionPreview) -> int:
        return len(preview.earlier)

    @extend_schema_field(StartChangeSerializer(many=True))
    def get_moved(self, preview: DecisionPreview) -> Any:
        return StartChangeSerializer(preview.noted[:OTHERS_MAX], many=True).data


class DecisionPreviewSerializer(OutputSerializer[DecisionPreview]):
    sentence = serializers.SerializerMethodField(help_text="What becomes of the request.")
    old_start_at = serializers.DateTimeField(source="own.old_start_at", allow_null=True, help_text="Its planned start; null: none.")
    new_start_at = serializers.DateTimeField(source="own.new_start_at", allow_null=True)
    old_position = serializers.IntegerField(allow_null=True)
    new_position = serializers.IntegerField(allow_null=True)
    others = serializers.SerializerMethodField(help_text="Null for all but administrators, since it names requests of all workspaces.")

    def get_sentence(self, preview: DecisionPreview) -> str:
        sentence: str = self.context["sentence"]
        return sentence

    @extend_schema_field(OthersSerializer(allow_null=True))
    def get_others(self, preview: DecisionPreview) -> Any:
        return OthersSerializer(preview).data if self.context["is_for_admin"] else None
