"""Commands made from methods of the SDK: an option for each field of the API, with its help; a preview before what changes something."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import typer

from egs_client.cli import names, options
from egs_client.cli.exits import Refused
from egs_client.cli.output import Column, Output, as_data, show_list, show_one
from egs_client.cli.session import agreed, client, gpr_of, settled
from egs_client.sync.pages import Pages
from egs_client.sync.resource import Resource

if TYPE_CHECKING:
    from egs_client.sync.client import Client

# The words of a terminal for those of the SDK.
VERBS = {"get": "show", "create": "add", "update": "change", "delete": "remove"}
# These operations change nothing.
READS = {"list", "get", "question", "export"}
# The operation that says what another would do.
PREVIEWS = {
    "maintenance.create": "preview",
    "policies.update": "preview",
    **{f"{of}.{act}": "closing" for of in ("projects", "slices") for act in ("archive", "remove")},
}
HIDDEN = {"preview"}
SKIPPED = {"idempotency_key", "if_match", "version", "page_size"}
COMPLETERS = {"cluster": names.clusters, "node": names.nodes, "shape": names.shapes, "slice": names.workspaces, "clusters": names.clusters}
CELLS = 6
# For operations of which the API says nothing.
HTTP = ("GET ", "POST ", "PATCH ", "DELETE ")
PLAIN = {"list": "List them.", "get": "Show one.", "create": "Make one.", "update": "Change one.", "delete": "Remove one."}
NOTHING = "none"


def group_of(path: str, *, only: Sequence[str] = ()) -> typer.Typer:
    """A command for each method of the resource at `path` of the client, as `slices.members`."""
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
    texts = _texts(method.__doc__ or "")
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name not in {"self", *SKIPPED}]
    kinds = {each.name: hints[each.name] for each in parameters}
    is_read = name in READS

    def run(**given: Any) -> None:
        output, is_yes, is_dry = given.pop("output"), given.pop("yes", True), given.pop("dry_run", False)
        values = {field: _value(text, kinds[field], field) for field, text in given.items() if text not in (None, [])}
        _run(path, name, values, [each.name for each in parameters if each.kind != inspect.Parameter.KEYWORD_ONLY], output, is_yes, is_dry)

    shown = [_parameter(each, kinds[each.name], texts.get(each.name, ""), path) for each in parameters]
    shown.append(_keyword("output", Output, "table"))
    if not is_read:
        shown += [_keyword("yes", options.Yes, False), _keyword("dry_run", options.DryRun, False)]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    run.__doc__ = texts[""] if not texts[""].startswith(HTTP) else PLAIN.get(name, f"{name.replace('_', ' ').capitalize()} it.")
    return run


def _run(path: str, name: str, values: dict[str, Any], places: list[str], output: str, is_yes: bool, is_dry: bool) -> None:
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
            _preview(group, path, name, positional, values)
            if is_dry or not agreed("Do it?", is_yes=is_yes, needs_yes=name != "create"):
                return
            with settled():
                answer = getattr(group, name)(*positional, **values)
        else:
            answer = getattr(group, name)(*positional, **values)
            answer = answer.all() if isinstance(answer, Pages) else answer
    _show(answer, output, kind=path.rsplit(".", maxsplit=1)[-1].rstrip("s"))


def _policy_of(reference: str, egs: Client) -> str:
    """Returns the id of the policy of this workspace or project, or of `platform`; else what was given."""
    return next((policy.id for policy in egs.policies.list() if policy.name == reference), reference)


def _preview(group: Any, path: str, name: str, positional: list[str], values: dict[str, Any]) -> None:
    """Returns what the server says it would do, or else what the object is now and what would change."""
    what = " ".join([VERBS.get(name, name), path.replace(".", " "), *positional])
    print(f"{what}:")
    now: Any = None
    if preview := PREVIEWS.get(f"{path}.{name}"):
        ask = getattr(group, preview)
        taken = inspect.signature(ask).parameters
        _show(ask(*positional, **{field: value for field, value in values.items() if field in taken}), "table", kind="preview")
    elif name != "create" and positional and hasattr(group, "get"):
        now = group.get(*positional)
        label = [
            f"{field} {_cell(getattr(now, field))}"
            for field in ("name", "state", "priority")
            if getattr(now, field, None) not in (None, "")
        ]
        print(f"  now: {', '.join(label)}")
    for field, value in values.items():
        old = f"{_cell(getattr(now, field))} -> " if hasattr(now, field) else ""
        print(f"  {field}: {old}{_cell(value)}")


def _show(answer: Any, output: str, *, kind: str) -> None:
    if answer is None:
        print("Done.")
    elif isinstance(answer, str):
        print(answer, end="")
    elif isinstance(answer, list):
        fields = [field.name for field in msgspec.structs.fields(answer[0])] if answer else []
        first = [name for name in fields if name != "id" and not name.endswith("_id")]
        columns = [_column(name, is_wide=at >= CELLS) for at, name in enumerate([*first, "id"]) if name in fields]
        show_list(answer, columns, output=output, kind=kind, none="There is none.")
    else:
        lines = [(name, _block(value)) for name, value in as_data(answer).items() if not name.endswith("_id")]
        show_one(answer, lines, output=output, kind=kind)


def _column(name: str, *, is_wide: bool) -> Column[Any]:
    return Column(name.upper(), lambda row: _cell(getattr(row, name)), is_wide=is_wide)


def _block(value: Any) -> str:
    """Returns a value with a line for each thing in it; what is empty is left out."""
    if isinstance(value, dict):
        return "\n".join(f"{_words(name)}: {_inline(each)}" for name, each in value.items() if not _is_empty(each)) or "-"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "\n".join(map(_inline, value))
    return _cell(value)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_words(name)} {_inline(each)}" for name, each in value.items() if not (_is_empty(each) or name.endswith("id")))
    return ", ".join(map(_inline, value)) if isinstance(value, list) else _cell(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _is_empty(value: Any) -> bool:
    return value in (None, "", [], {}) or (isinstance(value, dict) and value.get("count") == 0)


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M}"
    if value is None or value == []:
        return "-"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(as_data(value), ensure_ascii=False)


def _parameter(each: inspect.Parameter, kind: Any, text: str, path: str) -> inspect.Parameter:
    completer = names.gprs if path == "gprs" and each.name == "id" else COMPLETERS.get(each.name.rstrip("_"))
    if each.kind != inspect.Parameter.KEYWORD_ONLY:
        metavar = "NAME" if each.name.rstrip("_") == "ref" else each.name.rstrip("_").removesuffix("_pk").upper()
        argument = typer.Argument(metavar=metavar, autocompletion=completer)
        return inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[str, argument])
    typed, note = _option_kind(kind)
    is_needed = each.default is inspect.Parameter.empty
    flag = f"--{each.name.rstrip('_').removesuffix('_s').replace('_', '-')}"
    declared = f"{flag}/--no-{flag[2:]}" if typed is bool else flag
    help_text = " ".join(part for part in (text, note) if part)
    option = typer.Option(declared, help=help_text, autocompletion=completer, show_default=False)
    annotation: Any = Annotated[typed if is_needed and typed is not list[str] else typed | None, option]
    return _keyword(each.name, annotation, inspect.Parameter.empty if is_needed else None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def kinds_of(kind: Any) -> list[Any]:
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return [each for each in parts if each not in (type(None), msgspec.UnsetType)]


def _option_kind(kind: Any) -> tuple[Any, str]:
    """How the terminal takes it, and what its help says of that."""
    kinds = kinds_of(kind)
    note = f"Write `{NOTHING}` to clear it." if type(None) in get_args(kind) else ""
    choices = [str(choice) for each in kinds if get_origin(each) is Literal for choice in get_args(each) if choice]
    if choices:
        return str, f"One of {', '.join(choices)}. {note}".strip()
    first = kinds[0]
    if get_origin(first) is Sequence or get_origin(first) is list:
        return list[str], "May be repeated."
    if get_origin(first) is Mapping or get_origin(first) is dict:
        return list[str], "NAME=VALUE; may be repeated."
    if first in (int, float, bool) and len(kinds) == 1 and not note:
        return first, ""
    return str, note


def _value(given: Any, kind: Any, field: str) -> Any:
    """Returns the value as the API takes it. Raises Refused."""
    kinds = kinds_of(kind)
    if isinstance(given, list) and get_origin(kinds[0]) in (Mapping, dict):
        pairs = dict(text.split("=", 1) for text in given if "=" in text)
        if len(pairs) != len(given):
            raise Refused(f"--{field}: write name=value.")
        return {name: _number(text) for name, text in pairs.items()}
    if given == NOTHING and type(None) in get_args(kind):
        return None
    if isinstance(given, str) and not {str, Any} & set(kinds) and datetime not in kinds and get_origin(kinds[0]) is not Literal:
        return _number(given)
    return given


def _number(text: str) -> Any:
    """The text itself where it is no number and no truth."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, int | float) else text


def _texts(doc: str) -> dict[str, str]:
    """The help of each field by its name; that of the operation under an empty one."""
    found, name = {"": ""}, ""
    for line in inspect.cleandoc(doc).splitlines():
        field, colon, text = line.partition(": ")
        if colon and field.isidentifier():
            name, found[field] = field, text
        else:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
