"""These commands of `egs gpr` change something: estimate, create, edit, extend, release and cancel."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from egs_client.cli import names, options
from egs_client.cli.exits import Refused, say
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.progress import follow, lines_of
from egs_client.cli.session import agreed, client, gpr_of, is_interactive, settled, workspace_of
from egs_client.cli.words import by, clock, here, size, span, when
from egs_client.errors import EgsError, Unreachable
from egs_client.gprs import ACTIVE, ENDED, OVER, WAITING, name_now

if TYPE_CHECKING:
    from egs_client.models.gpr import GprDetail, Offer, Offers
    from egs_client.sync.client import Client

Template = Annotated[
    str | None, typer.Option("--template", "-t", help="A template for all fields that you omit.", autocompletion=names.templates)
]

OFFERS: list[Column[Offer]] = [
    Column("CLUSTER", lambda offer: offer.cluster),
    Column("SHAPE", lambda offer: offer.shape),
    Column("STARTS", lambda offer: when(offer.start_at)),
    Column("PROMISED BY", lambda offer: clock(offer.promised_start_at)),
    Column("90% BY", lambda offer: f"{span(offer.p90_s)}" if offer.p90_s else "now"),
    Column("FROM", lambda offer: offer.supply, is_wide=True),
    Column("BORROWS", lambda offer: "yes" if offer.borrows else "no", is_wide=True),
    Column("WAITS FOR", lambda offer: here(offer.explanation.sentence), is_wide=True),
]


NO_OFFER = "No start can be offered: no cluster has such nodes, or its predecessor has no place in the plan yet."


def add_to(app: typer.Typer) -> None:
    app.command()(estimate)
    app.command()(create)
    app.command()(wait)
    app.command()(edit)
    app.command()(extend)
    app.command()(release)
    app.command()(keep)
    app.command()(cancel)
    app.command("delete", hidden=True)(cancel)


@options.with_box_options
def estimate(workspace: options.Workspace = None, template: Template = None, output: Output = "table", *, box: dict[str, Any]) -> None:
    """Say when such a box would start, in each cluster. Nothing is filed."""
    with client() as egs:
        show_offers(egs.gprs.estimate(**asked(egs, workspace, template, box)), output=output)


@options.with_box_options
def create(
    name: Annotated[str | None, typer.Argument(help="Its name. Default: one of the time.")] = None,
    workspace: options.Workspace = None,
    template: Template = None,
    wait: options.Wait = False,
    timeout: options.Timeout = None,
    dry_run: options.DryRun = False,
    output: Output = "table",
    *,
    box: dict[str, Any],
) -> None:
    """File a GPR. It is told its position and its promise at once."""
    for_s = options.seconds(timeout)
    with client() as egs:
        fields = {**asked(egs, workspace, template, box), "name": name or name_now()}
        if dry_run:
            show_offers(egs.gprs.estimate(**fields), output=output)
            return
        gpr = file(egs, fields)
        if wait:
            gpr = wait_for(egs, gpr, for_s=for_s)
        if output not in {"table", "wide"}:
            show_one(gpr, [], output=output, kind="gpr")
        elif not wait:
            print("\n".join(lines_of(gpr, egs)))


def wait(gpr: options.Gpr, timeout: options.Timeout = None) -> None:
    """Wait until a GPR is active."""
    for_s = options.seconds(timeout)
    with client() as egs:
        wait_for(egs, gpr_of(gpr, egs), for_s=for_s)


@options.with_box_options
def edit(
    gpr: options.Gpr,
    name: Annotated[str | None, typer.Option(help="Its new name.")] = None,
    dry_run: options.DryRun = False,
    *,
    box: dict[str, Any],
) -> None:
    """Change a GPR that waits. It keeps its age."""
    fields = {**box, **({"name": name} if name else {})}
    if not fields:
        raise Refused("Say what to change, as --nodes 2 or --hours 3.")
    with client() as egs:
        found = gpr_of(gpr, egs)
        for field, value in fields.items():
            print(f"{options.as_typed(field, click.get_current_context())}: {_told(field, getattr(found, field))} -> {_told(field, value)}")
        if dry_run:
            if found.estimate and found.promised_start_at:
                print(f"Now it is planned {clock(found.estimate.start_at)}, promised by {clock(found.promised_start_at)}. With that:")
            show_offers(egs.gprs.estimate_change(found.id, version=found.version, **fields), output="table")
            return
        with settled():
            changed = egs.gprs.update(found.id, version=found.version, **fields)
        print("\n".join(lines_of(changed, egs)))


def _told(field: str, value: Any) -> Any:
    return "-" if value is None else span(value) if field.endswith("_s") and not isinstance(value, str) else value


def extend(
    gpr: options.Gpr,
    by: Annotated[str, typer.Argument(help="How much longer, as 1h30m."), options.Of("extra_s")],
    dry_run: options.DryRun = False,
) -> None:
    """Let a running box end later, if that breaks no promise."""
    with client() as egs:
        found = gpr_of(gpr, egs)
        if dry_run:
            egs.gprs.extend(found.id, extra_s=by, is_dry=True)
            print(f"{found.name} ends {when(found.ends_at)}; it can end {by} later.")
            return
        with settled():
            longer = egs.gprs.extend(found.id, extra_s=by)
        print(f"{longer.name} ends {when(longer.ends_at)}.")


def release(gpr: options.Gpr, yes: options.Yes = False, dry_run: options.DryRun = False, wait: options.Wait = False) -> None:
    """Give the nodes of a box back before its end."""
    with client() as egs:
        found = gpr_of(gpr, egs)
        print(f"{found.name}: {size(found.nodes, found.gpus_per_node, found.shape)}, {found.state}, {span(found.time_left_s or 0)} left.")
        if dry_run or not agreed(f"Release {found.name}? Its pods are stopped.", is_yes=yes):
            return
        with settled():
            found = egs.gprs.release(found.id)
        print(f"{found.name} is {found.state}; its nodes are being taken back.")
        if wait:
            follow(egs, found, until=lambda gpr: gpr.state in ENDED)


def keep(gpr: options.Gpr) -> None:
    """Keep a box whose GPUs do nothing: its idle time-out begins anew."""
    with client() as egs:
        found = gpr_of(gpr, egs)
        with settled():
            found = egs.gprs.keep(found.id)
        print(f"{found.name} is kept{f' until {clock(found.idle.ends_at)}' if found.idle else ''}.")


def cancel(gpr: options.Gpr, yes: options.Yes = False, dry_run: options.DryRun = False) -> None:
    """Withdraw a GPR that has not started."""
    with client() as egs:
        found = gpr_of(gpr, egs)
        print(f"{found.name}: {found.state}{f', promised by {by(found.promised_start_at)}' if found.promised_start_at else ''}.")
        if dry_run or not agreed(f"Cancel {found.name}?", is_yes=yes):
            return
        with settled():
            egs.gprs.delete(found.id)
        print(f"{found.name} is canceled.")


def asked(egs: Client, workspace: str | None, template: str | None, box: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a creation. One node is meant where nothing else is said."""
    fields = {**box, "slice": workspace_of(workspace, egs)}
    if template:
        return {**fields, "template": template}
    if "duration_s" not in fields:
        raise Refused("Say for how long: --hours 3, or --duration 1h30m.")
    if "shape" not in fields and "min_gpu_memory_gib" not in fields:
        raise Refused("Say which GPUs: --shape H100-80GB (egs shapes lists them), or --memory 80.")
    return {"nodes": 1, **fields}


