"""Has the options that several commands share."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, get_type_hints

import click
import typer
from click.core import ParameterSource

from egs_client.cli.exits import Refused
from egs_client.cli.names import clusters, gprs, nodes, one_of, shapes, workspaces


class Of(str):
    """Holds the API's name of an option's value, which may be another than the option's."""

    __slots__ = ()


WORKSPACE_HELP = "The workspace. Default: the profile's, or the only one where you may file."
Workspace = Annotated[
    str | None,
    typer.Option("--workspace", "-n", help=WORKSPACE_HELP, autocompletion=workspaces),
    Of("slice"),
]
Gpr = Annotated[str, typer.Argument(help="Its name or id.", metavar="GPR", autocompletion=gprs)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effects, and change nothing.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is active, and show its position, its promise and its steps.")]
Timeout = Annotated[str | None, typer.Option(help="Stop waiting after this long (30m, 2h); the request stays. Exit code 8.")]
Node = Annotated[str | None, typer.Option(help="Only GPUs of this node.", autocompletion=nodes)]
Cluster = Annotated[str | None, typer.Option(help="Only those in this cluster.", autocompletion=clusters)]
HOUR_S = 3600
SPAN_MAX_S, DIGITS_MAX = 100 * 365 * 24 * HOUR_S, 12


def box_options(
    *,
    shape: Annotated[str | None, typer.Option("--shape", "-s", help="GPU model and memory, as H100-80GB.", autocompletion=shapes)] = None,
    memory: Annotated[int | None, typer.Option(help="At least so many GiB a GPU; EGS chooses the shape."), Of("min_gpu_memory_gib")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-N", help="How many nodes. Default: 1.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", "-g", help="GPUs on each node. Default: all of them."), Of("gpus_per_node")] = None,
    hours: Annotated[float | None, typer.Option("--hours", "-H", help="How long, in hours."), Of("duration_s")] = None,
    duration: Annotated[str | None, typer.Option("--duration", "-d", help="How long, as 1h30m, 2d or PT90M."), Of("duration_s")] = None,
    priority: Annotated[int | None, typer.Option(help="1 to 300; higher goes first. Default: 101.")] = None,
    cluster: Annotated[
        list[str] | None, typer.Option(help="Only in this cluster; may be repeated.", autocompletion=clusters), Of("clusters")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="GPR", help="Start after this GPR has ended; '' for none.", autocompletion=gprs)
    ] = None,
    after_condition: Annotated[
        str | None,
        typer.Option(
            help="How that GPR has to end: `any`, or `success`; otherwise this one is canceled.", autocompletion=one_of("any", "success")
        ),
    ] = None,
    not_before: Annotated[datetime | None, typer.Option(help="Not before this time."), Of("earliest_start_at")] = None,
    at: Annotated[
        datetime | None, typer.Option(help="Book exactly this start, or be refused."), Of("earliest_start_at"), Of("is_booking")
    ] = None,
    node_type: Annotated[str | None, typer.Option(help="Only nodes of this type.")] = None,
    rdma: Annotated[bool | None, typer.Option("--rdma/--no-rdma", help="Only nodes with RDMA.")] = None,
    within: Annotated[
        str | None, typer.Option(help="All nodes in one `rack` or one `nvlink` domain.", autocompletion=one_of("rack", "nvlink"))
    ] = None,
    evictable: Annotated[bool | None, typer.Option("--evictable/--no-evictable", help="Others may take its nodes, after notice.")] = None,
    may_evict: Annotated[bool | None, typer.Option("--may-evict/--no-may-evict", help="It may end boxes of lower priority.")] = None,
    requeue: Annotated[
        bool | None, typer.Option("--requeue/--no-requeue", help="Queue again after an eviction or a failure."), Of("requeue_on_failure")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(help="Release it when its GPUs did nothing for so long, as 45m; 0: never."), Of("idle_timeout_s")
    ] = None,
    checks: Annotated[bool | None, typer.Option("--checks/--no-checks", help="Test the nodes before the start."), Of("run_checks")] = None,
    model: Annotated[list[str] | None, typer.Option(help="A note for the page, as name=llama or lr=3e-4; may be repeated.")] = None,
) -> None:
    """Returns the options; `fields_of` makes fields of them."""


def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the API's fields, without those that were not given."""
    if given["hours"] is not None and given["duration"] is not None:
        raise Refused("Give --hours or --duration, not both.")
    start = given["at"] or given["not_before"]
    hints = get_type_hints(box_options, include_extras=True)
    fields = {
        **{fields_meant(name, hints[name])[0]: value for name, value in given.items()},
        "duration_s": given["duration"] if given["hours"] is None else hours_s(given["hours"]),
        "clusters": given["cluster"] or None,
        "earliest_start_at": _here(start) if start else None,
        "is_booking": True if given["at"] else None,
        "model": dict(_pair(text) for text in given["model"]) if given["model"] else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def with_box_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command takes its own options and, as `box`, those of `box_options`."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(**{name: given.pop(name) for name in own}, box=fields_of(given))

    signature = inspect.signature(command)
    own = [name for name in signature.parameters if name != "box"]
    shared = inspect.signature(box_options).parameters
    parameters = [signature.parameters[name] for name in own]
    hints = {**get_type_hints(command, include_extras=True), **get_type_hints(box_options, include_extras=True)}
    merged = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in (*parameters, *shared.values())
    ]
    run.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in merged}
    return run


