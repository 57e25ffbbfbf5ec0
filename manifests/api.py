"""Serves `manifests/`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import Scope
from core.errors import InvalidInput
from core.rest.fields import Flag, StrictSerializer, Text, Verbatim
from core.rest.output import OutputSerializer
from core.rest.views import ApiViewSet
from journal.refusals import refusal_record
from manifests.export import manifests_export
from manifests.models import ManifestObject
from manifests.services import ManifestsInvalid, Report, Terms, manifests_apply, manifests_delete
from protocol.manifests.kinds import Kind, kind_of_word, no_such_kind

FILES_MAX = 1_000
MANAGER_HELP = "The owner of the fields in the manifests, e.g. `ci`. Another manager's apply does not change them."


class ManifestFile(StrictSerializer):
    name = Text(max_length=253, help_text="Where mistakes are said to be, e.g. `quotas.yaml`.")
    text = Verbatim(help_text="YAML, of one or more documents.")


class ManifestFiles(StrictSerializer):
    files = serializers.ListField(child=ManifestFile(), max_length=FILES_MAX)


class ManifestDelete(ManifestFiles):
    is_dry = Flag(required=False, default=False, help_text="Tell what would be deleted, and change nothing.")
    is_partial = Flag(required=False, default=False, help_text="Delete what can be deleted, although other documents have mistakes.")


class ManifestDiff(ManifestFiles):
    manager = Text(max_length=63, required=False, default="egs", help_text=MANAGER_HELP)
    is_forced = Flag(required=False, default=False, help_text="Take over fields that other managers own.")
    prune = serializers.DictField(
        child=Text(max_length=63, allow_blank=True),
        required=False,
        default=dict,
        help_text="Labels. Objects that this manager has applied with them are deleted when no document names them any more.",
    )
    secrets = serializers.DictField(
        child=Text(max_length=500), required=False, default=dict, help_text="Secrets of new channels, by the names in `secretFrom`."
    )


class ManifestApply(ManifestDiff):
    is_partial = Flag(required=False, default=False, help_text="Apply what can be applied, although other documents have mistakes.")


class DifferenceSerializer(OutputSerializer[Any]):
    field = serializers.CharField()
    old = serializers.JSONField(allow_null=True)
    new = serializers.JSONField(allow_null=True)


class ManifestResultSerializer(OutputSerializer[Any]):
    kind = serializers.CharField()
    name = serializers.CharField()
    place = serializers.CharField(help_text="The workspace, project, node or cluster that it belongs to; may be empty.")
    act = serializers.ChoiceField(choices=["created", "changed", "unchanged", "deleted", "archived", "kept", "absent"])
    file = serializers.CharField(help_text="Empty: it was pruned.")
    line = serializers.IntegerField()
    changes = DifferenceSerializer(many=True)
    note = serializers.CharField(help_text="Why it is kept or unchanged; may be empty.")
    signing_secret = serializers.CharField(allow_null=True, help_text="The key of a new webhook's signatures, in this answer alone.")


class ManifestFaultSerializer(OutputSerializer[Any]):
    file = serializers.CharField()
    line = serializers.IntegerField(help_text="From 1; 0: the whole file.")
    field = serializers.CharField(help_text="E.g. `spec.nodes`; may be empty.")
    kind = serializers.CharField()
    name = serializers.CharField()
    code = serializers.CharField()
    detail = serializers.CharField()


class ManifestReportSerializer(OutputSerializer[Any]):
    results = ManifestResultSerializer(many=True)
    faults = ManifestFaultSerializer(many=True, help_text="All mistakes.")


class ManifestTextSerializer(OutputSerializer[Any]):
    text = serializers.CharField(help_text="YAML.")


def _filter(name: str, text: str) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.QUERY, description=text)


class ManifestViewSet(ApiViewSet[ManifestObject]):
    """The caller may do here only what the other addresses allow."""

    queryset = ManifestObject.objects.none()
    serializer_class = ManifestReportSerializer
    read_actions = ("diff",)
    keyless_actions = ("apply", "remove")  # a repetition changes nothing
    write_scope = Scope.GPR_WRITE  # the calls for each document have their own

    @extend_schema(request=ManifestApply, responses={200: ManifestReportSerializer})
    @action(detail=False, methods=["post"])
    def apply(self, request: Request) -> Response:
        """Make objects as manifests say. All or nothing: with a mistake the answer is 400 `invalid_manifests` with the member `faults`."""
        return self._run(manifests_apply, self.body(ManifestApply))

    @extend_schema(request=ManifestDiff, responses={200: ManifestReportSerializer})
    @action(detail=False, methods=["post"])
    def diff(self, request: Request) -> Response:
        """Tell what `apply/` would do, mistakes included. Nothing is changed."""
        return self._run(manifests_apply, {**self.body(ManifestDiff), "is_dry": True})

    @extend_schema(request=ManifestDelete, responses={200: ManifestReportSerializer})
    @action(detail=False, methods=["post"], url_path="delete")
    def remove(self, request: Request) -> Response:
        """Delete what manifests name. Workspaces and projects are archived; clusters, supplies and people are kept."""
        return self._run(manifests_delete, self.body(ManifestDelete))

    @extend_schema(
        parameters=[
            _filter("kind", "Kinds, e.g. `Workspace,Member`. Default: all but requests and booking series."),
            _filter("name", "Only objects of this name."),
            _filter("workspace", "Only this workspace and what belongs to it."),
        ],
        responses={200: ManifestTextSerializer},
    )
    @action(detail=False, methods=["get"])
    def export(self, request: Request) -> Response:
        """Write what the caller may see as manifests, without secrets."""
        asked = request.query_params
        kinds = [_kind(word) for word in asked.get("kind", "").split(",") if word]
        name, workspace = asked.get("name", ""), asked.get("workspace", "")
        return Response({"text": manifests_export(request=request, kinds=kinds, name=name, workspace=workspace, now=self.now)})

    def _run(self, service: Any, data: dict[str, Any]) -> Response:
        files: dict[str, str] = {}
        for each in data["files"]:
            if each["name"] in files:
                raise InvalidInput({"files": [f"Two files are named {each['name']}."]})
            files[each["name"]] = each["text"]
        terms = Terms(
            manager=data.get("manager", "egs"),
            is_forced=data.get("is_forced", False),
            is_dry=data.get("is_dry", False),
            is_partial=data.get("is_partial", False),
            prune=data.get("prune", {}),
            secrets=data.get("secrets", {}),
        )
        try:
            report: Report = service(request=self.request, files=files, terms=terms)
        except ManifestsInvalid as error:
            self._record_refusals([fault["detail"] for fault in error.extra["faults"] if fault["code"] == "not_allowed"])
            raise
        if not terms.is_dry:
            self._record_refusals([fault.detail for fault in report.faults if fault.code == "not_allowed"])
        return Response(ManifestReportSerializer(report).data)

    def _record_refusals(self, details: list[str]) -> None:
        for why in dict.fromkeys(details):
            refusal_record(actor=actor_of(self.request), path=self.request.path, why=why, now=self.now)


def _kind(word: str) -> Kind:
    found = kind_of_word(word)
    if found is None:
        raise InvalidInput({"kind": [no_such_kind(word)]})
    return found
