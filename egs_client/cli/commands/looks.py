"""`egs queue`, `shapes`, `nodes`, `top`, `alerts`, `schedule` and `events` only show things."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli import options
from egs_client.cli.output import Column, Output, Watch, show_list, show_stream, show_watching
from egs_client.cli.session import client
from egs_client.cli.words import clock, here, size, soon, yes

if TYPE_CHECKING:
    from egs_client.models.gpr import Event, QueueRow
    from egs_client.models.inventory import Node, Shape, ShapeInCluster
    from egs_client.models.observability import Alert, Hotspot
    from egs_client.sync.client import Client

NAMES = ("queue", "shapes", "nodes", "top", "alerts", "schedule", "events")
apps = {name: typer.Typer(add_completion=False, rich_markup_mode=None) for name in NAMES}
queue_app, shapes_app, nodes_app, top_app, alerts_app, schedule_app, events_app = apps.values()
PIPE_WIDTH = 160
MIB_A_GIB = 1024

QUEUE: list[Column[QueueRow]] = [
    Column("POS", lambda row: str(row.position or "-")),
    Column("NAME", lambda row: row.name),
    Column("BOX", lambda row: size(row.nodes, row.gpus_per_node, row.shape)),
    Column("STARTS", lambda row: soon(row.planned_start_at)),
    Column("PROMISED BY", lambda row: clock(row.promised_start_at) if row.promised_start_at else "-"),
    Column("WORKSPACE", lambda row: row.slice),
    Column("OWNER", lambda row: row.owner, is_wide=True),
    Column("PRIORITY", lambda row: str(row.priority), is_wide=True),
    Column("WHY", lambda row: here(row.reason), is_wide=True),
    Column("ID", lambda row: row.id, is_wide=True),
]
SHAPES: list[Column[tuple[Shape, ShapeInCluster]]] = [
    Column("SHAPE", lambda row: row[0].name),
    Column("CLUSTER", lambda row: row[1].name),
    Column("GPUS A NODE", lambda row: str(row[1].gpus_per_node)),
    Column("FREE NODES", lambda row: f"{row[1].nodes_free}/{row[1].nodes}"),
    Column("FREE GPUS", lambda row: f"{row[1].gpus_free}/{row[1].gpus}"),
    Column("GIB A GPU", lambda row: str(row[0].gpu_memory_gib), is_wide=True),
    Column("RDMA", lambda row: yes(row[1].rdma), is_wide=True),
    Column("NODE TYPES", lambda row: ", ".join(row[1].node_types), is_wide=True),
]
NODES: list[Column[Node]] = [
    Column("NAME", lambda node: node.name),
    Column("CLUSTER", lambda node: node.cluster),
    Column("SHAPE", lambda node: node.shape),
    Column("STATE", lambda node: node.state),
    Column("FREE", lambda node: f"{node.gpus_free}/{node.gpu_count}"),
    Column("HELD BY", lambda node: ", ".join(holder.gpr for holder in node.held_by)),
    Column("TYPE", lambda node: node.node_type, is_wide=True),
    Column("RACK", lambda node: node.rack, is_wide=True),
    Column("RDMA", lambda node: yes(node.rdma), is_wide=True),
    Column("CORDONED", lambda node: node.cordon_reason or yes(node.is_cordoned), is_wide=True),
]
GPUS: list[Column[Hotspot]] = [
    Column("NODE", lambda gpu: gpu.node),
    Column("GPU", lambda gpu: str(gpu.index)),
    Column("TEMP", lambda gpu: measured(gpu, "temperature_c", "°C")),
    Column("USE", lambda gpu: measured(gpu, "utilization_percent", "%")),
    Column("MEMORY", lambda gpu: measured(gpu, "memory_used_mib", "GiB", MIB_A_GIB)),
    Column("POWER", lambda gpu: measured(gpu, "power_w", "W")),
    Column("HELD BY", lambda gpu: gpu.held_by.gpr if gpu.held_by else ""),
    Column("READING", lambda gpu: "none" if gpu.reading is None else "stale" if gpu.is_stale else "live"),
    Column("CLUSTER", lambda gpu: gpu.cluster, is_wide=True),
    Column("SHAPE", lambda gpu: gpu.shape, is_wide=True),
    Column("THROTTLED", lambda gpu: measured(gpu, "throttled_percent", "%"), is_wide=True),
    Column("NEW FAULTS", lambda gpu: measured(gpu, "new_faults"), is_wide=True),
    Column("ID", lambda gpu: gpu.id, is_wide=True),
]
ALERTS: list[Column[Alert]] = [
    Column("ALERT", lambda alert: alert.name),
    Column("STATE", lambda alert: alert.state.lower()),
    Column("SEVERITY", lambda alert: alert.severity),
    Column("WHERE", lambda alert: alert.places),
    Column("SINCE", lambda alert: clock(alert.began_at)),
    Column("OF", lambda alert: alert.gpr or alert.slice or "platform"),
    Column("OWNER", lambda alert: alert.owner or "", is_wide=True),
    Column("CONDITION", lambda alert: alert.condition, is_wide=True),
    Column("WHAT TO DO", lambda alert: alert.runbook, is_wide=True),
    Column("ID", lambda alert: alert.id, is_wide=True),
]
EVENTS: list[Column[Event]] = [
    Column("WHEN", lambda event: f"{event.at.astimezone():%d %b %H:%M:%S}"),
    Column("KIND", lambda event: event.kind),
    Column("MESSAGE", lambda event: here(event.message)),
    Column("SEVERITY", lambda event: event.severity, is_wide=True),
    Column("BY", lambda event: event.actor or "EGS", is_wide=True),
]


@queue_app.command()
def queue(
    output: Output = "table", watch: Watch = False, limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 100
) -> None:
    """Show what waits, in the order of planned starts."""

    def read(egs: Client) -> Sequence[QueueRow]:
        return egs.queue.list(page_size=min(limit, 500)).all(limit=limit)

    with client() as egs:
        if watch:
            show_watching(lambda: read(egs), QUEUE, output=output, kind="gpr", key=lambda row: row.id)
        show_list(read(egs), QUEUE, output=output, kind="gpr", none="Nothing waits.")


@shapes_app.command()
def shapes(output: Output = "table") -> None:
    """Show which GPUs you can ask for, in each cluster, and how many are free now."""
    with client() as egs:
        found = egs.shapes.list().all()
    if output in {"table", "wide"}:
        rows = [(shape, place) for shape in found for place in shape.clusters]
        show_list(rows, SHAPES, output=output, kind="shape", none="No cluster of yours has GPUs.")
    else:
        show_list(found, [], output=output, kind="shape", none="")


@nodes_app.command()
def nodes(
    output: Output = "table",
    watch: Watch = False,
    cluster: options.Cluster = None,
    shape: Annotated[str | None, typer.Option(help="Only nodes of this shape.", autocompletion=options.shapes)] = None,
    state: Annotated[str | None, typer.Option(help="Only nodes of this state, e.g. free or held.")] = None,
) -> None:
    """Show nodes, their GPUs and who holds them."""
    given: dict[str, Any] = {name: value for name, value in (("cluster", cluster), ("shape", shape), ("state", state)) if value}
    with client() as egs:
        if watch:
            show_watching(lambda: egs.nodes.list(page_size=500, **given).all(), NODES, output=output, kind="node", key=lambda node: node.id)
        show_list(
            egs.nodes.list(page_size=500, **given).all(),
            NODES,
            output=output,
            kind="node",
            none=f"There is no {'such ' if given else ''}node.",
        )


@top_app.command()
def top(
    output: Output = "table",
    watch: Watch = False,
    cluster: options.Cluster = None,
    node: options.Node = None,
    shape: Annotated[str | None, typer.Option(help="Only nodes of this shape.", autocompletion=options.shapes)] = None,
    view: Annotated[str | None, typer.Option(help="Only those that are hot, idle, faulty or stale.")] = None,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 40,
) -> None:
    """Show what GPUs do now, the hottest first: those of your boxes; all for administrators."""
    filters = {"cluster": cluster, "node": node, "shape": shape, "view": view}
    given: dict[str, Any] = {name: value for name, value in filters.items() if value}

    def read(egs: Client) -> Sequence[Hotspot]:
        return egs.hotspots.list(page_size=min(limit, 500), **given).all(limit=limit)

    with client() as egs:
        if watch:
            show_watching(lambda: read(egs), GPUS, output=output, kind="gpu", key=lambda gpu: gpu.id)
        show_list(
            read(egs),
            GPUS,
            output=output,
            kind="gpu",
            none="There is no such GPU, or none of your boxes holds it now." if given else "No box of yours holds a GPU now.",
        )


@alerts_app.command()
def alerts(
    output: Output = "table",
    watch: Watch = False,
    workspace: options.Workspace = None,
    cluster: options.Cluster = None,
    over: Annotated[bool, typer.Option("--over", help="List also those that are resolved.")] = False,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 50,
) -> None:
    """Show alerts, the newest first. Members see those of their boxes, administrators see all."""
    given: dict[str, Any] = {name: value for name, value in (("slice", workspace), ("cluster", cluster)) if value}
    if not over:
        given["state"] = ["PENDING", "FIRING", "ACKNOWLEDGED"]

    def read(egs: Client) -> Sequence[Alert]:
        return egs.alerts.list(page_size=min(limit, 500), **given).all(limit=limit)

    with client() as egs:
        if watch:
            show_watching(lambda: read(egs), ALERTS, output=output, kind="alert", key=lambda alert: alert.id)
        show_list(read(egs), ALERTS, output=output, kind="alert", none="Nothing is wrong.")


def measured(gpu: Hotspot, metric: str, unit: str = "", divisor: int = 1) -> str:
    """Writes `89 °C`; empty: not measured."""
    value = getattr(gpu.reading, metric) if gpu.reading else None
    return "" if value is None else f"{round(value / divisor)} {unit}".rstrip()


@schedule_app.command()
def schedule(
    hours: Annotated[float, typer.Option("--hours", "-H", help="How many hours to draw.", min=0.1, max=24 * 31)] = 12,
    cluster: options.Cluster = None,
    node: options.Node = None,
    workspace: options.Workspace = None,
    output: Output = "table",
) -> None:
    """Draw which box has which node over time, with a letter for each box."""
    from egs_client.cli.strip import Stretch, strip

    now = datetime.now(UTC)
    given: dict[str, Any] = {name: value for name, value in (("cluster", cluster), ("node", node), ("slice", workspace)) if value}
    with client() as egs:
        rows = egs.schedule.list(from_=now, to=now + timedelta(seconds=options.hours_s(hours)), page_size=500, **given).all()
        if output not in {"table", "wide"}:
            show_list(rows, [], output=output, kind="reservation", none="")
            return
        where = {name: value for name, value in given.items() if name == "cluster"}
        names = [node] if node else [each.name for each in egs.nodes.list(page_size=500, **where)]
    stretches = [Stretch(row.node, row.gpr or "", row.starts_at, row.ends_at) for row in rows]
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else PIPE_WIDTH // 2
    print("\n".join(strip(names, stretches, begin=now.astimezone(), hours=hours, width=width)))


@events_app.command()
def events(
    gpr: Annotated[str | None, typer.Option(help="Only events of this GPR.", autocompletion=options.gprs)] = None,
    workspace: options.Workspace = None,
    node: options.Node = None,
    cluster: options.Cluster = None,
    kind: Annotated[str | None, typer.Option(help="Only events of this kind, e.g. gpr.transition.")] = None,
    since: Annotated[str | None, typer.Option(help="Only events of the last 30m, 2h or 1d.")] = None,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 50,
    output: Output = "table",
    watch: Watch = False,
) -> None:
    """Show what happened, and why; the newest comes last."""
    filters = {"gpr": gpr, "slice": workspace, "node": node, "cluster": cluster, "kind": kind}
    given: dict[str, Any] = {name: value for name, value in filters.items() if value}
    back_s = options.seconds(since)
    begin = datetime.now(UTC) - timedelta(seconds=back_s) if back_s is not None else None
    with client() as egs:
        if watch:
            show_stream(egs.watch_events(since=begin, **given), EVENTS, output=output, kind="event")
        if begin is not None:
            given["since"] = begin
        rows = egs.events.list(page_size=min(limit, 500), **given).all(limit=limit)
    show_list(rows[::-1], EVENTS, output=output, kind="event", none="Nothing happened.")
