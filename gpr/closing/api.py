from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import Verb
from core.rest.fields import Flag, Nothing, StrictSerializer, Text
from core.rest.references import one_by_reference
from core.rest.views import ApiViewSet
from gpr.closing.selectors import endings_of
from slices.closing.services import project_close, project_restore, slice_close, slice_restore
from slices.models import Life, Project, Slice
from slices.selectors import project_run_by, projects_visible_to, slice_for, slice_run_by


class EndingSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField(), help_text="The first 100.")


class EndingsSerializer(serializers.Serializer[Any]):
    """Lists everything that archiving or removing ends. Namespaces, members, invitations and workspaces are given up only by a removal."""

    running = EndingSerializer(help_text="GPRs that hold nodes.")
    waiting = EndingSerializer(help_text="GPRs that wait for a start or an approval.")
    booked = EndingSerializer(help_text="Bookings that have not started.")
    series = EndingSerializer(help_text="Series of bookings.")
    kubeconfigs = EndingSerializer(help_text="Names of their users.")
    namespaces = EndingSerializer()
    members = EndingSerializer()
    invitations = EndingSerializer()
    workspaces = EndingSerializer(help_text="Only a project has them.")


class ClosingSerializer(serializers.Serializer[Any]):
    life = serializers.ChoiceField(choices=Life.choices)
    closed_at = serializers.DateTimeField(allow_null=True)
    is_drained = serializers.BooleanField(help_text="Whether running GPRs are ended at once, instead of running to their ends.")
    settled_at = serializers.DateTimeField(allow_null=True, help_text="When the last of it had ended; null: not yet, or it is open.")
    ends = EndingsSerializer(help_text="Everything that has to end.")


class ClosingTerms(StrictSerializer):
    drain = Flag(required=False, help_text="End running GPRs at once; default: they run to their ends.")
    why = Text(max_length=150, required=False)


class ClosingViewSet(ApiViewSet[Any]):
    serializer_class = ClosingSerializer
    keyless_actions: ClassVar[tuple[str, ...]] = ("archive", "remove", "restore")  # a repetition changes nothing, or is refused

    def answer(self, owner: Project | Slice) -> Response:
        names = ("life", "closed_at", "is_drained", "settled_at")
        return Response(ClosingSerializer({**{name: getattr(owner, name) for name in names}, "ends": endings_of(owner)}).data)

    def terms(self) -> dict[str, Any]:
        data = self.body(ClosingTerms)
        return {"drain": data.get("drain", False), "why": data.get("why", ""), "actor": actor_of(self.request), "now": self.now}


class SliceClosingViewSet(ClosingViewSet):
    queryset = Slice.objects.none()
    admin_actions = ("restore",)

    def retrieve(self, request: Request, slice: str) -> Response:
        """Tells what archiving or removing the workspace would end, and how far it is."""
        return self.answer(slice_run_by(actor_of(request), slice, verb=Verb.INSPECT))

    @extend_schema(request=ClosingTerms, responses={200: ClosingSerializer})
    def archive(self, request: Request, slice: str) -> Response:
        """Close the workspace until it is restored. It takes no requests from now on; what waits is canceled, and what runs ends first."""
        return self._close(slice, Life.ARCHIVED)

    @extend_schema(request=ClosingTerms, responses={200: ClosingSerializer})
    def remove(self, request: Request, slice: str) -> Response:
        """Close the workspace for good. When its last box has ended, it loses namespaces, people and quotas; its history stays."""
        return self._close(slice, Life.REMOVED)

    @extend_schema(request=Nothing, responses={200: ClosingSerializer})
    def restore(self, request: Request, slice: str) -> Response:
        """Open an archived workspace again."""
        self.body(Nothing)
        found = slice_for(actor_of(request), slice)
        slice_restore(slice_=found, actor=actor_of(request), now=self.now)
        return self.answer(found)

    def _close(self, reference: str, to: Life) -> Response:
        found = slice_run_by(actor_of(self.request), reference)
        slice_close(slice_=found, to=to, **self.terms())
        return self.answer(found)


class ProjectClosingViewSet(ClosingViewSet):
    queryset = Project.objects.none()
    admin_actions = ("archive", "remove", "restore")

    def retrieve(self, request: Request, project: str) -> Response:
        """Tells what archiving or removing the project and its workspaces would end, and how far it is."""
        return self.answer(project_run_by(actor_of(request), project))

    @extend_schema(request=ClosingTerms, responses={200: ClosingSerializer})
    def archive(self, request: Request, project: str) -> Response:
        """Archive the project with all its workspaces."""
        return self._close(project, Life.ARCHIVED)

    @extend_schema(request=ClosingTerms, responses={200: ClosingSerializer})
    def remove(self, request: Request, project: str) -> Response:
        """Remove the project with all its workspaces."""
        return self._close(project, Life.REMOVED)

    @extend_schema(request=Nothing, responses={200: ClosingSerializer})
    def restore(self, request: Request, project: str) -> Response:
        """Open an archived project again, with the workspaces that were archived with it."""
        self.body(Nothing)
        found = self._project(project)
        project_restore(project=found, actor=actor_of(request), now=self.now)
        return self.answer(found)

    def _close(self, reference: str, to: Life) -> Response:
        found = self._project(reference)
        project_close(project=found, to=to, **self.terms())
        return self.answer(found)

    def _project(self, reference: str) -> Project:
        return one_by_reference(projects_visible_to(actor_of(self.request)), reference, what="project")
