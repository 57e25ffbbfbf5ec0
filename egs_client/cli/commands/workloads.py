"""`egs workloads` and `egs pods`: what runs in boxes and waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli import options
from egs_client.cli.output import Column, Output, Watch, show_list, show_one, show_watching
from egs_client.cli.session import client
from egs_client.cli.words import here, soon

if TYPE_CHECKING:
    from egs_client.models.observability import Pod, Workload, WorkloadDetail, WorkloadGpu
    from egs_client.sync.client import Client

workloads_app, pods_app = (typer.Typer(add_completion=False, rich_markup_mode=None) for _ in range(2))
apps = {"workloads": workloads_app, "pods": pods_app}

WORKLOADS: list[Column[Workload]] = [
    Column("NAME", lambda row: row.name),
    Column("KIND", lambda row: row.kind),
    Column("STATE", lambda row: row.state),
    Column("PODS", lambda row: f"{row.pods_running}/{row.pods_running + row.pods_waiting}"),
    Column("GPUS", lambda row: str(row.gpus_held or row.gpus_asked)),
    Column("USE", lambda row: percent(row.use_percent)),
    Column("GPR", lambda row: row.gprs[0].name if row.gprs else ""),
    Column("MODEL", lambda row: row.model),
    Column("WORKSPACE", lambda row: row.slice, is_wide=True),
    Column("NAMESPACE", lambda row: row.namespace, is_wide=True),
    Column("EFFICIENCY", lambda row: percent(row.efficiency_percent), is_wide=True),
    Column("STRAGGLERS", lambda row: str(row.straggler_count), is_wide=True),
    Column("FRAMEWORK", lambda row: row.framework, is_wide=True),
    Column("CLUSTER", lambda row: row.cluster, is_wide=True),
    Column("ID", lambda row: row.id, is_wide=True),
]
PODS: list[Column[Pod]] = [
    Column("NAMESPACE", lambda pod: pod.namespace),
    Column("NAME", lambda pod: pod.name),
    Column("STATUS", lambda pod: "Ended" if pod.gone_at else pod.phase),
    Column("GPUS", lambda pod: str(pod.gpu_count)),
    Column("RESTARTS", lambda pod: str(pod.restarts)),
    Column("AGE", lambda pod: soon(pod.created_at).removesuffix(" ago")),
    Column("NODE", lambda pod: pod.node),
    Column("WHY", lambda pod: here(pod.why)),
    Column("WORKLOAD", lambda pod: f"{pod.workload_kind}/{pod.workload}", is_wide=True),
    Column("GPR", lambda pod: pod.gpr or "", is_wide=True),
    Column("WORKSPACE", lambda pod: pod.slice, is_wide=True),
    Column("IMAGE", lambda pod: pod.image, is_wide=True),
    Column("ID", lambda pod: pod.id, is_wide=True),
]
Search = Annotated[
    str | None, typer.Option("--search", help="Only those with this text in their name, or in that of their owner or request.")
]
Limit = Annotated[int, typer.Option(help="List at most so many.", min=1)]
InWorkspace = Annotated[
    str | None, typer.Option("--workspace", "-n", help="Only those of this workspace.", autocompletion=options.workspaces)
]
OfGpr = Annotated[str | None, typer.Option("--gpr", help="Only those in the box of this GPR.", autocompletion=options.gprs)]


@workloads_app.command()
def workloads(
    name: Annotated[str | None, typer.Argument(help="Show all of this one, by name or id.", metavar="WORKLOAD")] = None,
    output: Output = "table",
    watch: Watch = False,
    workspace: InWorkspace = None,
    cluster: options.Cluster = None,
    gpr: OfGpr = None,
    kind: Annotated[str | None, typer.Option(help="Only workloads of this kind, e.g. Job, JobSet or Deployment.")] = None,
    view: Annotated[str | None, typer.Option(help="Only those that are running, waiting, idle, straggling or ended.")] = None,
    search: Search = None,
    limit: Limit = 100,
) -> None:
    """Show the workloads of your pods, their GPUs, and what these do."""
    filters = {"slice": workspace, "cluster": cluster, "gpr": gpr, "kind": kind, "view": view, "q": search}
    given: dict[str, Any] = {key: value for key, value in filters.items() if value}

    def read(egs: Client) -> Sequence[Workload]:
        return egs.workloads.list(page_size=min(limit, 500), **given).all(limit=limit)

    with client() as egs:
        if name:
            found = egs.workloads.get(name)
            show_one(found, list(lines(found)), output=output, kind="workload")
            return
        if watch:
            show_watching(lambda: read(egs), WORKLOADS, output=output, kind="workload", key=lambda row: row.id)
        show_list(read(egs), WORKLOADS, output=output, kind="workload", none=f"There is no {'such ' if given else ''}workload.")


@pods_app.command()
def pods(
    output: Output = "table",
    watch: Watch = False,
    workspace: InWorkspace = None,
    cluster: options.Cluster = None,
    node: options.Node = None,
    gpr: OfGpr = None,
    view: Annotated[str | None, typer.Option(help="Only those that are running, held-back or ended.")] = None,
    search: Search = None,
    limit: Limit = 100,
) -> None:
    """Show pods that hold GPUs or ask for them, and what keeps each from running."""
    filters = {"slice": workspace, "cluster": cluster, "node": node, "gpr": gpr, "view": view, "q": search}
    given: dict[str, Any] = {key: value for key, value in filters.items() if value}

    def read(egs: Client) -> Sequence[Pod]:
        return egs.pods.list(page_size=min(limit, 500), **given).all(limit=limit)

    with client() as egs:
        if watch:
            show_watching(lambda: read(egs), PODS, output=output, kind="pod", key=lambda pod: pod.id)
        show_list(read(egs), PODS, output=output, kind="pod", none=f"There is no {'such ' if given else ''}pod.")


def lines(row: WorkloadDetail) -> Iterator[tuple[str, str]]:
    config = row.config
    yield from (
        ("Name", f"{row.kind} {row.namespace}/{row.name}"),
        ("Id", row.id),
        ("State", row.state + (" (stale)" if row.is_stale else "")),
    )
    yield from (("Workspace", row.slice), ("Cluster", row.cluster), ("GPRs", ", ".join(gpr.name for gpr in row.gprs)))
    yield from (("Model", row.model), ("Framework", row.framework), ("Image", config.image), ("Arguments", " ".join(config.arguments)))
    yield "Parallelism", ", ".join(f"{name} {count}" for name, count in config.parallelism.items())
    yield "Requests", ", ".join(f"{name} {amount}" for name, amount in config.requests.items())
    yield "Pods", f"{row.pods_running} running, {row.pods_waiting} waiting"
    yield "GPUs", f"{row.gpus_held} held, {row.gpus_asked} asked for"
    yield from (("Use", percent(row.use_percent)), ("Efficiency", percent(row.efficiency_percent)))
    yield "GPU-hours", f"{row.held_hours:.1f} held, {row.used_hours:.1f} used, {row.wasted_hours:.1f} wasted"
    yield "Hottest", "" if row.temperature_c is None else f"{row.temperature_c} °C"
    yield "Power", "" if row.power_w is None else f"{row.power_w} W"
    for gpu in row.gpus:
        if gpu.is_straggler:
            yield "Straggler", straggler(gpu)


def straggler(gpu: WorkloadGpu) -> str:
    return f"{gpu.node}, GPU {gpu.index}" + (f", {gpu.pod}" if gpu.pod else "") + (f" ({gpu.place})" if gpu.place else "")


def percent(value: int | None) -> str:
    return "" if value is None else f"{value} %"
