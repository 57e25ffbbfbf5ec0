"""Serves `evictions/`: boxes that ended early, newest first. Boxes that the reader may not know are not named."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers

from accounts.authentication import actor_of
from core.rest.nested import nested
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from gpr.models import Eviction, EvictionVictim, VictimKind, VictimOutcome
from gpr.requests.filters import EvictionFilter
from gpr.requests.selectors import evictions_visible_to


class VictimSerializer(ModelOutputSerializer[EvictionVictim]):
    kind = serializers.ChoiceField(choices=VictimKind.choices)
    outcome = serializers.ChoiceField(choices=VictimOutcome.choices)

    class Meta:
        model = EvictionVictim
        fields = ["gpr_id", "gpr", "kind", "priority", "ends_at", "lost_gpu_s", "outcome", "outcome_at"]


class EvictionSerializer(ModelOutputSerializer[Eviction]):
    """The beneficiary is null for readers who may not see it. Victims are only those that the reader may see."""

    gpr_id = serializers.SerializerMethodField(help_text="The GPR that gets the nodes. Null also if an administrator evicted without one.")
    gpr = serializers.SerializerMethodField()
    start_at = serializers.SerializerMethodField(help_text="When that GPR can start thanks to the eviction.")
    instead_at = serializers.SerializerMethodField(
        help_text="When it could have started otherwise; for a booking, the time that would have fit."
    )
    victim_count = serializers.SerializerMethodField(help_text="Null unless the reader may see all of them.")
    victims = serializers.SerializerMethodField(help_text="The evicted GPRs that the reader may see.")

    class Meta:
        model = Eviction
        fields = ["id", "made_at", "gpr_id", "gpr", "start_at", "instead_at", "victim_count", "victims"]

    def get_gpr_id(self, row: Any) -> UUID | None:
        return row.gpr_id if row.is_known else None

    def get_gpr(self, row: Any) -> str | None:
        return row.gpr.name if row.is_known and row.gpr is not None else None

    def get_start_at(self, row: Any) -> datetime | None:
        return row.start_at if row.is_known else None

    def get_instead_at(self, row: Any) -> datetime | None:
        return row.instead_at if row.is_known else None

    def get_victim_count(self, row: Any) -> int | None:
        # Strangers must not count the boxes of others.
        victims = row.victims.all()
        knows_whom_for = row.is_known or row.gpr_id is None
        return len(victims) if knows_whom_for and all(victim.is_known for victim in victims) else None

    @extend_schema_field(VictimSerializer(many=True))
    def get_victims(self, row: Any) -> Any:
        return [nested(VictimSerializer, victim) for victim in row.victims.all() if victim.is_known]


class EvictionViewSet(mixins.ListModelMixin, ApiViewSet[Eviction]):
    queryset = Eviction.objects.none()
    serializer_class = EvictionSerializer
    filterset_class = EvictionFilter
    ordering = ("-made_at", "id")

    def get_queryset(self) -> QuerySet[Eviction]:
        return evictions_visible_to(actor_of(self.request))
