"""`egs notebook` runs JupyterLab with its GPUs."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import UNSET

from egs_client.cli import names, options
from egs_client.cli.commands.gpr_acts import Filing, Template, show_offers
from egs_client.cli.commands.jobs import asking, box_asked, cancel_asked, pairs, seen_again
from egs_client.cli.commands.workspace import kubeconfig_made
from egs_client.cli.exits import STOPPED, Refused, say
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.progress import follow
from egs_client.cli.session import client, settled, workspace_of
from egs_client.cli.words import clock, here, soon, span, when
from egs_client.errors import EgsError, Ended
from egs_client.gprs import ACTIVE, name_now
from egs_client.jobs import OVER, sentence_of

if TYPE_CHECKING:
    from egs_client.kube.access import Access
    from egs_client.models.gpr import Job, NotebookAccess
    from egs_client.sync.client import Client

HOME = "/home/jovyan"
RUNNING, USUAL = "RUNNING", "notebook"
LOOK_S, LOOK_OPEN_S = 1.0, 5.0
RENEWED_BEFORE_S = 60
ENDS_SOON = timedelta(minutes=10)

app = typer.Typer(add_completion=False, rich_markup_mode=None)
apps = {"notebook": app}

Name = Annotated[str, typer.Argument(help="Its name or id.", metavar="NOTEBOOK", autocompletion=names.notebooks)]
Port = Annotated[int, typer.Option(help="The port of this machine where it appears. Default: a free one.", min=0, max=65535)]
InBrowser = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
COLUMNS: list[Column[Job]] = [
    Column("NAME", lambda job: job.name),
    Column("STATE", lambda job: job.state),
    Column("ENDS", lambda job: soon(job.finished_at or job.ends_at)),
    Column("IMAGE", lambda job: job.image),
    Column("WORKSPACE", lambda job: job.slice, is_wide=True),
    Column("OWNER", lambda job: job.owner, is_wide=True),
    Column("ID", lambda job: job.id, is_wide=True),
]


@app.callback(invoke_without_command=True)
@options.with_box_options
def notebook(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Option(help="Its name. Default: one of the time.")] = None,
    image: Annotated[
        str | None, typer.Option("--image", "-i", help="An image with JupyterLab. Default: that of template `notebook`.")
    ] = None,
    workspace: options.Workspace = None,
    namespace: Annotated[str | None, typer.Option(help="A namespace of the workspace. Default: its first one in the cluster.")] = None,
    template: Template = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="A variable, as NAME=VALUE; may be repeated.")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="A Secret whose values it gets as variables; may be repeated.")] = None,
    volume: Annotated[list[str] | None, typer.Option("--volume", "-v", help="A claim for its home, or CLAIM:/path; repeatable.")] = None,
    pull_secret: Annotated[str | None, typer.Option(help="The Secret by which the image is pulled.")] = None,
    port: Port = 0,
    in_browser: InBrowser = False,
    detach: Annotated[bool, typer.Option("--detach", help="File it, and do not wait.")] = False,
    dry_run: options.DryRun = False,
    *,
    box: dict[str, Any],
) -> None:
    """Get GPUs with JupyterLab: wait, and reach it on this machine. Subcommands list, open and stop notebooks."""
    if ctx.invoked_subcommand is not None:
        return
    if not box and not image and not template:
        print(ctx.get_help())
        raise typer.Exit
    what: dict[str, Any] = {
        "image": image,
        "namespace": namespace,
        "env": pairs(env, "=", "--env", "NAME=VALUE"),
        "secrets": secret or None,
        "volumes": pairs([each if ":" in each else f"{each}:{HOME}" for each in volume or ()], ":", "--volume", "CLAIM:/path"),
        "pull_secret": pull_secret,
    }
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        fields = {**box_asked(egs, slice_, template or _usual(egs, slice_), box), "name": name or name_now()}
        if dry_run:
            show_offers(egs.gprs.estimate(**fields), output="table")
            return
        given = {field: value for field, value in what.items() if value is not None}
        with asking(egs, Filing(fields["name"]), kind="notebook") as filing:
            with settled():
                job = egs.notebooks.create(**fields, **given, idempotency_key=filing.send())
            filing.is_filed = True
            say(f"{job.name} ({job.id}) is filed.")
            if detach:
                return
            job = _ready(egs, job)
        _serve(egs, job, port=port, in_browser=in_browser)


@app.command("ls", hidden=True)
@app.command("list")
def list_(
    output: Output = "table",
    workspace: options.Workspace = None,
    is_all: Annotated[bool, typer.Option("--all", "-a", help="List those that are over, too.")] = False,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 100,
) -> None:
    """List notebooks, the newest first."""
    given: dict[str, Any] = {} if workspace is None else {"slice": workspace}
    if not is_all:
        given["ended"] = False
    with client() as egs:
        rows = egs.notebooks.list(**given, page_size=min(limit, 500)).all(limit=limit)
        show_list(rows, COLUMNS, output=output, kind="notebook", none="There is no notebook. File one: egs notebook --gpus 1 --hours 4")


@app.command("get", hidden=True)
@app.command()
def show(notebook: Name, output: Output = "table") -> None:
    """Show one notebook, without its token."""
    with client() as egs:
        found = egs.notebooks.get(notebook)
        rows = [
            ("Name", found.name),
            ("Id", found.id),
            ("State", here(sentence_of(found))),
            ("Workspace", found.slice),
            ("Owner", found.owner),
            ("GPR", f"{found.gpr_id} ({found.gpr_state})"),
            ("Image", found.image),
            ("Home", ", ".join(f"{claim} at {path}" for claim, path in found.volumes.items()) or "lost at its end: give a --volume"),
            ("Cluster", found.cluster or ""),
            ("Ends", when(found.ends_at) if found.ends_at else ""),
        ]
        show_one(found, [row for row in rows if row[1]], output=output, kind="notebook")


@app.command("open")
def open_(notebook: Name, port: Port = 0, in_browser: InBrowser = False) -> None:
    """Reach a notebook on this machine, until Ctrl-C or its end."""
    with client() as egs:
        job = egs.notebooks.get(notebook)
        if job.state not in OVER:
            job = _ready(egs, job)
        _serve(egs, job, port=port, in_browser=in_browser)


@app.command("cancel", hidden=True)
@app.command("delete", hidden=True)
@app.command()
def stop(notebook: Name, yes: options.Yes = False, dry_run: options.DryRun = False) -> None:
    """Stop a notebook: its request is withdrawn, or its GPUs are given back."""
    with client() as egs:
        question = "Stop {name}? What is not on a volume is lost."
        cancel_asked(egs.notebooks, notebook, question=question, yes=yes, dry_run=dry_run)


def _usual(egs: Client, workspace: str) -> str | None:
    """Returns the id of the workspace's template `notebook`, if it has one."""
    rows = egs.templates.list(slice=workspace, name=USUAL).all()
    return next((template.id for template in rows if template.name == USUAL), None)


