"""Serves the REST endpoints of `jobs/`."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import Scope
from accounts.policy import Verb
from core.errors import InvalidInput
from core.rest.fields import COUNT, Flag, FreeForm, Id, Nothing, StrictSerializer, Text, ToldNumber, Verbatim, count_given
from core.rest.filters import ReferenceFilter, Words, YesNo
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.views import ApiViewSet
from gpr.allocation.stored_plan import plan_turn
from gpr.jobs.logs import LogPart, log_read
from gpr.jobs.manifest_text import objects_of_text
from gpr.jobs.selectors import OVER, job_for, jobs_visible_to, notebooks_visible_to
from gpr.jobs.services import NotebookAccess, job_cancel, job_create, job_start_in, notebook_open
from gpr.jobs.spec import FIELDS, USER_ID_MAX, WORDS_MAX, JobSpec
from gpr.models import GprState, Job, JobOutcome, JobState
from gpr.models.jobs import PHASES, RETRIES_MAX, USER_ID_DEFAULT
from gpr.requests.inputs import GprCreate, spec_of_create
from gpr.requests.selectors import gpr_for
from protocol.manifests.objects import MANIFEST_KINDS
from protocol.tenancy.workloads import NOTEBOOK_HOME, WorkloadKind

KIND_HELP = "The object that it becomes; other kinds than Job need a cluster that serves them. Manifest: `manifest` has the objects."
MANIFEST_HELP = (
    "Objects of Kubernetes, without namespace, as a list or as YAML. The first that can finish says how the job ends. They may be "
    f"{', '.join(kind for _, kind in MANIFEST_KINDS)}."
)


class Strings(serializers.ListField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Verbatim(), max_length=WORDS_MAX, **kwargs)


class Texts(serializers.DictField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Verbatim(), **kwargs)


@extend_schema_field({"oneOf": [{"type": "array", "items": {"type": "object", "additionalProperties": {}}}, {"type": "string"}]})
class ObjectsField(serializers.ListField):
    """Takes a list, or the same as YAML."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=FreeForm(), **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, str):
            return super().to_internal_value(data)
        try:
            return objects_of_text(data)
        except InvalidInput as error:
            raise serializers.ValidationError(error.extra["errors"]["manifest"]) from None


class ContainerFields(StrictSerializer):
    image = Verbatim(required=False, max_length=500)
    command = Strings(required=False, help_text="Program and arguments; empty: those of the image.")
    env = Texts(required=False, help_text="Variables. Members of the workspace see them: put secrets into `secrets`.")
    secrets = Strings(required=False, help_text="Secrets of the namespace whose values it gets as variables.")
    volumes = Texts(required=False, help_text="By PersistentVolumeClaim of the namespace: the path where it is mounted.")
    pull_secret = Text(required=False, allow_blank=True, help_text="The Secret of the namespace with which the image is pulled.")
    user_id = ToldNumber(
        bounds=(1, USER_ID_MAX), required=False, help_text=f"The user of its processes, never root. Default: {USER_ID_DEFAULT}."
    )
    retries = ToldNumber(
        bounds=(0, RETRIES_MAX), required=False, help_text="Number of restarts after a failure. Evictions do not count. Default: 0."
    )
    checkpoint = Strings(required=False, help_text="A command that runs in each pod before it is ended.")
    namespace = Text(required=False, allow_blank=True, help_text="Empty: the first of the workspace in the cluster.")


class JobFields(ContainerFields):
    kind = serializers.ChoiceField(choices=[(kind.value, kind.value) for kind in WorkloadKind], required=False, help_text=KIND_HELP)
    manifest = ObjectsField(required=False, help_text=MANIFEST_HELP)
    releases_box = Flag(required=False, help_text="Give the nodes back when it has finished. Default: true; in the box of another: false.")


class JobCreate(JobFields, GprCreate):
    """Takes the fields of a request to `gprs/`, and what is to run in its box."""


class JobInBox(JobFields):
    gpr = Id(help_text="The request in whose box it runs. It may wait, and has no job yet.")


