"""`egs workspace` and `egs kubeconfig` show workspaces and give access to their clusters."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import UNSET, UnsetType

from egs_client.cli import early, options
from egs_client.cli.exits import Refused, say
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.session import chosen, client, settled, workspace_of
from egs_client.cli.words import span, when, yes
from egs_client.errors import Conflict, WaitedTooLong

if TYPE_CHECKING:
    from egs_client.models.slices import KubeconfigText, Member, Namespace, Slice
    from egs_client.sync.client import Client

app = typer.Typer(add_completion=False, help="Workspaces.", no_args_is_help=True, rich_markup_mode=None)
kubeconfig_app = typer.Typer(add_completion=False, rich_markup_mode=None)
apps = {"workspace": app, "kubeconfig": kubeconfig_app}
NOT_MADE = "kubeconfig_not_made"
MADE_WITHIN_S, LOOK_S = 60.0, 0.5

Name = Annotated[
    str | None,
    typer.Argument(help=options.WORKSPACE_HELP, metavar="WORKSPACE", autocompletion=options.workspaces),
]
WORKSPACES: list[Column[Slice]] = [
    Column("NAME", lambda slice_: slice_.name),
    Column("PROJECT", lambda slice_: slice_.project),
    Column("ROLE", lambda slice_: slice_.role or ""),
    Column("LIFE", lambda slice_: slice_.life),
    Column("CLUSTERS", lambda slice_: ", ".join(slice_.clusters)),
    Column("ENDS", lambda slice_: when(slice_.ends_at) if slice_.ends_at else "", is_wide=True),
    Column("ID", lambda slice_: slice_.id, is_wide=True),
]
MEMBERS: list[Column[Member]] = [Column("NAME", lambda member: member.name), Column("ROLE", lambda member: member.role)]
NAMESPACES: list[Column[Namespace]] = [
    Column("NAME", lambda namespace: namespace.name),
    Column("CLUSTER", lambda namespace: namespace.cluster),
    Column("STATE", lambda namespace: namespace.state),
]


@app.command("list")
def list_(output: Output = "table") -> None:
    """List your workspaces."""
    with client() as egs:
        show_list(
            egs.slices.list().all(), WORKSPACES, output=output, kind="workspace", none="You are in no workspace: egs workspace request"
        )


@app.command("get", hidden=True)
@app.command("describe", hidden=True)
@app.command()
def show(workspace: Name = None, output: Output = "table") -> None:
    """Show a workspace and its policy."""
    with client() as egs:
        found = egs.slices.get(workspace_of(workspace, egs))
    lines = [
        ("Name", found.name),
        ("Project", found.project),
        ("Your role", found.role or ""),
        ("Clusters", ", ".join(found.clusters)),
        ("Home", found.home or ""),
        ("Longest box", f"{span(found.duration_max_s)}; beyond {span(found.duration_approval_s)} it needs approval"),
        ("Approval", f"beyond {found.nodes_approval} nodes, {found.gpus_approval} GPUs or priority {found.priority_approval}"),
        ("May wait", f"{found.queued_max} requests"),
        ("May evict", yes(found.may_evict)),
        ("May order", yes(found.may_order)),
        ("Ends", when(found.ends_at) if found.ends_at else "never"),
    ]
    show_one(found, lines, output=output, kind="workspace")


@app.command()
def use(workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", autocompletion=options.workspaces)]) -> None:
    """Make this the one that commands mean when they name none."""
    from egs_client.config import profiles_load, profiles_save

    with client() as egs:
        name = egs.slices.get(workspace).name
    profiles = profiles_load()
    profile = profiles.profiles.get(chosen.profile or profiles.current)
    if profile is None:
        raise Refused("There is no profile to keep that in: egs login, or set EGS_WORKSPACE.")
    profile.workspace = name
    profiles_save(profiles)
    print(f"Commands mean {name} now when they name no workspace.")


@app.command()
def members(workspace: Name = None, output: Output = "table") -> None:
    """List its members."""
    with client() as egs:
        rows = egs.slices.members.list(workspace_of(workspace, egs)).all()
    show_list(rows, MEMBERS, output=output, kind="member", none="It has no member.")


@app.command()
def namespaces(workspace: Name = None, output: Output = "table") -> None:
    """List its namespaces."""
    with client() as egs:
        rows = egs.slices.namespaces.list(workspace_of(workspace, egs)).all()
    show_list(rows, NAMESPACES, output=output, kind="namespace", none="It has no namespace.")


@app.command()
def request(
    name: Annotated[str, typer.Argument(help="Name of the new workspace.")],
    project: Annotated[str, typer.Option(help="Its project; made if there is none.")],
    why: Annotated[str, typer.Option(help="What it is for.")],
    output: Output = "table",
) -> None:
    """Ask administrators for a workspace."""
    with client() as egs, settled():
        made = egs.workspace_requests.create(name=name, project=project, purpose=why)
    show_one(made, [("Name", made.name), ("State", made.state), ("Id", made.id)], output=output, kind="workspace-request")


@kubeconfig_app.command()
def kubeconfig(
    workspace: options.Workspace = None,
    cluster: Annotated[
        str | None, typer.Option(help="The cluster that it is for. Default: the only one.", autocompletion=options.clusters)
    ] = None,
    hours: Annotated[float | None, typer.Option("--hours", "-H", help="After how many hours it ends.", min=0.2)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-f", help="Write it here, for you alone, instead of printing it.")] = None,
) -> None:
    """Get a kubeconfig for a workspace. It is shown once, and ends by itself."""
    with client() as egs:
        name = workspace_of(workspace, egs)
        if cluster is None:
            known = egs.slices.get(name).clusters
            if len(known) != 1:
                raise Refused(f"Name a cluster: --cluster {' or --cluster '.join(known)}" if known else f"{name} has no cluster.")
            cluster = known[0]
        with settled():
            made = kubeconfig_made(egs, name, cluster, options.hours_s(hours) if hours else UNSET)
    if out is None:
        print(made.kubeconfig, end="")
        return
    handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(handle, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(made.kubeconfig)
    say(f"It is in {out}, and good until {when(made.expires_at)}: export KUBECONFIG={out.resolve()}")


def kubeconfig_made(egs: Client, workspace: str, cluster: str, duration_s: int | UnsetType) -> KubeconfigText:
    """Raises WaitedTooLong where no agent makes it."""
    early.over()
    asked = egs.slices.kubeconfig.create(workspace, cluster=cluster, duration_s=duration_s)
    until_s = time.monotonic() + MADE_WITHIN_S
    while True:
        try:
            return egs.slices.kubeconfig.read(workspace, asked.id)
        except Conflict as error:
            if error.code != NOT_MADE:
                raise
        if time.monotonic() > until_s:
            raise WaitedTooLong(f"The agent of {cluster} has not made it yet. Is the cluster up? egs nodes --cluster {cluster}", gpr=None)
        time.sleep(LOOK_S)