def _ready(egs: Client, job: Job) -> Job:
    """Waits until it runs, or is over."""
    told = ""
    while job.state not in OVER and job.state != RUNNING:
        if job.state == "WAITING" or job.gpr_state == "PROVISIONING":
            try:
                follow(egs, egs.gprs.get(job.gpr_id), until=lambda gpr: gpr.state == ACTIVE)
            except Ended:
                return egs.notebooks.get(job.id)
        elif (text := sentence_of(job)) != told:
            say(here(text))
            told = text
        time.sleep(LOOK_S)
        job = seen_again(egs, job)
    return job


def _serve(egs: Client, job: Job, *, port: int, in_browser: bool) -> None:
    if job.state in OVER:
        say(here(sentence_of(job)))
        raise typer.Exit(STOPPED)
    with settled():
        access = egs.notebooks.open(job.id)
    if access.url:
        _show(f"{access.url}lab?token={access.token}", job, in_browser=in_browser)
        return
    try:
        asyncio.run(_forward(egs, job, access, port=port, in_browser=in_browser))
    except OSError as error:
        raise Refused(f"Port {port} of this machine cannot be used: {error.strerror}. Name another one: --port") from None
    except KeyboardInterrupt:
        say(f"\n{job.name} goes on until {clock(job.ends_at) if job.ends_at else 'its end'}.")
        say(f"Again: egs notebook open {job.name}. Give its GPUs back: egs notebook stop {job.name}")
        raise


async def _forward(egs: Client, job: Job, access: NotebookAccess, *, port: int, in_browser: bool) -> None:
    from egs_client.kube.forwarding import HERE, Forwarding

    rights = RenewedKubeconfig(egs, job, access.cluster)
    door = Forwarding(namespace=access.namespace, port=access.port, access=rights.now, find=lambda own: own.running_pod(*there), say=say)
    there = (access.namespace, f"batch.kubernetes.io/job-name={access.service}")
    server = await door.listen(port)
    own_port = server.sockets[0].getsockname()[1]
    _show(f"http://{HERE}:{own_port}/lab?token={access.token}", job, in_browser=in_browser)
    say(f"It is there until Ctrl-C. With kubectl: kubectl -n {access.namespace} port-forward service/{access.service} {access.port}")
    try:
        await _until_over(egs, job)
    finally:
        server.close()
        rights.give_back()


async def _until_over(egs: Client, job: Job) -> None:
    """Tells what changes, and warns before the end."""
    is_warned, told = False, job.state
    while job.state not in OVER:
        await asyncio.sleep(LOOK_OPEN_S)
        job = await asyncio.to_thread(seen_again, egs, job)
        left = job.ends_at - datetime.now(UTC) if job.ends_at else None
        if left is not None and left < ENDS_SOON and not is_warned and job.state == RUNNING:
            is_warned = True
            say(f"{job.name} ends in {span(left.total_seconds())}. Longer: egs gpr extend {job.name} 1h")
        if job.state != told:
            told = job.state
            say(here(sentence_of(job)))


class RenewedKubeconfig:
    """Keeps a kubeconfig that is valid now, and makes it anew before it ends."""

    def __init__(self, egs: Client, job: Job, cluster: str) -> None:
        self._egs, self._job, self._cluster = egs, job, cluster
        self._access: Access | None = None
        self._id, self._renewed_at = "", datetime.min.replace(tzinfo=UTC)

    def now(self) -> Access:
        """Raises ClusterRefused."""
        from egs_client.kube.access import Access, ClusterRefused

        if self._access is None or datetime.now(UTC) > self._renewed_at:
            try:
                made = kubeconfig_made(self._egs, self._job.slice, self._cluster, UNSET)
            except EgsError as error:
                raise ClusterRefused(str(error)) from error
            self._id, self._renewed_at = made.id, made.expires_at - timedelta(seconds=RENEWED_BEFORE_S)
            self._access = Access.of(made.kubeconfig)
        return self._access

    def give_back(self) -> None:
        if self._id:
            try:
                self._egs.slices.kubeconfig.delete(self._job.slice, self._id)
            except EgsError:
                say("Its kubeconfig could not be revoked; it ends by itself.")


def _show(url: str, job: Job, *, in_browser: bool) -> None:
    say(f"{job.name} runs{f', and ends {when(job.ends_at)}' if job.ends_at else ''}. Whoever has this address may use it:")
    print(url, flush=True)
    if in_browser:
        import webbrowser

        webbrowser.open(url)
