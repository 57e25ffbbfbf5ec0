"""Has the tree of commands. A group's module is imported when one of its commands runs."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, ClassVar

import typer

from egs_client import __version__
from egs_client.cli.exits import INTERRUPTED, PIPE_CLOSED, code_of, help_text, tell
from egs_client.cli.lazy import LazyGroup
from egs_client.cli.session import chosen
from egs_client.errors import EgsError, Problem

COMPLETE_VARIABLE = "_EGS_COMPLETE"
# Name -> module in `commands`, and what `egs --help` says.
GROUPS = {
    "login": ("login", "Sign in to a server, and store that as a profile."),
    "logout": ("login", "Forget the token of a profile."),
    "whoami": ("login", "Show who is signed in, where, and until when."),
    "gpr": ("gpr", "Estimate, create, watch, extend and release GPU Provision Requests."),
    "run": ("jobs", "Get GPU nodes and run something on them, to its end."),
    "job": ("jobs", "List, show, follow and cancel jobs with their GPUs."),
    "notebook": ("notebooks", "Get, list, open and stop JupyterLab with its GPUs."),
    "template": ("templates", "List and show templates that requests, jobs and notebooks start from."),
    "queue": ("looks", "Show what waits, and when it starts."),
    "shapes": ("looks", "Show which GPUs you can ask for, and how many are free now."),
    "nodes": ("looks", "Show nodes, their GPUs and who holds them."),
    "top": ("looks", "Show what GPUs do now, the hottest first."),
    "workloads": ("workloads", "Show the workloads of your pods, and what their GPUs do."),
    "pods": ("workloads", "Show pods with GPUs, and what keeps each from running."),
    "usage": ("usage", "Show GPU-hours held, used and wasted, and their cost."),
    "alerts": ("looks", "Show what is wrong with your boxes, and what to do."),
    "alert-rule": ("alert_rules", "List, create, edit and delete rules that watch your workspace's boxes."),
    "schedule": ("looks", "Draw who has which node when."),
    "events": ("looks", "Show what happened, and why."),
    "workspace": ("workspace", "Show workspaces, their policy, members and namespaces; ask for one."),
    "service-account": ("service_accounts", "List, create and edit programs of a workspace; make their tokens."),
    "kubeconfig": ("workspace", "Get a kubeconfig for a workspace."),
    "apply": ("manifests", "Make objects as manifests say."),
    "diff": ("manifests", "Show what apply would change."),
    "delete": ("manifests", "Delete what manifests name."),
    "get": ("manifests", "List objects of any kind; -o yaml as manifests."),
    "export": ("manifests", "Print the whole set-up as manifests."),
    "lint": ("manifests", "Check manifests without a server."),
    "admin": ("admin", "Do what administrators may, each act with a preview."),
    "completion": ("completion", "Print the completion script for bash, zsh or fish."),
}
ALIASES = {
    "alert": "alerts",
    "alert-rules": "alert-rule",
    "gprs": "gpr",
    "jobs": "job",
    "nb": "notebook",
    "node": "nodes",
    "sa": "service-account",
    "service-accounts": "service-account",
    "notebooks": "notebook",
    "event": "events",
    "workspaces": "workspace",
    "shape": "shapes",
    "slice": "workspace",
    "ws": "workspace",
    "templates": "template",
    "pod": "pods",
    "po": "pods",
    "workload": "workloads",
}


class Tree(LazyGroup):
    texts: ClassVar[dict[str, str]] = {name: text for name, (_, text) in GROUPS.items()}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def build(self, name: str) -> Any:
        module = import_module(f"egs_client.cli.commands.{GROUPS[name][0]}")
        return typer.main.get_command(module.apps[name])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EgsError as error:
            tell(_as_typed(error))
            raise typer.Exit(code_of(error)) from None
        except BrokenPipeError:  # click would end with 1
            raise typer.Exit(PIPE_CLOSED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _as_typed(error: EgsError) -> EgsError:
    """It names what the person typed, instead of the API's fields."""
    if isinstance(error, Problem) and error.errors and chosen.context is not None:
        from egs_client.cli.options import as_typed

        error.errors = {as_typed(field, chosen.context): sentences for field, sentences in error.errors.items()}
    return error


HELP = f"Elastic GPU Service: book GPU nodes for a time.\n\n{help_text()}"
app = typer.Typer(name="egs", cls=Tree, help=HELP, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"egs {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def options(
    profile: Annotated[str | None, typer.Option(help="The profile to use; `egs login` makes them. Also: EGS_LOGIN.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    chosen.profile = profile


def run() -> None:
    """Runs the command and exits with a code of `exits.py`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may know no dots
    try:
        if COMPLETE_VARIABLE in os.environ:
            from typer.completion import completion_init  # type: ignore[attr-defined]  # not in its list of names

            completion_init()
        typer.main.get_command(app).main(prog_name="egs", complete_var=COMPLETE_VARIABLE)
    except SystemExit as done:
        _end(done.code if isinstance(done.code, int) else 1 if done.code else 0)
    except BrokenPipeError:
        _end(PIPE_CLOSED)
    except KeyboardInterrupt:
        _end(INTERRUPTED)


def _end(code: int) -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = PIPE_CLOSED
    except ValueError:
        pass  # closed
    if code == PIPE_CLOSED:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
    sys.exit(code)
