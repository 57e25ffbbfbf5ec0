"""Serves the REST endpoints of `budgets/`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Reference, Text, WholeNumber
from core.rest.output import OutputSerializer
from core.rest.views import ApiViewSet
from gpr.budgets.selectors import budget_uses
from gpr.quotas.api import COUNT_MAX, WHY, Reasoned, owner_of, reason_of
from gpr.requests.filters import BudgetFilter
from slices.budgets.services import BudgetChange, budget_change, budget_create, budget_delete
from slices.models import AtLimit, Budget, Period, Project
from slices.selectors import QUOTA_ORDER, budget_decided_by, budget_for, budgets_visible_to, refuse_undecided

TERMS = ("gpu_hours", "starts_at", "ends_at", "at_limit")


class BudgetSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField(source="budget.pk")
    name = serializers.CharField(source="budget", help_text="Name of the project or slice, the shape and the period.")
    project = serializers.CharField(source="budget.tenant.name", help_text="The project, or the project of the slice.")
    project_id = serializers.UUIDField(source="budget.tenant.pk")
    slice = serializers.CharField(source="budget.slice.name", default=None, allow_null=True, help_text="Null: a project's.")
    slice_id = serializers.UUIDField(source="budget.slice.pk", default=None, allow_null=True)
    shape = serializers.CharField(source="budget.shape", help_text="Empty: GPUs of all shapes.")
    gpu_hours = serializers.IntegerField(source="budget.gpu_hours", help_text="Maximum in each period.")
    period = serializers.ChoiceField(source="budget.period", choices=Period.choices)
    at_limit = serializers.ChoiceField(
        source="budget.at_limit", choices=AtLimit.choices, help_text="The fate of a request that is beyond the budget."
    )
    starts_at = serializers.DateTimeField(source="span.starts_at", help_text="Start of the present period, or of the range.")
    ends_at = serializers.DateTimeField(source="span.ends_at")
    used_hours = serializers.FloatField(help_text="GPU-hours that GPUs were held in the period until now.")
    committed_hours = serializers.FloatField(help_text="GPU-hours of the period that running and queued requests have booked from now on.")
    left_hours = serializers.FloatField()
    created_at = serializers.DateTimeField(source="budget.created_at")


class BudgetTerms(Reasoned):
    """Omitted fields stay as they are. A new budget asks for approval by default."""

    gpu_hours = WholeNumber(min_value=1, max_value=COUNT_MAX, required=False)
    starts_at = serializers.DateTimeField(required=False, help_text="Only a range has it.")
    ends_at = serializers.DateTimeField(required=False, help_text="Only a range has it.")
    at_limit = serializers.ChoiceField(choices=AtLimit.choices, required=False)


class BudgetCreate(BudgetTerms):
    project = Reference(required=False, help_text="Give either this or `slice`.")
    slice = Reference(required=False)
    shape = Text(max_length=63, required=False, allow_blank=True, help_text="Empty: GPUs of all shapes.")
    gpu_hours = WholeNumber(min_value=1, max_value=COUNT_MAX)
    period = serializers.ChoiceField(choices=Period.choices)


class BudgetViewSet(ApiViewSet[Any]):
    queryset = Budget.objects.none()
    serializer_class = BudgetSerializer
    change_body = BudgetTerms
    filterset_class = BudgetFilter
    ordering = QUOTA_ORDER

    def list(self, request: Request) -> Response:
        """List budgets with their use. A member sees those of his slices and of their projects."""
        rows = self.paginate_queryset(self.filter_queryset(budgets_visible_to(actor_of(request)))) or []
        return self.get_paginated_response(BudgetSerializer(budget_uses(rows, now=self.now), many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=BudgetCreate, responses={201: BudgetSerializer})
    def create(self, request: Request) -> Response:
        """Create a budget of GPU-hours for a project, or for a slice."""
        data, actor = self.body(BudgetCreate), actor_of(request)
        change, why = _change_of(data)
        owner, shape = owner_of(data, actor), data.get("shape", "")
        refuse_undecided(actor, Budget(project=owner) if isinstance(owner, Project) else Budget(slice=owner))
        made = budget_create(owner=owner, shape=shape, period=data["period"], change=change, actor=actor, now=self.now, why=why)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=BudgetTerms)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the budget. A budget that is smaller than its use ends nothing."""
        change, why = _change_of(self.body(BudgetTerms))
        actor = actor_of(request)
        budget_change(budget=budget_decided_by(actor, pk), change=change, actor=actor, now=self.now, why=why)
        return self._answer(pk)

    @extend_schema(parameters=[WHY])
    def destroy(self, request: Request, pk: str) -> Response:
        actor, why = actor_of(request), reason_of(request)
        budget_delete(budget=budget_decided_by(actor, pk), actor=actor, now=self.now, why=why)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        (use,) = budget_uses([budget_for(actor_of(self.request), pk)], now=self.now)
        return Response(BudgetSerializer(use).data, **kwargs)


def _change_of(data: dict[str, Any]) -> tuple[BudgetChange, str]:
    return BudgetChange(**{name: data[name] for name in TERMS if name in data}), data.get("why", "")  # type: ignore[typeddict-item]
