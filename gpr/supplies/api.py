"""Serves `supplies/` and `supply-orders/` to administrators. Node pool scalers read the orders here: see docs/how-to/supplies.md."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Flag, Reference, StrictSerializer, Text, WholeNumber
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from gpr.requests.filters import SupplyFilter, SupplyOrderFilter
from gpr.requests.inputs import WHY_MAX_CHARS, Duration
from gpr.supplies.services import order_refuse
from inventory.models import (
    SUPPLY_GPUS_MAX,
    SUPPLY_NODES_MAX,
    Supply,
    SupplyKind,
    SupplyOrder,
)
from inventory.selectors import cluster_for, supplies_known_to, supply_for, supply_order_for, supply_orders_known_to
from inventory.services.supplies import (
    MEMORY_MAX_GIB,
    ORDER_WHY_MAX_CHARS,
    SupplyChange,
    order_fail,
    supply_change,
    supply_create,
)

CHANGEABLE = ("name", "node_count", "lead_time_s", "gain_s", "is_enabled")


class SupplySerializer(ModelOutputSerializer[Supply]):
    ordered_count = serializers.IntegerField(source="open_count", help_text="Nodes that are ordered and not there yet.")
    arrived_count = serializers.IntegerField(help_text="Nodes that came from it and are there.")
    possible_count = serializers.IntegerField(help_text="Nodes that can still be ordered.")

    class Meta:
        model = Supply
        fields = ["id", "name", "cluster", "cluster_id", "kind", "shape", "gpus_per_node", "gpu_memory_gib", "node_count"]
        fields += ["lead_time_s", "gain_s", "is_enabled", "ordered_count", "arrived_count", "possible_count", "created_at"]


class SupplyTerms(StrictSerializer):
    """Takes the fields of a change. Omitted fields stay as they are."""

    name = Text(max_length=63, required=False)
    node_count = WholeNumber(min_value=1, max_value=SUPPLY_NODES_MAX, required=False, help_text="How many nodes it can provide in total.")
    lead_time_s = Duration(required=False, help_text="Time from the order to the arrival of the node.")
    gain_s = Duration(required=False, help_text="Nodes are ordered only if a request starts sooner by at least this.")
    is_enabled = Flag(required=False, help_text="Whether nodes may be ordered.")
    why = Text(max_length=WHY_MAX_CHARS, required=False, allow_blank=True)


class SupplyCreate(StrictSerializer):
    cluster = Reference()
    name = Text(max_length=63)
    kind = serializers.ChoiceField(choices=SupplyKind.choices)
    shape = Text(max_length=63, help_text="The shape that its nodes will report; it may be new to the cluster.")
    gpus_per_node = WholeNumber(min_value=1, max_value=SUPPLY_GPUS_MAX)
    gpu_memory_gib = WholeNumber(min_value=1, max_value=MEMORY_MAX_GIB, help_text="Minimum memory of each GPU.")
    node_count = WholeNumber(min_value=1, max_value=SUPPLY_NODES_MAX, help_text="How many nodes it can provide in total.")
    lead_time_s = Duration(help_text="Time from the order to the arrival of the node.")
    gain_s = Duration(help_text="Nodes are ordered only if a request starts sooner by at least this.")
    is_enabled = Flag(required=False, default=True)


class SupplyOrderSerializer(ModelOutputSerializer[SupplyOrder]):
    name = serializers.CharField(source="supply.name", help_text="Name of the supply.")
    cluster = serializers.CharField(source="supply.cluster.name")
    cluster_id = serializers.UUIDField(source="supply.cluster_id")
    kind = serializers.ChoiceField(source="supply.kind", choices=SupplyKind.choices)
    shape = serializers.CharField(source="supply.shape")
    gpus_per_node = serializers.IntegerField(source="supply.gpus_per_node")
    gpr = serializers.CharField(source="gpr.name", help_text="The GPR that it was ordered for. By now other GPRs may be planned on it.")
    order_by_at = serializers.DateTimeField(help_text="The latest time to ask for the node.")
    is_late = serializers.SerializerMethodField()
    ended_by = serializers.CharField(source="ended_by.name", default=None, allow_null=True, help_text="Null: EGS did it.")

    class Meta:
        model = SupplyOrder
        fields = ["id", "name", "supply_id", "cluster", "cluster_id", "kind", "shape", "gpus_per_node", "gpr", "gpr_id", "state"]
        fields += ["ordered_at", "order_by_at", "expected_at", "is_late", "node", "node_id", "ended_at", "ended_by", "why"]

    @extend_schema_field(serializers.BooleanField())
    def get_is_late(self, order: SupplyOrder) -> bool:
        return order.is_late(self.context["now"])


class OrderEnd(StrictSerializer):
    why = Text(max_length=ORDER_WHY_MAX_CHARS)


class ForAdmins(ApiViewSet[Any]):
    """Supplies are for administrators. Other users see them only in offers."""

    admin_actions = ("list", "retrieve", "create", "partial_update", "cancel", "fail")


class SupplyViewSet(mixins.ListModelMixin, ForAdmins):
    queryset = Supply.objects.none()
    serializer_class = SupplySerializer
    change_body = SupplyTerms
    filterset_class = SupplyFilter
    ordering = ("created_at", "id")
    lookup_url_kwarg = "ref"

    def get_queryset(self) -> QuerySet[Supply]:
        return supplies_known_to(actor_of(self.request))

    def retrieve(self, request: Request, ref: str) -> Response:
        return self._answer(ref)

    @extend_schema(request=SupplyCreate, responses={201: SupplySerializer})
    def create(self, request: Request) -> Response:
        """Create a supply. Within a second, nodes are ordered for waiting requests that may order and gain enough."""
        data, actor = self.body(SupplyCreate), actor_of(request)
        supply = Supply(**{**data, "cluster": cluster_for(actor, data["cluster"])})
        made = supply_create(supply=supply, actor=actor, now=self.now)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=SupplyTerms)
    def partial_update(self, request: Request, ref: str) -> Response:
        """Change the supply for later orders. Existing orders stay as they are."""
        data, actor = self.body(SupplyTerms), actor_of(request)
        change = SupplyChange(**{name: data[name] for name in CHANGEABLE if name in data})  # type: ignore[typeddict-item]
        supply = supply_change(supply=supply_for(actor, ref), change=change, actor=actor, now=self.now, why=data.get("why", ""))
        return self._answer(supply.pk)

    def _answer(self, ref: str | UUID, **kwargs: Any) -> Response:
        return Response(SupplySerializer(supply_for(actor_of(self.request), str(ref))).data, **kwargs)


class SupplyOrderViewSet(mixins.ListModelMixin, ForAdmins):
    queryset = SupplyOrder.objects.none()
    serializer_class = SupplyOrderSerializer
    filterset_class = SupplyOrderFilter
    ordering = ("-ordered_at", "id")

    def get_queryset(self) -> QuerySet[SupplyOrder]:
        return supply_orders_known_to(actor_of(self.request))

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "now": self.now}

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=OrderEnd, responses={200: SupplyOrderSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel the order. GPRs that were planned on it are planned elsewhere and get no more orders from this supply."""
        return self._end(pk, order_refuse)

    @extend_schema(request=OrderEnd, responses={200: SupplyOrderSerializer})
    @action(detail=True, methods=["post"])
    def fail(self, request: Request, pk: str) -> Response:
        """Report that the node will not come. Its GPRs are planned elsewhere, and the supply gets no orders for a quarter of an hour."""
        return self._end(pk, order_fail)

    def _end(self, pk: str, end: Callable[..., None]) -> Response:
        data, actor = self.body(OrderEnd), actor_of(self.request)
        now: datetime = self.now
        end(order=supply_order_for(actor, pk), actor=actor, why=data["why"], now=now)
        return self._answer(pk)

    def _answer(self, pk: str) -> Response:
        return Response(self.get_serializer(supply_order_for(actor_of(self.request), pk)).data)
