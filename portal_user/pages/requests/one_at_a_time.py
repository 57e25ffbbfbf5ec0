"""Explains a request that waits only because its workspace runs one request at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.urls import reverse

from accounts.policy import own_workspace_ids
from core.words import are, plural
from gpr.queue.explanations import VisibleExplanation
from gpr.requests.spec import GprSpec
from planner.plan import Reason
from portal_shared.access import PageRequest
from portal_shared.forms.questions import QuestionLink
from portal_user.pages.capacity import Stock
from slices.models import Membership, Role, Slice

OTHERS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class OneAtATime:
    text: str
    ways: tuple[QuestionLink, ...]

    @classmethod
    def of(cls, request: PageRequest, spec: GprSpec, told: VisibleExplanation, stock: Sequence[Stock]) -> OneAtATime | None:
        """Returns None if anything else holds it back."""
        free = [kind for kind in stock if kind.free_count >= spec.nodes and _fits(spec, kind)]
        if told.reason != Reason.WAITS_FOR_SLICE or not free:
            return None
        most = max(free, key=lambda kind: kind.free_count)
        ahead = told.blockers[0].name if told.blockers else "an earlier request"
        text = (
            f"{plural(most.free_count, 'node')} of {most.shape} in {most.cluster} {are(most.free_count)} free now, "
            f"but workspace {spec.slice.name} runs one request at a time: this one waits for {ahead}."
        )
        return cls(text, (*_ahead(told), *_elsewhere(request, spec.slice, most.cluster)))


def _fits(spec: GprSpec, kind: Stock) -> bool:
    if spec.clusters and kind.cluster not in {cluster.name for cluster in spec.clusters}:
        return False
    if spec.node_type not in {"", kind.node_type} or (spec.rdma and not kind.rdma):
        return False
    is_shape = kind.shape == spec.shape if spec.shape else kind.memory_gib >= (spec.min_gpu_memory_gib or 0)
    return is_shape and kind.gpus_per_node >= (spec.gpus_per_node or 0)


def _ahead(told: VisibleExplanation) -> Iterator[QuestionLink]:
    for blocker in told.blockers[:1]:
        if blocker.id:
            yield QuestionLink(f"{'Release' if blocker.is_running else 'Open'} {blocker.name}", reverse("gpr", args=[blocker.id]))


def _elsewhere(request: PageRequest, slice_: Slice, cluster: str) -> Iterator[QuestionLink]:
    """Returns the reader's other workspaces that may use these nodes."""
    rows = Membership.objects.filter(
        user=request.user, role__in=[Role.EDITOR, Role.OWNER], slice__in=own_workspace_ids(request.user), slice__clusters__name=cluster
    )
    for name in rows.exclude(slice=slice_).order_by("slice__name").values_list("slice__name", flat=True)[:OTHERS_SHOWN]:
        yield QuestionLink(f"Request it in {name}", reverse("gpr-create", args=[name]))
