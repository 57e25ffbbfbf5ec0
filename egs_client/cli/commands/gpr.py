"""`egs gpr` shows GPRs and changes them (`gpr_acts.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from egs_client.cli import names, options
from egs_client.cli.output import Column, Output, Watch, show_list, show_one, show_watching
from egs_client.cli.progress import follow
from egs_client.cli.session import client, gpr_of
from egs_client.cli.words import by, clock, here, size, soon, span, when
from egs_client.gprs import ACTIVE, ENDED, EXITING, PROVISIONING, WAITING, sentence_of

if TYPE_CHECKING:
    from egs_client.models.gpr import Gpr, GprDetail

app = typer.Typer(add_completion=False, help="GPU Provision Requests.", no_args_is_help=True, rich_markup_mode=None)
apps = {"gpr": app}


def starts_or_ends(gpr: Gpr) -> str:
    """Its state says which, and the table fits into 80 columns."""
    if gpr.state == ACTIVE:
        return soon(gpr.ends_at)
    if gpr.estimate:
        return soon(gpr.estimate.start_at)
    return soon(gpr.ended_at) if gpr.ended_at else ""


STATES = (*sorted(WAITING), PROVISIONING, ACTIVE, EXITING, *sorted(ENDED))
NO_GPR = "There is no GPR. File one: egs gpr create NAME --shape H100-80GB --hours 1"
COLUMNS: list[Column[Gpr]] = [
    Column("NAME", lambda gpr: gpr.name),
    Column("STATE", lambda gpr: gpr.state),
    Column("BOX", lambda gpr: size(gpr.nodes, gpr.gpus_per_node, gpr.shape, gpr.min_gpu_memory_gib)),
    Column("TIME", lambda gpr: span(gpr.duration_s)),
    Column("STARTS/ENDS", starts_or_ends),
    Column("POS", lambda gpr: str(gpr.position or "")),
    Column("WORKSPACE", lambda gpr: gpr.slice, is_wide=True),
    Column("OWNER", lambda gpr: gpr.owner, is_wide=True),
    Column("PRIORITY", lambda gpr: str(gpr.priority), is_wide=True),
    Column("PROMISED", lambda gpr: clock(gpr.promised_start_at) if gpr.promised_start_at else "", is_wide=True),
    Column("CLUSTER", lambda gpr: gpr.cluster or "", is_wide=True),
    Column("ID", lambda gpr: gpr.id, is_wide=True),
]


@app.command("ls", hidden=True)
@app.command("list")
def list_(
    output: Output = "table",
    watch: Watch = False,
    workspace: options.Workspace = None,
    cluster: options.Cluster = None,
    state: Annotated[str | None, typer.Option(help="Only of this state, as QUEUED.", autocompletion=names.one_of(*STATES))] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    is_all: Annotated[bool, typer.Option("--all", "-a", help="List those that have ended, too.")] = False,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 100,
) -> None:
    """List GPRs, the newest first."""
    filters = {"slice": workspace, "cluster": cluster, "state": state, "owner": "me" if mine else None}
    given = {name: value for name, value in filters.items() if value is not None}
    if not is_all and state is None:
        given["ended"] = False  # type: ignore[assignment]

    def read() -> Sequence[Gpr]:
        return egs.gprs.list(**given, page_size=min(limit, 500)).all(limit=limit)  # type: ignore[arg-type]

    with client() as egs:
        if watch:
            show_watching(read, COLUMNS, output=output, kind="gpr", key=lambda gpr: gpr.id)
        show_list(read(), COLUMNS, output=output, kind="gpr", none="There is no such GPR." if any(filters.values()) else NO_GPR)


@app.command("get", hidden=True)
@app.command("describe", hidden=True)
@app.command()
def show(gpr: options.Gpr, output: Output = "table") -> None:
    """Show all of one GPR."""
    with client() as egs:
        found = gpr_of(gpr, egs)
        show_one(found, lines(found), output=output, kind="gpr")


@app.command()
def why(gpr: options.Gpr) -> None:
    """Say why it waits, and for what."""
    with client() as egs:
        found = gpr_of(gpr, egs)
        print(here(sentence_of(found)))
        if found.promised_start_at and found.state not in ENDED:
            print(f"Promised by {by(found.promised_start_at)}{f', planned {when(found.estimate.start_at)}' if found.estimate else ''}.")
        if found.explanation:
            for blocker in found.explanation.blockers:
                until = f" until {when(blocker.until)}" if blocker.until else ""
                print(f"  {blocker.name}{until}")
        for move in found.promise_moves:
            print(f"Its promise moved from {clock(move.old_start_at)} to {clock(move.new_start_at)}: {move.cause}.")


@app.command()
def watch(gpr: options.Gpr, timeout: options.Timeout = None) -> None:
    """Follow one GPR until it has ended."""
    for_s = options.seconds(timeout)
    with client() as egs:
        follow(egs, gpr_of(gpr, egs), until=lambda found: found.state in ENDED, for_s=for_s)


def lines(gpr: GprDetail) -> list[tuple[str, str]]:
    explanation = gpr.explanation.sentence if gpr.explanation else ""
    rows = [
        ("Name", gpr.name),
        ("Id", gpr.id),
        ("State", gpr.state + (f" ({gpr.end_reason})" if gpr.end_reason else "")),
        ("Workspace", gpr.slice),
        ("Owner", gpr.owner),
        ("Box", f"{size(gpr.nodes, gpr.gpus_per_node, gpr.shape, gpr.min_gpu_memory_gib)} for {span(gpr.duration_s)}"),
        ("Priority", str(gpr.priority)),
        ("Starts after", f"{gpr.after} ({gpr.after_condition})" if gpr.after else ""),
        ("Why", here(explanation) or " ".join(gpr.approval_reasons)),
        ("Position", str(gpr.position or "")),
        ("Planned", when(gpr.estimate.start_at) if gpr.estimate else ""),
        ("Promised by", by(gpr.promised_start_at) if gpr.promised_start_at else ""),
        ("At risk", gpr.at_risk or ""),
        ("Cluster", gpr.cluster or ", ".join(gpr.clusters)),
        ("Nodes", "\n".join(node.node for node in gpr.nodes_assigned)),
        ("Active", when(gpr.active_at) if gpr.active_at else ""),
        ("Ends", when(gpr.ends_at) if gpr.ends_at else ""),
        ("Eviction", when(gpr.eviction_notice.ends_at) if gpr.eviction_notice else ""),
        ("Failed jobs", "\n".join(gpr.failed_jobs)),
        ("Model", "\n".join(f"{name}={value}" for name, value in gpr.model.items())),
        ("Created", when(gpr.created_at)),
    ]
    return [(label, text) for label, text in rows if text]


from egs_client.cli.commands import gpr_acts  # noqa: E402  # it adds its commands to `app`

gpr_acts.add_to(app)
