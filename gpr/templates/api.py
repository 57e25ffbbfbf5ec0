"""Serves the REST endpoints of `templates/`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import User
from accounts.policy import Verb, is_platform_admin
from core.errors import NotAllowed
from core.rest.fields import Flag, NewName, Reference, StrictSerializer
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from gpr.jobs.api import JobCreate
from gpr.jobs.spec import FIELDS as JOB_FIELDS
from gpr.models import GprTemplate
from gpr.requests.filters import TemplateFilter
from gpr.requests.inputs import GprChange
from gpr.requests.selectors import PLATFORM_TEMPLATE, template_for, templates_visible_to
from gpr.templates.fields import FIELDS
from gpr.templates.services import TemplateChange, template_change, template_create, template_delete
from inventory.selectors import cluster_for
from slices.selectors import slice_for

API_NAMES = {"objects_wanted": "manifest"}
SPEC_NAMES = {api: name for name, api in API_NAMES.items()}
AUTO_HELP = (
    "While it is the default, requests are created from it for GPU pods that wait in namespaces of the slice without an "
    "automatic GPRTemplate. It needs `shape` and `duration_s`."
)
HOME_HELP = "Whose requests start from it. Null: the platform, for the requests of all slices; a slice's own of the same name hides it."
DEFAULT_HELP = (
    "Whether it is the default of its cluster or of the slice, and replaces the present one. A cluster's default takes precedence."
)


def request_fields() -> dict[str, Any]:
    fields = {name: deepcopy(GprChange().fields[name]) for name in FIELDS}
    for each in fields.values():
        each.allow_null = True
    return fields


def job_fields() -> dict[str, Any]:
    """Return the fields that describe the job, under the names that `jobs/` uses."""
    fields = JobCreate().fields
    found = {name: deepcopy(fields[name]) for name in (API_NAMES.get(each, each) for each in JOB_FIELDS)}
    for each in found.values():
        each.allow_null = True
    return found


def job_of(data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that describe the job, under the names that a JobSpec uses."""
    return {name: data[API_NAMES.get(name, name)] for name in JOB_FIELDS if API_NAMES.get(name, name) in data}


class TemplateJob(StrictSerializer):
    """Holds only the fields of the job that a template starts."""

    def get_fields(self) -> dict[str, Any]:
        return job_fields()


class TemplateSerializer(ModelOutputSerializer[GprTemplate]):
    slice = serializers.CharField(source="slice.name", default=None, allow_null=True, help_text="Null: the platform, for all slices.")
    cluster = serializers.CharField(source="cluster.name", default=None, allow_null=True, help_text="Null: all clusters of the slice.")
    is_default = serializers.BooleanField(help_text=DEFAULT_HELP)
    auto = serializers.BooleanField(help_text=AUTO_HELP)

    class Meta:
        model = GprTemplate
        fields = ["id", "name", "slice", "slice_id", "cluster", "cluster_id", "is_default", "auto", "created_at"]

    def get_fields(self) -> dict[str, Any]:
        words = request_fields()
        for name, each in words.items():
            each.source, each.read_only, each.required = f"asked.{name}", True, False
        runs = job_fields() | {"manifest": serializers.ListField(child=serializers.DictField(), allow_null=True)}
        for name, each in runs.items():
            each.source, each.read_only, each.required = f"job.{SPEC_NAMES.get(name, name)}", True, False
        return {**super().get_fields(), **words, **runs}


class TemplatePatch(StrictSerializer):
    """Takes the fields of a change. Omitted fields stay as they are; null clears a field."""

    name = NewName(required=False)
    cluster = Reference(required=False, allow_null=True, help_text="The only cluster that it is for; null: all clusters of the slice.")
    is_default = Flag(required=False, help_text=DEFAULT_HELP)
    auto = Flag(required=False, help_text=AUTO_HELP)

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **request_fields(), **job_fields()}


class TemplateCreate(TemplatePatch):
    name = NewName()
    slice = Reference(required=False, allow_null=True, help_text=HOME_HELP)


class TemplateViewSet(mixins.ListModelMixin, ApiViewSet[GprTemplate]):
    queryset = GprTemplate.objects.none()
    serializer_class = TemplateSerializer
    change_body = TemplatePatch
    filterset_class = TemplateFilter
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"

    def get_queryset(self) -> QuerySet[GprTemplate]:
        return templates_visible_to(actor_of(self.request))

    def retrieve(self, request: Request, ref: str) -> Response:
        return self._answer(template_for(actor_of(request), ref))

    @extend_schema(request=TemplateCreate, responses={201: TemplateSerializer})
    def create(self, request: Request) -> Response:
        """Create a template. Owners of the slice may do this; for the platform, its administrators."""
        data, actor = self.body(TemplateCreate), actor_of(request)
        slice_ = slice_for(actor, data["slice"], verb=Verb.MANAGE) if data.get("slice") else None
        if slice_ is None and not is_platform_admin(actor):
            raise NotAllowed(PLATFORM_TEMPLATE)
        made = template_create(slice_=slice_, change=_change_of(data, actor), actor=actor, now=self.now)
        return self._answer(template_for(actor, made.pk), status=status.HTTP_201_CREATED)

    @extend_schema(request=TemplatePatch)
    def partial_update(self, request: Request, ref: str) -> Response:
        """Change the template for later requests."""
        data, actor = self.body(TemplatePatch), actor_of(request)
        template = template_for(actor, ref, write=True)
        return self._answer(template_change(template=template, change=_change_of(data, actor), actor=actor, now=self.now))

    def destroy(self, request: Request, ref: str) -> Response:
        """Delete the template. Requests that were created from it stay as they are."""
        actor = actor_of(request)
        template_delete(template=template_for(actor, ref, write=True), actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, template: GprTemplate, **kwargs: Any) -> Response:
        return Response(TemplateSerializer(template).data, **kwargs)


def _change_of(data: dict[str, Any], actor: User) -> TemplateChange:
    """Raises NotFound."""
    change: TemplateChange = TemplateChange(**{name: data[name] for name in ("name", "auto", "is_default") if name in data})  # type: ignore[typeddict-item]
    if "cluster" in data:
        change["cluster"] = cluster_for(actor, data["cluster"]) if data["cluster"] else None
    if asked := {name: data[name] for name in FIELDS if name in data}:
        change["asked"] = asked
    if job := job_of(data):
        change["job"] = job
    return change
