"""`egs alert-rule` manages the alerts of a workspace. Those of the platform: `egs admin alert-rule`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from click import Choice

from egs_client.cli import names, options
from egs_client.cli.exits import Refused
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.session import agreed, client, settled, workspace_of
from egs_client.cli.words import span
from egs_client.errors import NotFound
from egs_client.sync.api.observability import AlertRules

if TYPE_CHECKING:
    from egs_client.models.observability import AlertRule
    from egs_client.sync.client import Client

app = typer.Typer(
    add_completion=False, help="Rules that watch the boxes of a workspace and fire alerts.", no_args_is_help=True, rich_markup_mode=None
)
apps = {"alert-rule": app}
HINTS = get_type_hints(AlertRules.create)
RULES_MOST = 500


def _choices(field: str) -> Choice[str]:
    """Return the words that the API takes for this field."""
    return Choice([value for kind in (HINTS[field], *get_args(HINTS[field])) for value in get_args(kind) if isinstance(value, str)])


Rule = Annotated[str, typer.Argument(help="Its name or id.", metavar="RULE")]
Signal = Annotated[
    str,
    typer.Option(
        help="The signal that it watches, as temperature_c. A wrong word lists all.", click_type=_choices("signal"), show_choices=False
    ),
]
Kind = Annotated[
    str | None, typer.Option(help="How it judges the signal: threshold, rate, trend, forecast or absence.", click_type=_choices("kind"))
]
Severity = Annotated[str | None, typer.Option(help="The severity of its alerts.", click_type=_choices("severity"))]
Direction = Annotated[
    str | None, typer.Option(help="Fire when the signal is `above` or `below` the level. Default: above.", click_type=_choices("direction"))
]
Level = Annotated[float | None, typer.Option(help="The level at which it fires, in the signal's unit; for an absence in seconds.")]
ClearLevel = Annotated[float | None, typer.Option(help="The level at which an alert ends. Default: the level.")]
SevereLevel = Annotated[float | None, typer.Option(help="From this level on its alerts are errors.")]
Window = Annotated[str | None, typer.Option(help="The time over which it computes a rate, trend or forecast, as 10m.")]
Hold = Annotated[str | None, typer.Option(help="How long the signal must be bad before it fires, as 2m.")]
Clear = Annotated[str | None, typer.Option(help="How long the signal must be good before an alert ends, as 5m.")]
OfCluster = Annotated[str | None, typer.Option(help="Only in this cluster.", autocompletion=names.clusters)]
OfShape = Annotated[str | None, typer.Option(help="Only GPUs of this shape.", autocompletion=names.shapes)]
Runbook = Annotated[str | None, typer.Option(help="What whoever is told should do.")]

COLUMNS: list[Column[AlertRule]] = [
    Column("NAME", lambda rule: rule.name),
    Column("FIRES WHEN", lambda rule: rule.condition),
    Column("SEVERITY", lambda rule: rule.severity),
    Column("ON", lambda rule: "yes" if rule.is_on else "no"),
    Column("WORKSPACE", lambda rule: rule.slice or "-"),
    Column("SIGNAL", lambda rule: rule.signal, is_wide=True),
    Column("CLUSTER", lambda rule: rule.cluster or "", is_wide=True),
    Column("TELLS", lambda rule: rule.tells, is_wide=True),
    Column("OWNER", lambda rule: rule.owner or "EGS", is_wide=True),
    Column("ID", lambda rule: rule.id, is_wide=True),
]


@app.command("ls", hidden=True)
@app.command("list")
def list_(output: Output = "table", workspace: options.Workspace = None) -> None:
    """List the rules that may tell you something: of your workspaces, and of the platform."""
    given: dict[str, Any] = {"slice": workspace} if workspace else {}
    with client() as egs:
        rows = egs.alert_rules.list(page_size=RULES_MOST, **given).all()
        show_list(rows, COLUMNS, output=output, kind="alert-rule", none=f"There is no {'such ' if given else ''}rule.")


@app.command("get", hidden=True)
@app.command()
def show(rule: Rule, output: Output = "table") -> None:
    """Show all of one rule."""
    with client() as egs:
        found = rule_of(rule, egs)
        show_one(found, lines(found), output=output, kind="alert-rule")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The rule's name, which its alerts show.")],
    signal: Signal,
    level: Annotated[float, typer.Option(help="The level at which it fires, in the signal's unit; for an absence in seconds.")],
    workspace: options.Workspace = None,
    kind: Kind = "threshold",
    severity: Severity = "warning",
    direction: Direction = None,
    clear_level: ClearLevel = None,
    severe_level: SevereLevel = None,
    window: Window = None,
    hold: Hold = None,
    clear: Clear = None,
    cluster: OfCluster = None,
    shape: OfShape = None,
    runbook: Runbook = None,
    dry_run: options.DryRun = False,
    output: Output = "table",
) -> None:
    """Make a rule for the boxes of a workspace."""
    terms = _terms(
        kind=kind, severity=severity, direction=direction, level=level, clear_level=clear_level, severe_level=severe_level,
        window_s=window, hold_s=hold, clear_s=clear, cluster=cluster, shape=shape, runbook=runbook,
    )  # fmt: skip
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        print(f"{name}, for workspace {slice_}: {signal}, {', '.join(f'{field} {value}' for field, value in terms.items())}.")
        if dry_run:
            return
        with settled():
            made = egs.alert_rules.create(name=name, slice=slice_, signal=signal, **terms)  # type: ignore[arg-type]
        show_one(made, lines(made), output=output, kind="alert-rule")


@app.command()
def edit(
    rule: Rule,
    name: Annotated[str | None, typer.Option(help="Its new name.")] = None,
    level: Level = None,
    kind: Kind = None,
    severity: Severity = None,
    direction: Direction = None,
    clear_level: ClearLevel = None,
    severe_level: SevereLevel = None,
    window: Window = None,
    hold: Hold = None,
    clear: Clear = None,
    cluster: OfCluster = None,
    shape: OfShape = None,
    runbook: Runbook = None,
    is_on: Annotated[bool | None, typer.Option("--on/--off", help="Switch the rule on or off.")] = None,
    dry_run: options.DryRun = False,
) -> None:
    """Change a rule. Alerts that fire go on, and end by the new terms."""
    terms = _terms(
        name=name, kind=kind, severity=severity, direction=direction, level=level, clear_level=clear_level, severe_level=severe_level,
        window_s=window, hold_s=hold, clear_s=clear, cluster=cluster, shape=shape, runbook=runbook, is_on=is_on,
    )  # fmt: skip
    if not terms:
        raise Refused("Say what to change, as --level 85 or --off.")
    with client() as egs:
        found = rule_of(rule, egs)
        for field, value in terms.items():
            print(f"{field}: {getattr(found, field)} -> {value}")
        if dry_run:
            return
        with settled():
            changed = egs.alert_rules.update(found.id, **terms)
        print(f"{changed.name} fires when {changed.condition}{'' if changed.is_on else ', but is off'}.")


@app.command()
def delete(rule: Rule, yes: options.Yes = False, dry_run: options.DryRun = False) -> None:
    """Delete a rule, and its alerts with it."""
    with client() as egs:
        found = rule_of(rule, egs)
        print(f"{found.name}: {found.condition}.")
        if dry_run or not agreed(f"Delete {found.name}, and its alerts?", is_yes=yes):
            return
        with settled():
            egs.alert_rules.delete(found.id)
        print(f"{found.name} is deleted.")


def rule_of(reference: str, egs: Client) -> AlertRule:
    """Find the rule by its id or its name. Raises NotFound or Refused."""
    try:
        uuid.UUID(reference)
    except ValueError:
        rows = [rule for rule in egs.alert_rules.list(page_size=RULES_MOST).all() if rule.name == reference]
        if not rows:
            detail = f"There is no alert rule {reference}, or you may not see it: egs alert-rule list"
            raise NotFound(status=404, code="not_found", title="Not found", detail=detail) from None
        if len(rows) > 1:
            ids = ", ".join(rule.id for rule in rows)
            raise Refused(f"There are {len(rows)} rules of the name {reference}. Name one by its id: {ids}") from None
        return rows[0]
    return egs.alert_rules.get(reference)


def lines(rule: AlertRule) -> list[tuple[str, str]]:
    rows = [
        ("Name", rule.name),
        ("Id", rule.id),
        ("Fires when", rule.condition),
        ("On", "yes" if rule.is_on else "no"),
        ("Workspace", rule.slice or "the platform's"),
        ("Signal", f"{rule.signal} ({rule.unit})" if rule.unit else rule.signal),
        ("Severity", rule.severity),
        ("Severe from", "" if rule.severe_level is None else f"{rule.severe_level:g}"),
        ("Over at", f"{rule.clear_level:g}, for {span(rule.clear_s)}"),
        ("Cluster", rule.cluster or ""),
        ("Shape", rule.shape),
        ("Tells", rule.tells),
        ("Runbook", rule.runbook),
        ("Owner", rule.owner or "EGS"),
    ]
    return [(label, text) for label, text in rows if text]


def _terms(**given: Any) -> dict[str, Any]:
    """Returns the API's fields, without those that were not given; spans as seconds."""
    spans = {field: int(span_s) for field, text in given.items() if field.endswith("_s") and (span_s := options.seconds(text)) is not None}
    return {field: value for field, value in {**given, **spans}.items() if value is not None}
