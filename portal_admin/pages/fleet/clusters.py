"""Shows clusters and the health of their agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.db.models import Count, Q, Sum
from django.urls import reverse

from core.pages import words
from inventory.models import AgentSession, Cluster, Node, ReservationState, ReservedGpu, agent_is_live
from observability.prometheus.models import PrometheusSource
from observability.prometheus.services import sources_of
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import url_with
from portal_shared.shell import Shell

CLOCK_NOTED_S = 1.0
# Glyph, CSS class, word, and advice.
AGENT_STATES = {
    "live": ("step-passed", "step-passed", "Live", ""),
    "late": ("step-warned", "step-warned", "Late", "Nothing new starts here until it reports again."),
    "silent": (
        "step-warned",
        "step-warned",
        "Silent",
        "Running requests continue to their end. Check the agent's process and its network.",
    ),
    "locked": (
        "failed",
        "step-failed",
        "Locked",
        "Two processes used one credential. Find out which one is yours, then issue a join token.",
    ),
    "missing": ("step-waiting", "step-waiting", "Not joined", "Issue a join token and start its agent with it."),
}


@dataclass(frozen=True, slots=True)
class AgentStatus:
    state: str
    heard_at: datetime | None
    joined_at: datetime | None
    version: str
    clock_offset: str
    is_clock_off: bool
    known: int

    @property
    def glyph(self) -> str:
        return AGENT_STATES[self.state][0]

    @property
    def css(self) -> str:
        return AGENT_STATES[self.state][1]

    @property
    def word(self) -> str:
        return AGENT_STATES[self.state][2]

    @property
    def advice(self) -> str:
        return AGENT_STATES[self.state][3]

    @classmethod
    def of(cls, agent: AgentSession | None, *, now: datetime) -> AgentStatus:
        if agent is None:
            return cls("missing", None, None, "", "", False, 0)
        offset_s = agent.clock_offset_s
        return cls(
            state=_agent_state(agent, now),
            heard_at=agent.last_sync_at,
            joined_at=agent.joined_at,
            version=agent.agent_version,
            clock_offset="" if offset_s is None else _offset(offset_s),
            is_clock_off=abs(offset_s or 0.0) >= CLOCK_NOTED_S,
            known=agent.known_generation,
        )


@dataclass(frozen=True, slots=True)
class KindCount:
    shape: str
    node_count: int
    usable_count: int
    gpu_count: int
    gpus_held: int


@dataclass(frozen=True, slots=True)
class ClusterRow:
    id: UUID
    name: str
    url: str
    agent: AgentStatus
    is_enabled: bool
    rewound_at: datetime | None
    generation: int
    kinds: tuple[KindCount, ...]
    pods_stop: str  # these two are what `drain_url` and `prometheus_url` change
    prometheus: str
    token_url: str
    drain_url: str
    prometheus_url: str
    resume_url: str  # this and the two below: empty if the action does not apply
    disable_url: str
    enable_url: str

    @property
    def is_behind(self) -> bool:
        return self.agent.state != "missing" and self.agent.known < self.generation


@dataclass(frozen=True, slots=True)
class ClustersPage:
    shell: Shell
    clusters: tuple[ClusterRow, ...]
    form: forms.Form
    read_only: str  # why there are no buttons

    @classmethod
    def build(cls, request: PageRequest, form: forms.Form) -> ClustersPage:
        return cls(admin_shell(request, page="clusters"), tuple(cluster_rows(request.now)), form, why_not_write(request))


@dataclass(frozen=True, slots=True)
class TokenShown:
    """Shows a new join token, with the commands that use it."""

    shell: Shell
    cluster: str
    token: str
    expires_at: datetime
    commands: str


def join_commands(hub: str) -> str:
    """docs/how-to/kubernetes.md has the same commands. They also work for an agent that joins again."""
    apply = "--dry-run=client -o yaml | kubectl apply --server-side -f -"
    return "\n".join(
        (
            f"kubectl create namespace egs-system {apply}",
            f"kubectl -n egs-system create secret generic egs-join-token --from-file=token {apply}",
            f"deploy/agent/install --hub {hub} --image registry.example.org/egs-agent:1",
        )
    )


def cluster_rows(now: datetime) -> list[ClusterRow]:
    held: Any = ReservedGpu.objects.filter(state=ReservationState.HELD).order_by()
    rows: Any = held.values_list("gpu__node__cluster", "gpu__node__shape").annotate(n=Count("pk"))
    gpus_held = {(cluster, shape): count for cluster, shape, count in rows}
    kinds: dict[UUID, list[KindCount]] = defaultdict(list)
    nodes: Any = Node.objects.filter(gone_at=None).order_by("shape").values_list("cluster", "shape")
    usable = Count("pk", filter=Q(is_ready=True, cordoned_at=None))
    for cluster, shape, count, usable_count, gpu_count in nodes.annotate(nodes=Count("pk"), usable=usable, gpu_sum=Sum("gpu_count")):
        kind = KindCount(shape or "no GPUs", count, usable_count, gpu_count, gpus_held.get((cluster, shape), 0))
        kinds[cluster].append(kind)
    clusters = list(Cluster.objects.select_related("agent").order_by("name"))
    return [_row(source.cluster, kinds[source.cluster_id], source, now) for source in sources_of(clusters)]


def _row(cluster: Cluster, kinds: Iterable[KindCount], source: PrometheusSource, now: datetime) -> ClusterRow:
    at = [cluster.pk]
    grace, force = words.duration(cluster.drain_grace_s), words.duration(cluster.drain_force_after_s)
    return ClusterRow(
        id=cluster.pk,
        name=cluster.name,
        url=url_with(reverse("admin-inventory"), {"cluster": cluster.name}),
        agent=AgentStatus.of(getattr(cluster, "agent", None), now=now),
        is_enabled=cluster.is_enabled,
        rewound_at=cluster.rewound_at,
        generation=cluster.generation,
        kinds=tuple(kinds),
        pods_stop=f"deleted after {grace}, by force after {force}",
        prometheus=f"{source.url}, beyond {words.duration(source.beyond_s)}" if source.url else "none",
        token_url=reverse("admin-join-token", args=at),
        drain_url=reverse("admin-cluster-drain", args=at),
        prometheus_url=reverse("admin-cluster-prometheus", args=at),
        resume_url=reverse("admin-cluster-resume", args=at) if cluster.rewound_at else "",
        disable_url=reverse("admin-cluster-disable", args=at) if cluster.is_enabled else "",
        enable_url="" if cluster.is_enabled else reverse("admin-cluster-enable", args=at),
    )


def _offset(offset_s: float) -> str:
    return "under 0.01 s" if abs(offset_s) < 0.01 else f"{offset_s:+.2f} s"


def _agent_state(agent: AgentSession, now: datetime) -> str:
    if agent.locked_at is not None:
        return "locked"
    if agent_is_live(agent, now, within_s=settings.EGS_AGENT_STALE_S):
        return "live"
    return "late" if agent_is_live(agent, now, within_s=settings.EGS_AGENT_UNREACHABLE_S) else "silent"
