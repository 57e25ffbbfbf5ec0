"""`egs admin` has the commands of administrators. Its commands follow from the API, so each act of the API is one of the terminal's."""

from __future__ import annotations

from typing import Any, ClassVar

import typer

from egs_client.cli.lazy import LazyGroup

# Name -> where it is in the SDK, which operations (none named: all), and what help says.
GROUPS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "gpr": ("gprs", ("approve", "reject", "evict", "priority", "move", "replace_node", "bulk"), "Approve, reject, evict, move, bulk."),
    "node": ("nodes", ("get", "cordon", "uncordon", "force_release"), "Cordon, uncordon, force-release."),
    "node-step": ("nodes.steps", (), "Attempts at entry and exit steps on a node."),
    "cluster": ("clusters", (), "Clusters and their agents' join tokens."),
    "alert": ("alerts", (), "Alerts; acknowledge them."),
    "alert-rule": ("alert_rules", (), "Which rules fire alerts, and whom they tell."),
    "alert-silence": ("alert_silences", (), "Silences: alerts of which EGS tells nobody for a while."),
    "maintenance": ("maintenance", (), "Announce and cancel maintenance; the preview names the requests that it moves."),
    "supply": ("supplies", (), "Where more nodes can be ordered."),
    "supply-order": ("supply_orders", (), "Orders of nodes."),
    "project": ("projects", (), "Projects."),
    "project-admin": ("projects.admins", (), "Administrators of a project."),
    "workspace": ("slices", (), "Workspaces, their policy and clusters."),
    "workspace-request": ("workspace_requests", (), "Requests for workspaces."),
    "member": ("slices.members", (), "Members of a workspace."),
    "invitation": ("slices.invitations", (), "Invitations to a workspace."),
    "group": ("slices.groups", (), "Groups whose people are members of a workspace."),
    "namespace": ("slices.namespaces", (), "Namespaces of a workspace."),
    "policy": ("policies", (), "Policies; the preview names the requests that a change would break."),
    "policy-version": ("policies.versions", (), "Who changed a policy when, and how."),
    "approval": ("approvals", (), "Requests that wait for a decision."),
    "deputy": ("deputies", (), "Who decides for an approver who is away."),
    "quota": ("quotas", (), "Guaranteed and most GPUs."),
    "budget": ("budgets", (), "GPU-hours of a period."),
    "price": ("usage.prices", (), "Prices of a GPU-hour."),
    "template": ("templates", (), "Templates of requests: those of a workspace, or of the platform for all workspaces."),
    "check-policy": ("check_policies", (), "Which checks nodes have to pass."),
    "remediation": ("remediation", (), "Nodes that are set aside: why, and how they come back."),
    "remediation-policy": ("remediation_policies", (), "Policies of repairs: the actions that EGS may take on nodes that are set aside."),
    "prometheus": ("prometheus", (), "The Prometheus of each cluster, for long charts of GPUs."),
    "booking-series": ("booking_series", (), "Bookings that repeat."),
    "defragmentation": ("defragmentation", (), "Moves that would make whole nodes free."),
    "eviction": ("evictions", (), "Evictions."),
    "user": ("users", (), "Users."),
    "role": ("roles", (), "Roles that groups give."),
    "audit": ("audit", (), "Who did what from where."),
}


class AdminGroup(LazyGroup):
    texts: ClassVar[dict[str, str]] = {name: text for name, (_, _, text) in GROUPS.items()}

    def build(self, name: str) -> Any:
        from egs_client.cli.acts.commands import group_of

        path, only, text = GROUPS[name]
        app = group_of(path, only=only)
        app.info.help = text
        return typer.main.get_group(app)


app = typer.Typer(
    add_completion=False,
    cls=AdminGroup,
    help="Do what administrators may, each act with a preview.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
apps = {"admin": app}


@app.callback()
def admin() -> None:
    """Do what administrators do, each act with a preview."""
