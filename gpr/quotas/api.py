"""Serves the REST endpoints of `quotas/`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import User
from core.errors import InvalidInput
from core.rest.fields import Reference, StrictSerializer, Text, WholeNumber
from core.rest.output import OutputSerializer
from core.rest.references import one_by_reference
from core.rest.schema import LINE
from core.rest.views import ApiViewSet
from gpr.quotas.selectors import quota_usages
from gpr.requests.filters import QuotaFilter
from gpr.requests.inputs import WHY_MAX_CHARS
from slices.models import Project, Quota, Slice
from slices.quotas.services import QuotaChange, quota_change, quota_create, quota_delete
from slices.selectors import QUOTA_ORDER, projects_visible_to, quota_for, quotas_visible_to, slice_for

COUNT_MAX = 2**31 - 1
WHY = OpenApiParameter(
    "why",
    {"type": "string", "format": LINE, "maxLength": WHY_MAX_CHARS},
    description="The reason, which is recorded with the user's name.",
)


class QuotaSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField(source="quota.pk")
    name = serializers.CharField(source="quota", help_text="Name of the project or slice, and the shape.")
    project = serializers.CharField(source="quota.tenant.name", help_text="The project, or the project of the slice.")
    project_id = serializers.UUIDField(source="quota.tenant.pk")
    slice = serializers.CharField(source="quota.slice.name", default=None, allow_null=True, help_text="Null: it is the quota of a project.")
    slice_id = serializers.UUIDField(source="quota.slice.pk", default=None, allow_null=True)
    shape = serializers.CharField(source="quota.shape")
    guaranteed_gpus = serializers.IntegerField(source="quota.guaranteed_gpus")
    most_gpus = serializers.IntegerField(source="quota.most_gpus", allow_null=True, help_text="Null: no limit.")
    held_gpus = serializers.IntegerField()
    borrowed_gpus = serializers.IntegerField(help_text="GPUs held beyond the guarantee.")
    wanted_gpus = serializers.IntegerField(help_text="GPUs that queued requests with this shape ask for.")
    note = serializers.CharField(help_text="A sentence if more GPUs are held than allowed; else empty.")
    created_at = serializers.DateTimeField(source="quota.created_at")


class Reasoned(StrictSerializer):
    why = Text(max_length=WHY_MAX_CHARS, required=False, allow_blank=True)


class QuotaTerms(Reasoned):
    """Omitted fields stay as they are. A new quota guarantees 0 GPUs and has no limit by default."""

    guaranteed_gpus = WholeNumber(min_value=0, max_value=COUNT_MAX, required=False)
    most_gpus = WholeNumber(min_value=0, max_value=COUNT_MAX, required=False, allow_null=True)


class QuotaCreate(QuotaTerms):
    project = Reference(required=False, help_text="Give either this or `slice`.")
    slice = Reference(required=False)
    shape = Text(max_length=63)


class QuotaViewSet(ApiViewSet[Any]):
    queryset = Quota.objects.none()
    serializer_class = QuotaSerializer
    change_body = QuotaTerms
    filterset_class = QuotaFilter
    ordering = QUOTA_ORDER
    admin_actions = ("create", "partial_update", "destroy")

    def list(self, request: Request) -> Response:
        """List quotas. A member sees those of his slices and of their projects."""
        rows = self.paginate_queryset(self.filter_queryset(quotas_visible_to(actor_of(request)))) or []
        return self.get_paginated_response(QuotaSerializer(quota_usages(rows), many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=QuotaCreate, responses={201: QuotaSerializer})
    def create(self, request: Request) -> Response:
        """Create the quota of a project, or of a slice as a part of its project's."""
        data, actor = self.body(QuotaCreate), actor_of(request)
        change, why = _change_of(data)
        made = quota_create(owner=owner_of(data, actor), shape=data["shape"], change=change, actor=actor, now=self.now, why=why)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=QuotaTerms)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the quota. A limit below the held GPUs ends nothing; no request starts until fewer are held."""
        change, why = _change_of(self.body(QuotaTerms))
        actor = actor_of(request)
        quota_change(quota=quota_for(actor, pk), change=change, actor=actor, now=self.now, why=why)
        return self._answer(pk)

    @extend_schema(parameters=[WHY])
    def destroy(self, request: Request, pk: str) -> Response:
        actor, why = actor_of(request), reason_of(request)
        quota_delete(quota=quota_for(actor, pk), actor=actor, now=self.now, why=why)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        (usage,) = quota_usages([quota_for(actor_of(self.request), pk)])
        return Response(QuotaSerializer(usage).data, **kwargs)


def _change_of(data: dict[str, Any]) -> tuple[QuotaChange, str]:
    change = QuotaChange(**{name: data[name] for name in ("guaranteed_gpus", "most_gpus") if name in data})  # type: ignore[typeddict-item]
    return change, data.get("why", "")


def reason_of(request: Request) -> str:
    """Reads the reason of a deletion from the query. Raises what becomes a 400."""
    asked = Reasoned(data={"why": request.query_params.get("why", "")})
    asked.is_valid(raise_exception=True)
    return str(asked.validated_data.get("why", ""))


def owner_of(data: dict[str, Any], actor: User) -> Project | Slice:
    if ("project" in data) == ("slice" in data):
        raise InvalidInput({"project": ["Name a project or a workspace, one of the two."]})
    if "slice" in data:
        return slice_for(actor, data["slice"])
    return one_by_reference(projects_visible_to(actor), data["project"], what="project")
