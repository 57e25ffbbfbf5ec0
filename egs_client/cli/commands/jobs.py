"""`egs run` and `egs job` run jobs with their GPUs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli import early, names, options
from egs_client.cli.commands.gpr_acts import Filing, Template, ask_what_to_do, asked, show_offers
from egs_client.cli.exits import FAILED, STOPPED, Refused, say
from egs_client.cli.manifests.files import fail, texts_of
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.progress import follow
from egs_client.cli.session import agreed, client, gpr_of, settled
from egs_client.cli.words import here, soon, when, without_spans
from egs_client.errors import Ended, NotSignedIn, ServerFault, Unreachable
from egs_client.gprs import ACTIVE, name_now
from egs_client.jobs import OVER, SUCCEEDED, sentence_of

if TYPE_CHECKING:
    from egs_client.models.gpr import Job
    from egs_client.sync.api.gpr import Jobs, Notebooks
    from egs_client.sync.client import Client

LOOK_S = 1.0

app = typer.Typer(add_completion=False, help="Jobs with their GPUs. `egs run` files one.", no_args_is_help=True, rich_markup_mode=None)
run_app = typer.Typer(add_completion=False, rich_markup_mode=None)
apps = {"job": app, "run": run_app}

JobName = Annotated[str, typer.Argument(help="Its name or id.", metavar="JOB", autocompletion=names.jobs)]
Rank = Annotated[int, typer.Option(help="The pod whose output is shown, by its index.", min=0)]
NO_JOB = "There is no job. File one: egs run --hours 1 --image IMAGE -- COMMAND"
COLUMNS: list[Column[Job]] = [
    Column("NAME", lambda job: job.name),
    Column("STATE", lambda job: job.state),
    Column("KIND", lambda job: job.kind),
    Column("NODES", lambda job: str(job.nodes)),
    Column("IMAGE", lambda job: job.image or "-"),
    Column("ENDS", lambda job: soon(job.finished_at or job.ends_at)),
    Column("WORKSPACE", lambda job: job.slice, is_wide=True),
    Column("OWNER", lambda job: job.owner, is_wide=True),
    Column("GPR", lambda job: job.gpr_id, is_wide=True),
    Column("ID", lambda job: job.id, is_wide=True),
]


@run_app.command(context_settings={"allow_interspersed_args": False})
@options.with_box_options
def run(
    command: Annotated[list[str] | None, typer.Argument(help="After --: program and arguments. Default: those of the image.")] = None,
    image: Annotated[str | None, typer.Option("--image", "-i", help="The image to run, as registry.example/team/train:1.0.")] = None,
    name: Annotated[str | None, typer.Option(help="Its name. Default: one of the time.")] = None,
    workspace: options.Workspace = None,
    namespace: Annotated[str | None, typer.Option(help="A namespace of the workspace. Default: its first one in the cluster.")] = None,
    template: Template = None,
    in_: Annotated[
        str | None,
        typer.Option("--in", metavar="GPR", help="Run it in the box of this request, instead of a new one.", autocompletion=names.gprs),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Job, JobSet, PyTorchJob or MPIJob. Default: Job.", autocompletion=names.one_of("Job", "JobSet", "PyTorchJob", "MPIJob")
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Objects of Kubernetes to make instead, as YAML."), options.Of("manifest")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="A variable, as NAME=VALUE; may be repeated.")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="A Secret whose values it gets as variables; may be repeated.")] = None,
    volume: Annotated[list[str] | None, typer.Option("--volume", "-v", help="A claim to mount, as CLAIM:/path; may be repeated.")] = None,
    pull_secret: Annotated[str | None, typer.Option(help="The Secret by which the image is pulled.")] = None,
    user: Annotated[
        int | None, typer.Option(help="The user id of its processes, never root. Default: 1000."), options.Of("user_id")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="Number of restarts after a failure. Evictions do not count.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="A shell command to run in each pod before it is ended.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the nodes until their end, also when it has finished. --in always does.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="File it, and do not wait.")] = False,
    rank: Rank = 0,
    dry_run: options.DryRun = False,
    *,
    box: dict[str, Any],
) -> None:
    """Get GPU nodes and run something on them: wait, follow its output, and end as it ends."""
    what: dict[str, Any] = {
        "image": image,
        "command": command or None,
        "namespace": namespace,
        "kind": "Manifest" if file else kind,
        "manifest": _objects(file) if file else None,
        "env": pairs(env, "=", "--env", "NAME=VALUE"),
        "secrets": secret or None,
        "volumes": pairs(volume, ":", "--volume", "CLAIM:/path"),
        "pull_secret": pull_secret,
        "user_id": user,
        "retries": retries,
        "checkpoint": ["/bin/sh", "-c", checkpoint] if checkpoint else None,
        "releases_box": False if keep else None,
    }
    if not file and not image and not template:
        late = any(word.startswith("-") for word in command or ())
        order = " Options stand before the command, as egs run --name NAME --image IMAGE -- COMMAND." if late else ""
        raise Refused(f"Say what to run: --image IMAGE, --file JOB.yaml, or --template NAME.{order}")
    given = {field: value for field, value in what.items() if value is not None}
    if in_ is not None and (box or name or workspace or template or dry_run):
        raise Refused("--in takes a box as it is: leave out its name, its size, its workspace and --dry-run.")
    with client() as egs:
        if in_ is not None:
            with settled():
                job = egs.jobs.in_box(gpr=gpr_of(in_, egs).id, **given)
            say(f"It runs in the box of {job.name}.")
            if detach:
                return
            with asking(egs, job):
                job = _follow(egs, job, rank)
            _end(job)
            return
        fields = {**box_asked(egs, workspace, template, box), "name": name or name_now()}
        if dry_run:
            show_offers(egs.gprs.estimate(**fields), output="table")
            return
        with asking(egs, Filing(fields["name"])) as filing:
            with settled():
                job = egs.jobs.create(**fields, **given, idempotency_key=filing.send())
            filing.is_filed = True
            say(f"{job.name} ({job.id}) is filed.")
            if detach:
                return
            job = _follow(egs, job, rank)
        _end(job)


@app.command("ls", hidden=True)
@app.command("list")
def list_(
    output: Output = "table",
    workspace: options.Workspace = None,
    state: Annotated[str | None, typer.Option(help="Only of this state, as RUNNING.")] = None,
    is_all: Annotated[bool, typer.Option("--all", "-a", help="List those that are over, too.")] = False,
    limit: Annotated[int, typer.Option(help="List at most so many.", min=1)] = 100,
) -> None:
    """List jobs, the newest first."""
    given: dict[str, Any] = {name: value for name, value in {"slice": workspace, "state": state}.items() if value is not None}
    if not is_all and state is None:
        given["ended"] = False
    with client() as egs:
        rows = egs.jobs.list(**given, page_size=min(limit, 500)).all(limit=limit)
        show_list(rows, COLUMNS, output=output, kind="job", none="There is no such job." if workspace or state else NO_JOB)


@app.command("get", hidden=True)
@app.command()
def show(job: JobName, output: Output = "table") -> None:
    """Show all of one job."""
    with client() as egs:
        found = egs.jobs.get(job)
        show_one(found, _lines(found), output=output, kind="job")


@app.command()
def logs(
    job: JobName,
    rank: Rank = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is over.")] = False,
) -> None:
    """Print the last output of one pod."""
    early.over()
    with client() as egs:
        found, reader = egs.jobs.get(job), LogReader(egs, rank)
        # The agent is asked for the output with the first look.
        until_mono, has_any = time.monotonic() + 3 * LOOK_S, False
        while reader.print_news(found) or follow or (found.state not in OVER and time.monotonic() < until_mono):
            has_any = has_any or reader.had_news
            if found.state in OVER and not reader.had_news:
                break
            time.sleep(LOOK_S)
            found = egs.jobs.get(found.id)
    if not has_any:
        say(f"Pod {rank} has no output. {here(sentence_of(found))}")


@app.command()
def watch(job: JobName, rank: Rank = 0) -> None:
    """Follow one job and its output until it is over, and end as it ends."""
    with client() as egs:
        found = egs.jobs.get(job)
        with asking(egs, found):
            found = _follow(egs, found, rank)
        _end(found)


@app.command("delete", hidden=True)
@app.command()
def cancel(job: JobName, yes: options.Yes = False, dry_run: options.DryRun = False) -> None:
    """Cancel a job: its request is withdrawn, or its nodes are given back."""
    with client() as egs:
        cancel_asked(egs.jobs, job, question="Cancel {name}?", yes=yes, dry_run=dry_run)


def cancel_asked(jobs: Jobs | Notebooks, reference: str, *, question: str, yes: bool, dry_run: bool) -> None:
    """Show the job, ask unless `yes`, and cancel it. `question` has a place for the name."""
    found = jobs.get(reference)
    print(sentence_of(found))
    if dry_run or not agreed(question.format(name=found.name), is_yes=yes):
        return
    with settled():
        found = jobs.cancel(found.id)
    print(f"{found.name} is {found.state}.")


class LogReader:
    def __init__(self, egs: Client, rank: int) -> None:
        self._egs, self._rank, self._since = egs, rank, 0
        self.had_news = False

    def print_news(self, job: Job) -> bool:
        """Returns whether there was any."""
        self.had_news = False
        while True:
            part = self._egs.jobs.logs(job.id, rank=self._rank, since=self._since)
            if part.dropped and self._since:
                say("… output is missing here: more came than is kept.")
            if not part.text:
                return self.had_news
            sys.stdout.write(part.text)
            sys.stdout.flush()
            self._since, self.had_news = part.next, True


def _follow(egs: Client, job: Job, rank: int) -> Job:
    """Follows the job until it is over, through evictions."""
    reader, told = LogReader(egs, rank), ""
    while job.state not in OVER:
        if job.state == "WAITING" or job.gpr_state == "PROVISIONING":
            try:
                follow(egs, egs.gprs.get(job.gpr_id), until=lambda gpr: gpr.state == ACTIVE)
            except Ended:
                return egs.jobs.get(job.id)
        else:
            if (text := here(sentence_of(job))) and (plain := without_spans(text)) != told:
                say(text)
                told = plain
            reader.print_news(job)
            time.sleep(LOOK_S)
        job = seen_again(egs, job)
    reader.print_news(job)
    return job


def seen_again(egs: Client, job: Job) -> Job:
    try:
        return egs.jobs.get(job.id)
    except (Unreachable, ServerFault):  # it goes on without us
        time.sleep(LOOK_S)
        return job


def _end(job: Job) -> None:
    say(here(sentence_of(job)))
    if job.state != SUCCEEDED:
        raise typer.Exit(FAILED if job.outcome else STOPPED)


@contextmanager
def asking(egs: Client, what: Job | Filing, *, kind: str = "job") -> Iterator[Any]:
    """Says after a Ctrl-C or an outage what became of the job."""
    early.over()
    try:
        yield what
    except KeyboardInterrupt:
        if isinstance(what, Filing):
            what.tell(egs, where=f"egs {kind} list")
        else:
            ask_what_to_do(egs, egs.gprs.get(what.gpr_id))
        raise
    except (Unreachable, NotSignedIn, BrokenPipeError) as error:
        verb = "watch" if kind == "job" else "open"
        with suppress(BrokenPipeError):  # perhaps nobody reads this either
            if not isinstance(what, Filing) or what.is_filed:
                say(f"{what.name} goes on without this command: egs {kind} {verb} {what.name}")
            elif not isinstance(error, NotSignedIn):
                say(f"It is not known whether {what.name} was filed. Look: egs {kind} list")
        raise


def box_asked(egs: Client, workspace: str | None, template: str | None, box: dict[str, Any]) -> dict[str, Any]:
    """Any shape is meant where none is named."""
    is_open = template is None and not {"shape", "min_gpu_memory_gib"} & box.keys()
    return asked(egs, workspace, template, {"min_gpu_memory_gib": 1, **box} if is_open else box)


def _objects(path: str) -> str:
    """Returns the text of a file whose objects can run. Raises Refused, or Exit after it told each mistake with its line and field."""
    from egs_client.manifests.workloads import objects_read

    texts = texts_of([path])
    if len(texts) > 1:
        raise Refused(f"{path} has {len(texts)} files: name the one that is to run.")
    ((file, text),) = texts.items()
    fail(objects_read(file, text)[1])
    return text


def pairs(texts: list[str] | None, mark: str, option: str, form: str) -> dict[str, str] | None:
    """Raises Refused."""
    found = [text.partition(mark) for text in texts or ()]
    if any(not sign or not name for name, sign, _ in found):
        raise Refused(f"{option}: write {form}.")
    return {name: value for name, _, value in found} or None


def _lines(job: Job) -> list[tuple[str, str]]:
    rows = [
        ("Name", job.name),
        ("Id", job.id),
        ("State", sentence_of(job)),
        ("Workspace", job.slice),
        ("Owner", job.owner),
        ("GPR", f"{job.gpr_id} ({job.gpr_state})"),
        ("Runs", f"{job.run}"),
        ("Kind", job.kind),
        ("Image", job.image),
        ("Command", " ".join(job.command)),
        ("Nodes", str(job.nodes)),
        ("Cluster", job.cluster or ""),
        ("Namespace", job.namespace),
        ("Retries", str(job.retries)),
        ("Active", when(job.active_at) if job.active_at else ""),
        ("Ends", when(job.ends_at) if job.ends_at and job.state not in OVER else ""),
        ("Finished", when(job.finished_at) if job.finished_at else ""),
        ("Created", when(job.created_at)),
    ]
    return [(label, here(text)) for label, text in rows if text]