def as_typed(field: str, context: click.Context) -> str:
    """Returns the option or argument of the command that stands for this field of the API, else the field."""
    declared = inspect.unwrap(context.command.callback or as_typed, stop=lambda each: hasattr(each, "__signature__"))
    hints = get_type_hints(declared, include_extras=True)
    name = field.partition(".")[0]
    found = [each for each in context.command.params if each.name and name in fields_meant(each.name, hints.get(each.name))]
    found.sort(key=lambda each: context.get_parameter_source(each.name or "") != ParameterSource.COMMANDLINE)
    return next((max(each.opts, key=len) if isinstance(each, click.Option) else each.human_readable_name for each in found), field)


def fields_meant(name: str, hint: Any) -> tuple[str, ...]:
    """Returns what the API may call the parameter `name` of a command."""
    told = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Of)]
    plain = name.rstrip("_")
    return tuple(told) or (plain, f"{plain}_s", f"{plain}s")


def hours_s(hours: float) -> int:
    """Raises Refused, also for `nan` and `inf`, which are numbers to Python."""
    if not (math.isfinite(hours) and round(hours * HOUR_S) > 0):
        raise Refused(f"--hours {hours:g} is no time. Write a number above 0, as 0.5 or 3.")
    if hours * HOUR_S > SPAN_MAX_S:
        raise Refused(f"--hours {hours:g} is too long.")
    return round(hours * HOUR_S)


def _here(start: datetime) -> datetime:
    try:
        return start.astimezone()
    except (ValueError, OverflowError):
        raise Refused(f"{start} is no time of this calendar.") from None


def seconds(text: str | None) -> float | None:
    """Reads `90`, `30s`, `45m`, `1h30m`, `2d`."""
    if text is None:
        return None
    total, number = 0.0, ""
    for character in text.strip().lower():
        if character.isdecimal():
            number = (number + character)[:DIGITS_MAX]
        elif number and character in {"s", "m", "h", "d"}:
            total, number = total + int(number) * {"s": 1, "m": 60, "h": HOUR_S, "d": 24 * HOUR_S}[character], ""
        else:
            raise Refused(f"{text} is no time; write 30s, 45m, 1h30m or 2d.")
    if not number and not total:
        raise Refused(f"{text} is no time; write 30s, 45m, 1h30m or 2d.")
    total += int(number) if number else 0
    if total > SPAN_MAX_S:
        raise Refused(f"{text} is too long.")
    return total


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Refused(f"--model {text}: write name=value.")
    return name, value
