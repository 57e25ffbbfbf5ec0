"""What every node that enters for a GPR needs: a cluster that takes something new, and the namespaces that are let in."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from egs.errors import Conflict
from gpr.models import Gpr
from inventory.models import AgentSession, Cluster, agent_is_live
from slices.models import Namespace, Slice


def starting_cluster(name: str, now: datetime) -> Cluster:
    """Raises Conflict where nothing may start: its agent has been silent, or knows more than this database."""
    cluster = Cluster.objects.get(name=name)
    agent = AgentSession.objects.filter(cluster=cluster).first()
    if not agent_is_live(agent, now, within_s=settings.EGS_AGENT_STALE_S):
        raise Conflict(f"The agent of cluster {name} has not been heard lately.")
    if not cluster.is_enabled or cluster.rewound_at is not None:
        raise Conflict(f"Cluster {name} takes nothing new at present.")
    return cluster


def namespaces_in(gpr: Gpr, cluster: Cluster) -> list[str]:
    """Who binds or unbinds one meanwhile waits for the start to be over, and tells the agent then."""
    Slice.objects.select_for_update(no_key=True).get(pk=gpr.slice_id)
    rows = Namespace.objects.filter(slice_id=gpr.slice_id, cluster=cluster)
    return list(rows.order_by("name").values_list("name", flat=True))


def entry_steps(gpr: Gpr) -> tuple[str, ...]:
    return settings.EGS_ENTRY_STEPS if gpr.run_checks else settings.EGS_ENTRY_STEPS_SHORT
