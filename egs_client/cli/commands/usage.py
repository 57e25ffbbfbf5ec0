"""`egs usage` shows GPU-hours held, used and wasted, and what they cost."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli import options
from egs_client.cli.exits import Refused
from egs_client.cli.output import Column, Output, show_list
from egs_client.cli.session import client

if TYPE_CHECKING:
    from egs_client.models.gpr import LeaguePlace, Usage

usage_app = typer.Typer(add_completion=False, rich_markup_mode=None)
apps = {"usage": usage_app}
MONTH = re.compile(r"\d{4}-\d{2}")

USAGE: list[Column[Usage]] = [
    Column("NAME", lambda row: row.name),
    Column("HELD", lambda row: f"{row.held_hours:.1f}"),
    Column("USED", lambda row: f"{row.used_hours:.1f}"),
    Column("WASTED", lambda row: f"{row.wasted_hours:.1f}"),
    Column("NOT MEASURED", lambda row: f"{row.unmeasured_hours:.1f}"),
    Column("EFFICIENCY", lambda row: share(row.efficiency)),
    Column("COST", lambda row: f"{row.cost} {row.currency}"),
    Column("SINCE", lambda row: row.since, is_wide=True),
    Column("OF", lambda row: row.of, is_wide=True),
    Column("UNPRICED", lambda row: f"{row.unpriced_hours:.1f}", is_wide=True),
    Column("ID", lambda row: row.id, is_wide=True),
]
LEAGUE: list[Column[LeaguePlace]] = [
    Column("PLACE", lambda row: str(row.place)),
    Column("WORKSPACE", lambda row: row.name),
    Column("PROJECT", lambda row: row.project),
    Column("EFFICIENCY", lambda row: share(row.efficiency)),
    Column("MEASURED", lambda row: f"{row.measured_hours:.1f}"),
]


@usage_app.command()
def usage(
    by: Annotated[str, typer.Option(help="Sum by project, slice, person, gpr, workload, shape or cluster.")] = "slice",
    step: Annotated[str, typer.Option(help="Sum for each day or month, or in total.")] = "total",
    month: Annotated[str | None, typer.Option(help="The month, e.g. 2027-01. Default: the current one.", metavar="YYYY-MM")] = None,
    workspace: options.Workspace = None,
    project: Annotated[str | None, typer.Option(help="Only requests of this project.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only requests of this person; me: your own.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only what this workload had, by id, or by kind and name.")] = None,
    shape: Annotated[str | None, typer.Option(help="Only nodes of this shape.", autocompletion=options.shapes)] = None,
    cluster: options.Cluster = None,
    league: Annotated[bool, typer.Option("--league", help="Compare workspaces by how much of their GPU time they use.")] = False,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 100,
    output: Output = "table",
) -> None:
    """Show GPU-hours held, used and wasted in a month, and their cost, the largest first."""
    since, until = span(month)
    filters = {"slice": workspace, "project": project, "owner": owner, "workload": workload, "shape": shape, "cluster": cluster}
    given: dict[str, Any] = {name: value for name, value in filters.items() if value}
    with client() as egs:
        if league:
            places = egs.usage.league.list(since=str(since), until=str(until)).all(limit=limit)
            show_list(places, LEAGUE, output=output, kind="league-place", none="Nobody is in the league yet.")
            return
        size = min(limit, 500)
        rows = egs.usage.list(by=by, step=step, since=str(since), until=str(until), page_size=size, **given).all(limit=limit)  # type: ignore[arg-type]
    show_list(rows, USAGE, output=output, kind="usage", none="Nothing was held.")


def span(month: str | None) -> tuple[date, date]:
    """Returns the first day of the month, and of the next one."""
    if month is not None and not MONTH.fullmatch(month):
        raise Refused(f"“{month}” is no month. Write it as 2027-01.")
    try:
        first = date.fromisoformat(f"{month}-01") if month else datetime.now(UTC).date().replace(day=1)
    except ValueError:
        raise Refused(f"There is no month {month}.") from None
    return first, (first + timedelta(days=31)).replace(day=1)


def share(of_one: float | None) -> str:
    return "-" if of_one is None else f"{of_one * 100:.0f} %"
