"""Writes models and operations as Python."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from egs.sdk.schema import SHARED, ApiDocument, Argument, Model, Operation

MADE = "# `make client` writes this file. Do not edit it.\n"


IF_MATCH_HELP = "if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one."


def models_of(api: ApiDocument) -> dict[str, str]:
    """Returns the files in `models/`, by name."""
    return {f"{app}.py": _model_file(api, app, models) for app, models in api.models.items()}


def operations_of(api: ApiDocument) -> dict[str, str]:
    """Returns the files in `aio/api/`, by name."""
    by_app: dict[str, dict[tuple[str, ...], list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for operation in api.operations:
        by_app[operation.app][operation.resource].append(operation)
        for depth in range(1, len(operation.resource)):
            by_app[operation.app].setdefault(operation.resource[:depth], [])
    files = {f"{app}.py": _operation_file(api, app, resources) for app, resources in by_app.items()}
    owners = {resource[0]: app for app, resources in by_app.items() for resource in resources if len(resource) == 1}
    return {"__init__.py": _root_file(owners), **files}


def formatted(texts: dict[str, str]) -> dict[str, str]:
    """Returns files by name, as `make lint` wants them."""
    root = Path(__file__).resolve().parents[2]
    ruff, configured = [sys.executable, "-m", "ruff"], ["--quiet", f"--config={root / 'pyproject.toml'}"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for command in (["check", "--fix-only", "--select=I,F401"], ["format"]):
            subprocess.run([*ruff, *command, *configured, folder], cwd=root, check=True)  # noqa: S603  # our own command
        return {name: (Path(folder) / name).read_text() for name in texts}


def _model_file(api: ApiDocument, app: str, models: dict[str, Model]) -> str:
    lines = [
        MADE,
        "from __future__ import annotations",
        "from collections.abc import Mapping, Sequence",
        "from datetime import datetime",
        "from typing import Annotated, Any, Literal",
        "from msgspec import UNSET, Meta, Struct, UnsetType",
    ]
    used = {name for model in models.values() for each in model.fields for name in re.findall(r"models\.(\w+)", each.annotation)}
    if foreign := sorted(used - set(models)):
        lines.append(f"from egs_client.models.{SHARED} import {', '.join(foreign)}")
    for model in _in_order(models):
        lines += ["", *_model(model)]
    return "\n".join(lines) + "\n"


def _in_order(models: dict[str, Model]) -> list[Model]:
    """Returns each model after those that it refers to."""
    done: dict[str, Model] = {}

    def visit(model: Model) -> None:
        for each in model.fields:
            for name in re.findall(r"models\.(\w+)", each.annotation):
                if name in models and name not in done and name != model.name:
                    visit(models[name])
        done.setdefault(model.name, model)

    for model in models.values():
        visit(model)
    return list(done.values())


def _model(model: Model) -> Iterator[str]:
    yield f"class {model.name}(Struct, kw_only=True):"
    if model.help:
        yield f"    {_docstring(model.help)}"
        yield ""
    for each in model.fields:
        annotation = each.annotation.replace("models.", "")
        if not each.is_required:
            annotation = _or_unset(annotation) if model.is_input else f"{annotation.removesuffix(' | None')} | None = None"
        yield f"    {each.name}: {annotation}"
    if not model.fields:
        yield "    pass"


def _operation_file(api: ApiDocument, app: str, resources: dict[tuple[str, ...], list[Operation]]) -> str:
    shared = {operation.returns for operations in resources.values() for operation in operations if operation.returns}
    shared |= {name for operations in resources.values() for each in operations for field in each.fields for name in _names(field)}
    has_shared = any(api.app_of(name) == SHARED for name in shared if name)
    lines = [
        MADE,
        "from __future__ import annotations",
        "from collections.abc import Mapping, Sequence",
        "from datetime import datetime",
        "from functools import cached_property",
        "from typing import Annotated, Any, Literal",
        "from msgspec import UNSET, Meta, UnsetType",
        "from egs_client.aio.pages import AsyncPages",
        "from egs_client.aio.resource import AsyncResource",
        f"from egs_client.models import {app} as models" if app in api.models else "",
        f"from egs_client.models import {SHARED}" if has_shared else "",
    ]
    for resource, operations in sorted(resources.items()):
        inner = [other for other in resources if other[:-1] == resource]
        lines += ["", f"class {_class(resource)}(AsyncResource):"]
        for other in inner:
            lines += [
                "    @cached_property",
                f"    def {other[-1]}(self) -> {_class(other)}:",
                f"        return {_class(other)}(self.client)",
                "",
            ]
        for operation in operations:
            lines += [*(f"    {line}" if line else "" for line in _operation(api, operation)), ""]
    return "\n".join(lines) + "\n"


def _operation(api: ApiDocument, operation: Operation) -> Iterator[str]:
    def at_home(annotation: str) -> str:
        return re.sub(r"models\.(\w+)", lambda found: _home(api, found[1]), annotation)

    taken = {each.name for each in (*operation.queries, *operation.fields)}
    places = [f"{each.name}_" if each.name in taken else each.name for each in operation.places]
    arguments = ["self", *(f"{name}: str" for name in places)]
    named = sorted((*operation.queries, *operation.fields), key=lambda each: not each.is_required)
    kinds = {each.name: at_home(each.annotation) for each in named}
    options = [f"{each.name}: {kinds[each.name] if each.is_required else _or_unset(kinds[each.name])}" for each in named]
    if operation.takes_key:
        options.append("idempotency_key: str | None = None")
    if operation.takes_if_match:
        options.append("if_match: str | None = None")
    if options:
        arguments += ["*", *options]
    returns = "None" if operation.returns is None else _home(api, operation.returns)
    if operation.is_text:
        returns = "str"
    path = operation.path
    for each, name in zip(operation.places, places, strict=True):
        path = path.replace(f"{{{each.wire}}}", f"{{self.quoted({name})}}")
    path = f'f"{path}"' if places else f'"{path}"'
    given = [path]
    if operation.queries:
        given.append(f"params={_dict(operation.queries)}")
    if operation.http in {"POST", "PATCH"}:
        given.append(f"body={_dict(operation.fields)}")
    if operation.takes_key:
        given += ["is_keyed=True", "key=idempotency_key"]
    if operation.takes_if_match:
        given.append("if_match=if_match")
    if operation.is_page:
        yield f"def {operation.name}({', '.join(arguments)}) -> AsyncPages[{returns}]:"
        yield f"    {_docstring(_help(operation, named))}"
        yield f"    return AsyncPages(self.client, {', '.join(given)}, kind={returns})"
        return
    yield f"async def {operation.name}({', '.join(arguments)}) -> {returns}:"
    yield f"    {_docstring(_help(operation, named))}"
    call = "await self.client.text" if operation.is_text else "await self.client.call"
    kind = "" if operation.is_text else f", kind={returns if operation.returns else 'type(None)'}"
    text = f'{call}("{operation.http}", {", ".join(given)}{kind})'
    yield f"    {'' if operation.returns is None and not operation.is_text else 'return '}{text}"


def _help(operation: Operation, named: Iterable[Argument]) -> str:
    lines = [operation.help or f"{operation.http} {operation.path}"]
    lines += [f"{each.name}: {each.help}" for each in named if each.help]
    if operation.takes_if_match:
        lines.append(IF_MATCH_HELP)
    return "\n".join(lines)


def _root_file(owners: dict[str, str]) -> str:
    lines = [
        MADE,
        "from __future__ import annotations",
        "from functools import cached_property",
        "from typing import TYPE_CHECKING",
        "from egs_client.aio.transport import AsyncTransport",
        "if TYPE_CHECKING:",
        *(f"    from egs_client.aio.api import {app} as {app}_api" for app in sorted(set(owners.values()))),
        "",
        "class AsyncApi(AsyncTransport):",
    ]
    for name, app in sorted(owners.items()):
        made = _class((name,))
        lines += ["    @cached_property", f"    def {name}(self) -> {app}_api.{made}:"]
        lines += [f"        from egs_client.aio.api.{app} import {made}", "", f"        return {made}(self)", ""]
    return "\n".join(lines) + "\n"


def _class(resource: tuple[str, ...]) -> str:
    return "".join(word.capitalize() for part in resource for word in part.split("_"))


def _names(argument: Argument) -> list[str]:
    return re.findall(r"models\.(\w+)", argument.annotation)


def _home(api: ApiDocument, name: str) -> str:
    return f"{SHARED if api.app_of(name) == SHARED else 'models'}.{name}"


def _dict(arguments: Iterable[Argument]) -> str:
    return "{" + ", ".join(f'"{each.wire}": {each.name}' for each in arguments) + "}"


def _or_unset(annotation: str) -> str:
    kind = annotation.removesuffix(" | None")
    return f"{kind} | UnsetType{' | None' if kind != annotation else ''} = UNSET"


def _docstring(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    first, *others = [
        textwrap.fill(line, 125, subsequent_indent="    " if at else "").split("\n") for at, line in enumerate(text.split("\n"))
    ]
    if not others and len(first) == 1:
        return f'"""{text}"""'
    head = [f'"""{first[0]}', *first[1:]]
    return "\n        ".join([*head, *([""] if others else []), *(line for lines in others for line in lines), '"""'])
