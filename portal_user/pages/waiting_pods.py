"""GPU pods that wait for a request, as agents report them; and Jobs that will fail before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from django.conf import settings

from core.pages import words
from gpr.models import PROVISIONED, Gpr, GprState
from inventory.models import agent_is_live
from portal_shared.access import PageRequest, moment_formatter
from protocol.decoding import convert
from protocol.tenancy.waiting_pods import JobWaiting, PodsWaiting
from slices.models import Namespace

S = GprState
SHOWS = frozenset({S.PENDING_APPROVAL, S.QUEUED, S.PROVISIONING, S.ACTIVE})


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Shows the waiting pods of one namespace, their reasons, and warnings about Jobs."""

    text: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def waiting_pods(gpr: Gpr, rows: Iterable[Namespace], request: PageRequest) -> tuple[WaitingPods, ...]:
    """Returns pods in those namespaces of `namespaces_of` in which some wait, or may."""
    return tuple(pods for row in rows if (pods := _pods(row, gpr, request)))


def _pods(row: Namespace, gpr: Gpr, request: PageRequest) -> WaitingPods | None:
    """The last report of a silent cluster is not shown. Returns None without a readable report."""
    if not agent_is_live(getattr(row.cluster, "agent", None), request.now, within_s=settings.EGS_AGENT_UNREACHABLE_S):
        return WaitingPods(f"{row.cluster.name} is silent: which GPU pods of {row.name} wait there is not known.", (), ())
    if row.waiting is None:
        return None
    try:
        seen = convert(row.waiting, PodsWaiting)
    except msgspec.ValidationError:  # an older release wrote it
        return None
    text = f"{words.plural(seen.count, 'GPU pod')} of {row.name} in {row.cluster.name} {'waits' if seen.count == 1 else 'wait'}:"
    # A running GPR accepts pods now.
    warnings = () if gpr.state in PROVISIONED else tuple(_warnings(seen.jobs, gpr.planned_start_at, request))
    return WaitingPods(text, tuple(_reasons(seen)), warnings)


def namespaces_of(gpr: Gpr) -> list[Namespace]:
    """Returns namespaces in which its pods run or may run."""
    rows = Namespace.objects.filter(slice=gpr.slice_id).select_related("cluster__agent")
    if gpr.state in PROVISIONED:
        return list(rows.filter(cluster=gpr.cluster_id))
    allowed = list(gpr.clusters.all())
    return list(rows.filter(cluster__in=allowed) if allowed else rows)


def _reasons(seen: PodsWaiting) -> Iterator[str]:
    for each in seen.reasons:
        others = each.count - len(each.names)
        yield f"{', '.join(each.names)}{f' and {others} more' if others > 0 else ''}. {each.text}"
    if (rest := seen.count - sum(each.count for each in seen.reasons)) > 0:
        yield f"{rest} more, for other reasons."


def _warnings(jobs: Sequence[JobWaiting], starts_at: datetime | None, request: PageRequest) -> Iterator[str]:
    """Warns also when the start is unknown; Jobs that have failed already are not included."""
    say = moment_formatter(request)
    for job in jobs:
        fails_at = datetime.fromtimestamp(job.fails_s, UTC)
        if request.now < fails_at and (starts_at is None or fails_at <= starts_at):
            start = f"they are expected to start at {say(starts_at)}" if starts_at else "their start is not known yet"
            yield (
                f"Job {job.name} fails at {say(fails_at)}: its activeDeadlineSeconds runs while its pods wait, and {start}. "
                "Set a longer one, or create the Job again without it."
            )