class NotebookCreate(ContainerFields, GprCreate):
    """A notebook has one node."""

    volumes = Texts(required=False, help_text=f"By PersistentVolumeClaim of the namespace: the path. {NOTEBOOK_HOME} is its home.")


class NotebookAccessSerializer(OutputSerializer[NotebookAccess]):
    token = serializers.CharField(help_text="Whoever has it may do all that the notebook may.")
    url = serializers.CharField(help_text="By the ingress of the cluster, without the token. Empty: it has none.")
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    service = serializers.CharField(help_text="The name of its Service and its Job, to forward a port to.")
    port = serializers.IntegerField()


class JobSerializer(ModelOutputSerializer[Job]):
    name = serializers.CharField(help_text="That of its GPR.")
    slice = serializers.CharField(source="gpr.slice.name")
    slice_id = serializers.UUIDField(source="gpr.slice_id")
    owner = serializers.CharField(source="gpr.owner.name")
    owner_id = serializers.UUIDField(source="gpr.owner_id")
    gpr_state = serializers.ChoiceField(choices=GprState.choices, source="gpr.state")
    cluster = serializers.CharField(source="gpr.cluster.name", default=None, allow_null=True)
    nodes = serializers.IntegerField(source="gpr.nodes")
    run = serializers.IntegerField(source="gpr.run", help_text="How often it was started.")
    state = serializers.ChoiceField(choices=JobState.choices)
    phase = serializers.ChoiceField(choices=PHASES, allow_blank=True, help_text="The agent's last view; empty: none yet.")
    message = serializers.CharField(help_text="A sentence that says what keeps it from running, or why it failed.")
    outcome = serializers.ChoiceField(choices=JobOutcome.choices, allow_blank=True)
    command = serializers.ListField(child=serializers.CharField())
    env = serializers.DictField(child=serializers.CharField())
    secrets = serializers.ListField(child=serializers.CharField())
    volumes = serializers.DictField(child=serializers.CharField())
    checkpoint = serializers.ListField(child=serializers.CharField())
    manifest = serializers.ListField(child=serializers.DictField(), source="objects_wanted", help_text="Objects of Kubernetes.")
    active_at = serializers.DateTimeField(source="gpr.active_at", allow_null=True)
    ends_at = serializers.DateTimeField(source="gpr.ends_at", allow_null=True)

    class Meta:
        model = Job
        fields = [
            *("id", "name", "slice", "slice_id", "owner", "owner_id", "gpr_id", "gpr_state", "cluster", "nodes", "run"),
            *("kind", "image", "command", "env", "secrets", "volumes", "pull_secret", "user_id", "retries", "checkpoint", "manifest"),
            *("namespace", "releases_box", "state", "phase", "message", "pods_running", "outcome"),
            *("created_at", "active_at", "ends_at", "finished_at"),
        ]


class LogSerializer(OutputSerializer[LogPart]):
    text = serializers.CharField()
    next = serializers.IntegerField(help_text="Give it as `since` to read on.")
    dropped = serializers.BooleanField(help_text="Whether output between `since` and the text is not kept any more.")
    is_live = serializers.BooleanField(help_text="Whether more may come.")


class NotebookFilter(filters.FilterSet):
    name = filters.CharFilter("gpr__name", lookup_expr="icontains", label="Part of the name.")
    state = Words(choices=JobState.choices)
    slice = ReferenceFilter("gpr__slice")
    gpr = ReferenceFilter("gpr")
    ended = YesNo(pick=lambda is_true: Q(state__in=OVER) if is_true else ~Q(state__in=OVER))


class JobFilter(NotebookFilter):
    kind = Words(choices=[(kind.value, kind.value) for kind in WorkloadKind])