@dataclass(slots=True)
class Filing:
    """Follows a request that is being filed. The server knows by its key whether it was filed."""

    name: str
    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    is_sent: bool = False
    is_filed: bool = False

    def send(self) -> str:
        """Returns the key for the call that follows."""
        self.is_sent = True
        return self.key

    def tell(self, egs: Client, *, where: str) -> None:
        """Says after a Ctrl-C what became of the request, and what to do with it."""
        if not self.is_sent:
            say(f"{self.name} was not filed.")
            return
        try:
            found = egs.gprs.list(idempotency_key=self.key, page_size=1).all(limit=1)
        except EgsError:
            found = []
        if not found:  # the server may still be at it
            say(f"It is not known whether {self.name} was filed. Look: {where}")
            return
        ask_what_to_do(egs, egs.gprs.get(found[0].id))


def file(egs: Client, fields: dict[str, Any]) -> GprDetail:
    """Creates it. Nobody is left to guess whether it is there."""
    filing = Filing(fields["name"])
    try:
        with settled():
            return egs.gprs.create(**fields, idempotency_key=filing.send())
    except KeyboardInterrupt:
        filing.tell(egs, where="egs gpr list")
        raise
    except Unreachable:
        say(f"It is not known whether {fields['name']} was filed. Look once the server is back: egs gpr list")
        raise


def wait_for(egs: Client, gpr: GprDetail, *, for_s: float | None) -> GprDetail:
    """Waits until it is active. A Ctrl-C, or what ends the wait, leaves it as the person says."""
    try:
        return follow(egs, gpr, until=lambda found: found.state == ACTIVE, for_s=for_s)
    except KeyboardInterrupt:
        ask_what_to_do(egs, gpr)
        raise
    except EgsError as error:
        if getattr(error, "gpr", None) is None:
            say(f"{gpr.name} stays as it is: egs gpr show {gpr.id}")
        raise


def ask_what_to_do(egs: Client, gpr: GprDetail) -> None:
    """Keep it or end it. Without a terminal it stays, and that is said."""
    gpr = egs.gprs.get(gpr.id)
    if gpr.state in OVER:
        say(f"{gpr.name} is {gpr.state}.")
        return
    act = "cancel" if gpr.state in WAITING else "release"
    if is_interactive() and agreed(f"{gpr.name} is {gpr.state}. {act.capitalize()} it?", is_yes=False):
        gpr = egs.end(gpr.id)
        say(f"{gpr.name} is {gpr.state}.")
        return
    say(f"{gpr.name} ({gpr.id}) stays {gpr.state}. To end it: egs gpr {act} {gpr.id}")


def show_offers(offers: Offers, *, output: str) -> None:
    if output not in {"table", "wide"}:
        show_one(offers, [], output=output, kind="offers")
        return
    for reason in offers.approval_reasons:
        print(f"It waits for approval first: {reason}")
    show_list(offers.offers, OFFERS, output=output, kind="offer", none=NO_OFFER)
    for offer in offers.offers[:1]:
        print(here(f"{offer.explanation.sentence} {offer.basis}".strip()))
        for other in offer.alternatives:
            box = f"{size(other.nodes, other.gpus_per_node, other.shape)} for {span(other.duration_s)}"
            print(f"  {span(other.sooner_s)} sooner: {box} on {other.cluster}")
