"""Makes commands from methods of the SDK: an option for each field of the API, with its help, and a preview before a change."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from egs_client.cli import names, options
from egs_client.cli.acts.answers import show
from egs_client.cli.acts.fields import option_kind, texts_of, value_of
from egs_client.cli.acts.previews import show_preview
from egs_client.cli.output import Output
from egs_client.cli.session import agreed, client, gpr_of, settled
from egs_client.sync.pages import Pages
from egs_client.sync.resource import Resource

if TYPE_CHECKING:
    from egs_client.sync.client import Client

# The words of a terminal for those of the SDK.
VERBS = {"get": "show", "create": "add", "update": "change", "delete": "remove"}
# These operations change nothing.
READS = {"list", "get", "question", "export"}
HIDDEN = {"preview"}
SKIPPED = {"idempotency_key", "if_match", "version", "page_size"}
COMPLETERS = {"cluster": names.clusters, "node": names.nodes, "shape": names.shapes, "slice": names.workspaces, "clusters": names.clusters}
# For operations of which the API says nothing.
HTTP = ("GET ", "POST ", "PATCH ", "DELETE ")
PLAIN = {"list": "List them.", "get": "Show one.", "create": "Make one.", "update": "Change one.", "delete": "Remove one."}


def group_of(path: str, *, only: Sequence[str] = ()) -> typer.Typer:
    """Returns a command for each method of the resource at `path` of the client, as `slices.members`."""
    from egs_client.sync.api import Api

    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
    kind = kind_at(Api, path)
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and not hasattr(Resource, name) and name not in HIDDEN and (not only or name in only):
            app.command(VERBS.get(name, name.replace("_", "-")))(_command(path, name, method))
    return app


def kind_at(kind: Any, path: str) -> Any:
    for part in path.split("."):
        getter = getattr(kind, part).func
        home, _, made = getter.__annotations__["return"].rpartition(".")
        module = f"{getter.__module__}.{home.removesuffix('_api')}" if home else getter.__module__
        kind = getattr(import_module(module), made)
    return kind


def _command(path: str, name: str, method: Callable[..., Any]) -> Callable[..., None]:
    hints = get_type_hints(method)
    texts = texts_of(method.__doc__ or "")
    told = "" if texts[""].startswith(HTTP) else texts[""]
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name not in {"self", *SKIPPED}]
    kinds = {each.name: hints[each.name] for each in parameters}
    places = [each.name for each in parameters if each.kind != inspect.Parameter.KEYWORD_ONLY]
    is_read = name in READS

    def run(**given: Any) -> None:
        output, is_yes, is_dry = given.pop("output"), given.pop("yes", True), given.pop("dry_run", False)
        values = {field: value_of(text, kinds[field], field) for field, text in given.items() if text not in (None, [])}
        _run(path, name, told, values, places, output, is_yes, is_dry)

    shown = [_parameter(each, kinds[each.name], texts.get(each.name, ""), path) for each in parameters]
    shown.append(_keyword("output", Output, "table"))
    if not is_read:
        shown += [_keyword("yes", options.Yes, False), _keyword("dry_run", options.DryRun, False)]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    run.__doc__ = told or PLAIN.get(name, f"{name.replace('_', ' ').capitalize()} it.")
    return run


def _run(path: str, name: str, told: str, values: dict[str, Any], places: list[str], output: str, is_yes: bool, is_dry: bool) -> None:
    title = " ".join([VERBS.get(name, name), path.replace(".", " "), *(values[place] for place in places)])
    with client() as egs:
        group = egs
        for part in path.split("."):
            group = getattr(group, part)
        if path == "gprs" and "id" in values:
            values["id"] = gpr_of(values["id"], egs).id
        elif path.startswith("policies") and (place := next(iter({"id", "policy_pk"} & values.keys()), None)):
            values[place] = _policy_of(values[place], egs)
        positional = [values.pop(place) for place in places]
        if name not in READS:
            print(f"{title}:")
            show_preview(group, path, name, positional, values)
            if told and name not in PLAIN:
                print(told)
            if is_dry or not agreed("Do it?", is_yes=is_yes, needs_yes=name != "create"):
                return
            with settled():
                answer = getattr(group, name)(*positional, **values)
        else:
            answer = getattr(group, name)(*positional, **values)
            answer = answer.all() if isinstance(answer, Pages) else answer
    show(answer, output, kind=path.rsplit(".", maxsplit=1)[-1].rstrip("s"))


def _policy_of(reference: str, egs: Client) -> str:
    """Returns the id of the policy of this workspace or project, or of `platform`; else what was given."""
    return next((policy.id for policy in egs.policies.list() if policy.name == reference), reference)


def _parameter(each: inspect.Parameter, kind: Any, text: str, path: str) -> inspect.Parameter:
    completer = names.gprs if path == "gprs" and each.name == "id" else COMPLETERS.get(each.name.rstrip("_"))
    if each.kind != inspect.Parameter.KEYWORD_ONLY:
        metavar = "NAME" if each.name.rstrip("_") == "ref" else each.name.rstrip("_").removesuffix("_pk").upper()
        argument = typer.Argument(metavar=metavar, autocompletion=completer)
        return inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[str, argument])
    typed, note = option_kind(kind)
    is_needed = each.default is inspect.Parameter.empty
    flag = f"--{each.name.rstrip('_').removesuffix('_s').replace('_', '-')}"
    declared = f"{flag}/--no-{flag[2:]}" if typed is bool else flag
    help_text = " ".join(part for part in (text, note) if part)
    option = typer.Option(declared, help=help_text, autocompletion=completer, show_default=False)
    annotation: Any = Annotated[typed if is_needed and typed is not list[str] else typed | None, option]
    return _keyword(each.name, annotation, inspect.Parameter.empty if is_needed else None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