class BoxWorkViewSet(mixins.ListModelMixin, ApiViewSet[Job]):
    queryset = Job.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilter
    write_scope = Scope.GPR_WRITE
    lookup_url_kwarg = "ref"
    own_transactions = ("create",)  # as for a GPR
    keyless_actions: ClassVar[tuple[str, ...]] = ("cancel",)

    def get_queryset(self) -> QuerySet[Job]:
        return jobs_visible_to(actor_of(self.request))

    def retrieve(self, request: Request, ref: str) -> Response:
        """Takes an id or a name."""
        return self._answer(ref)

    def _file(self, data: dict[str, Any]) -> Response:
        actor, said = actor_of(self.request), _said(data)
        spec = spec_of_create(data, actor=actor)
        what = JobSpec(**{**(spec.template.job if spec.template else {}), **said})
        with plan_turn(), transaction.atomic():
            made = job_create(actor=actor, spec=spec, what=what, now=self.now)
            self.remember(made.pk)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, ref: str) -> Response:
        """Cancel the job: its waiting request is withdrawn, or its nodes are given back."""
        self.body(Nothing)
        actor = actor_of(request)
        job_cancel(job=self._job(ref, write=True), actor=actor, now=self.now)
        return self._answer(ref)

    @extend_schema(
        parameters=[
            OpenApiParameter("rank", COUNT, description="The pod, by its index. Default: 0."),
            OpenApiParameter("since", COUNT, description="`next` of an earlier answer. Default: 0."),
        ],
        responses={200: LogSerializer},
    )
    @action(detail=True, methods=["get"], filterset_class=None)
    def logs(self, request: Request, ref: str) -> Response:
        """Read the output of one pod. While somebody reads, its agent sends what comes; the last 256 KiB of each pod are kept."""
        rank, since = (count_given(request.query_params, name) or 0 for name in ("rank", "since"))
        part = log_read(job=self._job(ref), rank=rank, since=since, now=self.now)
        return Response(LogSerializer(part).data)

    def _answer(self, ref: str | UUID, **kwargs: Any) -> Response:
        return Response(JobSerializer(self._job(ref)).data, **kwargs)

    def _job(self, ref: str | UUID, *, write: bool = False) -> Job:
        return job_for(actor_of(self.request), ref, write=write)


class JobViewSet(BoxWorkViewSet):
    @extend_schema(request=JobCreate, responses={201: JobSerializer})
    def create(self, request: Request) -> Response:
        """File a GPR and what is to run in its box. The job starts when the nodes are there, and ends with the box."""
        return self._file(self.body(JobCreate))

    @extend_schema(request=JobInBox, responses={201: JobSerializer})
    @action(detail=False, methods=["post"], url_path="in-box")
    def in_box(self, request: Request) -> Response:
        """Run something in the box of a request that is there, instead of filing one. It starts when the box is open."""
        data, actor = self.body(JobInBox), actor_of(request)
        gpr = gpr_for(actor, data.pop("gpr"), verb=Verb.CHANGE)
        what = JobSpec(**_said({"releases_box": False, **data}))
        return self._answer(job_start_in(gpr=gpr, what=what, actor=actor, now=self.now).pk, status=status.HTTP_201_CREATED)


class NotebookViewSet(BoxWorkViewSet):
    filterset_class = NotebookFilter
    keyless_actions: ClassVar[tuple[str, ...]] = ("cancel", "open")

    def get_queryset(self) -> QuerySet[Job]:
        return notebooks_visible_to(actor_of(self.request))

    @extend_schema(request=NotebookCreate, responses={201: JobSerializer})
    def create(self, request: Request) -> Response:
        """File a GPR and a notebook that serves JupyterLab in its box."""
        return self._file({"nodes": 1, **self.body(NotebookCreate), "kind": WorkloadKind.NOTEBOOK.value})

    @extend_schema(request=Nothing, responses={200: NotebookAccessSerializer})
    @action(detail=True, methods=["post"])
    def open(self, request: Request, ref: str) -> Response:
        """Read how to reach a notebook that runs, and its token. Only its owner may, and each time is recorded."""
        self.body(Nothing)
        access = notebook_open(job=self._job(ref), actor=actor_of(request), now=self.now)
        return Response(NotebookAccessSerializer(access).data)

    def _job(self, ref: str | UUID, *, write: bool = False) -> Job:
        return job_for(actor_of(self.request), ref, write=write, notebook=True)


def _said(data: dict[str, Any]) -> dict[str, Any]:
    """Takes the fields of what runs out of the body."""
    if "manifest" in data:
        data["objects_wanted"] = data.pop("manifest")
    return {name: data.pop(name) for name in FIELDS if name in data}
