from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Reference, StrictSerializer, Text
from core.rest.output import ModelOutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from inventory.filters import CheckPolicyFilter
from inventory.models import VERDICTS, CheckPolicy, CheckResult
from inventory.selectors import check_policies_known_to, check_policy_for, cluster_for
from inventory.services.checks import (
    CheckPolicyChange,
    check_policy_change,
    check_policy_create,
    check_policy_delete,
)
from protocol.nodes.check_limits import says
from protocol.references import OBJECT_NAME_MAX_CHARS

WHY_MAX_CHARS = 150
CHANGEABLE = ("limits", "images", "skipped_steps", "storage_class", "rdma_subnet", "runtime_class", "pull_secret")


class CheckResultSerializer(ModelOutputSerializer[CheckResult]):
    """Shows one measurement of a step."""

    id = SealedId()
    check = serializers.CharField(source="what", help_text="What was measured.")
    name = serializers.SerializerMethodField(help_text="Its readable name.")
    gpu_uuid = serializers.CharField(help_text="Empty: the whole node.")
    verdict = serializers.ChoiceField(choices=VERDICTS)

    class Meta:
        model = CheckResult
        fields = ["id", "name", "check", "gpu_uuid", "value", "unit", "threshold", "is_least", "verdict", "text"]

    def get_name(self, row: CheckResult) -> str:
        return says(row.what)


class CheckPolicySerializer(ModelOutputSerializer[CheckPolicy]):
    name = serializers.CharField(help_text="Cluster and shape.")
    limits = serializers.DictField(child=serializers.FloatField())
    images = serializers.DictField(child=serializers.CharField())
    skipped_steps = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = CheckPolicy
        fields = ["id", "name", "cluster", "cluster_id", "shape", *CHANGEABLE, "created_at"]


class CheckPolicyTerms(StrictSerializer):
    """In a change, omitted fields stay as they are; a given map or list replaces the old one."""

    limits = serializers.DictField(
        child=serializers.FloatField(), required=False, help_text="Thresholds by name; others keep their defaults."
    )
    images = serializers.DictField(child=Text(), required=False, help_text="`probe`, `nccl`. Without an `nccl` image NCCL is not measured.")
    skipped_steps = serializers.ListField(child=Text(max_length=63), required=False, max_length=20)
    storage_class = Text(max_length=OBJECT_NAME_MAX_CHARS, required=False, allow_blank=True, help_text="Empty: the cluster's default.")
    rdma_subnet = Text(max_length=19, required=False, allow_blank=True, help_text="First half of the GIDs of RDMA ports; empty: any.")
    runtime_class = Text(
        max_length=OBJECT_NAME_MAX_CHARS,
        required=False,
        allow_blank=True,
        help_text="Runtime class of the pods that check GPUs, e.g. `nvidia`; empty: the agent's default.",
    )
    pull_secret = Text(
        max_length=OBJECT_NAME_MAX_CHARS,
        required=False,
        allow_blank=True,
        help_text="Image pull Secret in egs-system; empty: the agent's default.",
    )


class CheckPolicyPatch(CheckPolicyTerms):
    why = Text(max_length=WHY_MAX_CHARS, required=False, allow_blank=True)


class CheckPolicyCreate(CheckPolicyTerms):
    cluster = Reference()
    shape = Text(max_length=63, required=False, allow_blank=True, help_text="Empty: all shapes. A shape's own policy takes precedence.")


class CheckPolicyViewSet(mixins.ListModelMixin, ApiViewSet[CheckPolicy]):
    queryset = CheckPolicy.objects.none()
    serializer_class = CheckPolicySerializer
    change_body = CheckPolicyPatch
    filterset_class = CheckPolicyFilter
    admin_actions = ("list", "retrieve", "create", "partial_update", "destroy")

    def get_queryset(self) -> QuerySet[CheckPolicy]:
        return check_policies_known_to(actor_of(self.request))

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=CheckPolicyCreate, responses={201: CheckPolicySerializer})
    def create(self, request: Request) -> Response:
        """It applies to checks that begin later."""
        data, actor = self.body(CheckPolicyCreate), actor_of(request)
        policy = CheckPolicy(**{**data, "cluster": cluster_for(actor, data["cluster"])})
        made = check_policy_create(policy=policy, actor=actor, now=self.now)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=CheckPolicyPatch)
    def partial_update(self, request: Request, pk: str) -> Response:
        """It applies to checks that begin later."""
        data, actor = self.body(CheckPolicyPatch), actor_of(request)
        change = CheckPolicyChange(**{name: data[name] for name in CHANGEABLE if name in data})  # type: ignore[typeddict-item]
        policy = check_policy_for(actor, pk)
        check_policy_change(policy=policy, change=change, actor=actor, now=self.now, why=data.get("why", ""))
        return self._answer(pk)

    def destroy(self, request: Request, pk: str) -> Response:
        """The default limits apply from now on."""
        actor = actor_of(request)
        check_policy_delete(policy=check_policy_for(actor, pk), actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        return Response(CheckPolicySerializer(check_policy_for(actor_of(self.request), pk)).data, **kwargs)
