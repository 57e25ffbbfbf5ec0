"""Reads the API's OpenAPI document as models and operations."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator

ROOT = "/api/v1/"
NAME_OF_ID = "00000000-0000-0000-0000-000000000000"
PAGE = re.compile(r"Paginated(\w+)List")
REFERENCE = "#/components/schemas/"
VERBS = {"GET": "get", "PATCH": "update", "DELETE": "delete"}
# Names that begin a file of the SDK; what two apps share is in SHARED.
SHARED = "shared"
# Parameters that the SDK's `Pages` gives by itself.
OF_PAGES = {"cursor", "wait_s"}
# Maps the words of OpenAPI for bounds to those of msgspec.
BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    wire: str  # its name in the API
    annotation: str
    is_required: bool
    help: str


@dataclass(frozen=True, slots=True)
class Operation:
    http: str
    path: str  # below ROOT, e.g. gprs/{id}/release/
    app: str
    resource: tuple[str, ...]  # e.g. ("slices", "members")
    name: str
    help: str
    places: tuple[Argument, ...]  # parts of the path
    queries: tuple[Argument, ...]
    fields: tuple[Argument, ...]  # of the body
    returns: str | None  # the name of a model; None: nothing
    is_page: bool
    is_text: bool
    takes_key: bool
    takes_if_match: bool


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    help: str
    fields: tuple[Argument, ...]
    is_input: bool


@dataclass(slots=True)
class ApiDocument:
    operations: list[Operation]
    models: dict[str, dict[str, Model]] = field(default_factory=dict)  # app -> name -> model

    def app_of(self, model: str) -> str:
        return next(app for app, models in self.models.items() if model in models)


def document() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


def api_of(schema: dict[str, Any]) -> ApiDocument:
    components = schema["components"]["schemas"]
    read = Reader(components)
    lists = {
        path for path, by_method in schema["paths"].items() if "get" in by_method and by_method["get"]["operationId"].endswith("_list")
    }
    operations = [
        read.operation(path, method.upper(), body, lists=lists)
        for path, by_method in sorted(schema["paths"].items())
        for method, body in by_method.items()
        if method in {"get", "post", "patch", "put", "delete"}
    ]
    owners = owners_of(operations)
    operations = [replace(operation, app=owners[operation.resource[0]]) for operation in operations]
    api = ApiDocument(operations)
    users: dict[str, set[str]] = defaultdict(set)
    inputs: set[str] = set()
    for operation in operations:
        asked = {found for name in used_in(operation) for found in read.closure(name)}
        inputs |= asked
        for found in asked | (read.closure(operation.returns) if operation.returns else set()):
            users[found].add(operation.app)
    for name, apps in sorted(users.items()):
        app = next(iter(apps)) if len(apps) == 1 else SHARED
        api.models.setdefault(app, {})[name] = read.model(name, is_input=name in inputs)
    return api


def owners_of(operations: list[Operation]) -> dict[str, str]:
    """Returns the app whose file has the operations of a resource: the one that serves its shortest path."""
    return {each.resource[0]: each.app for each in sorted(operations, key=lambda each: (-len(each.path), each.path))}


def used_in(operation: Operation) -> set[str]:
    """Returns the models in arguments."""
    return {name for argument in operation.fields for name in re.findall(r"models\.(\w+)", argument.annotation)}


class Reader:
    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components

    def operation(self, path: str, http: str, body: dict[str, Any], *, lists: set[str]) -> Operation:
        parameters = body.get("parameters", [])
        places = tuple(self._argument(x["name"], x["schema"], is_required=True) for x in self._in_path(path, parameters))
        queries = tuple(
            self._argument(x["name"], {**x["schema"], **words(x)}, is_required=x.get("required", False), is_input=True)
            for x in parameters
            if x["in"] == "query" and x["name"] not in OF_PAGES
        )
        answered = next(answer for code, answer in body["responses"].items() if code.startswith("2"))
        content: dict[str, dict[str, Any]] = answered.get("content", {})
        kind, answer = next(iter(content.items()), ("application/json", {}))
        returns = answer.get("schema", {}).get("$ref", "").removeprefix(REFERENCE) or None
        page = PAGE.fullmatch(returns or "")
        if returns and page:
            returns = self._components[returns]["properties"]["results"]["items"]["$ref"].removeprefix(REFERENCE)
        resource, name = named(path, http, is_page=page is not None, lists=lists)
        asked = body.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref")
        return Operation(
            http=http,
            path=path.removeprefix(ROOT),
            app=app_of_path(path),
            resource=resource,
            name=name,
            help=_one_line(body.get("description", "").split("\n\nSorted by")[0]),
            places=places,
            queries=queries,
            fields=tuple(self._fields(asked.removeprefix(REFERENCE), is_input=True)) if asked else (),
            returns=returns,
            is_page=page is not None,
            is_text=kind != "application/json",
            takes_key=any(x["name"] == "Idempotency-Key" for x in parameters),
            takes_if_match=any(x["name"] == "If-Match" for x in parameters),
        )

    def model(self, name: str, *, is_input: bool) -> Model:
        text = _one_line(self._components[name].get("description", ""))
        return Model(name, text, tuple(self._fields(name, is_input=is_input)), is_input)

    def closure(self, name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """Returns the model, and all models in its fields."""
        found = {name}
        for argument in self._fields(name):
            for inner in re.findall(r"models\.(\w+)", argument.annotation):
                if inner not in seen and inner != name:
                    found |= self.closure(inner, seen | found)
        return found

    def _in_path(self, path: str, parameters: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        by_name = {x["name"]: x for x in parameters if x["in"] == "path"}
        yield from (by_name[name] for name in re.findall(r"{(\w+)}", path))

    def _fields(self, name: str, *, is_input: bool = False) -> Iterator[Argument]:
        schema = self._components[name]
        needed = schema.get("required", [])
        for wire, kind in schema.get("properties", {}).items():
            argument = self._argument(wire, kind, is_required=wire in needed, is_input=is_input)
            yield _bounded(argument, kind) if is_input else argument

    def _argument(self, wire: str, schema: dict[str, Any], *, is_required: bool, is_input: bool = False) -> Argument:
        name = wire.replace("-", "_")
        text = self._type(schema, is_input=is_input)
        is_nullable = schema.get("nullable") and not text.endswith("None") and text != "Any"
        return Argument(
            name=f"{name}_" if keyword.iskeyword(name) else name,
            wire=wire,
            annotation=f"{text} | None" if is_nullable else text,
            is_required=is_required,
            help=_one_line(schema.get("description", "")),
        )

    def _type(self, schema: dict[str, Any], *, is_input: bool) -> str:
        """Returns the type in Python's notation. A field with listed values may hold any text in an answer, because a newer server may know
        more values.
        """
        if "$ref" in schema:
            return self._reference(schema["$ref"].removeprefix(REFERENCE), is_input=is_input)
        if "allOf" in schema:
            return self._type(schema["allOf"][0], is_input=is_input)
        if "oneOf" in schema:
            kinds = [self._type(option, is_input=is_input) for option in schema["oneOf"]]
            return " | ".join(sorted(dict.fromkeys(kinds), key=lambda kind: (kind == "None", kind)))
        if "enum" in schema:
            return _choice(schema["enum"], is_input=is_input)
        kind = schema.get("type")
        if kind == "array":
            return f"{'Sequence' if is_input else 'list'}[{self._type(schema['items'], is_input=is_input)}]"
        if kind == "object":
            inner = schema.get("additionalProperties")
            value = self._type(inner, is_input=is_input) if inner else "Any"
            return f"{'Mapping' if is_input else 'dict'}[str, {value}]"
        if kind == "string" and schema.get("format") == "date-time":
            return "datetime | str" if is_input else "datetime"
        return {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}.get(str(kind), "Any")

    def _reference(self, name: str, *, is_input: bool) -> str:
        schema = self._components[name]
        if "enum" in schema:
            return _choice(schema["enum"], is_input=is_input)
        return f"models.{name}"


def _bounded(argument: Argument, schema: dict[str, Any]) -> Argument:
    bounds = ", ".join(f"{word}={schema[name]!r}" for name, word in BOUNDS.items() if name in schema)
    kind = argument.annotation.removesuffix(" | None")
    none = argument.annotation.removeprefix(kind)
    return replace(argument, annotation=f"Annotated[{kind}, Meta({bounds})]{none}") if bounds else argument


def named(path: str, http: str, *, is_page: bool, lists: set[str]) -> tuple[tuple[str, ...], str]:
    """Returns the resource and the method for an operation: `slices/{ref}/members/` GET is `slices.members.list`."""
    parts = path.removeprefix(ROOT).strip("/").split("/")
    words = [part.replace("-", "_") for part in parts if not part.startswith("{")]
    if is_page:
        return tuple(words), "list"
    if parts[-1].startswith("{"):
        return tuple(words), VERBS[http]
    if path in lists or len(words) == 1:
        return tuple(words), {**VERBS, "POST": "create"}[http]
    verb = words[-1] if http in {"GET", "POST"} else f"{VERBS[http]}_{words[-1]}"
    return tuple(words[:-1]), verb


def app_of_path(path: str) -> str:
    """Returns the hub's package that serves the path; it names the files."""
    view = resolve(re.sub(r"{\w+}", NAME_OF_ID, path)).func
    return str(getattr(view, "cls", view).__module__.split(".")[0])


def words(parameter: dict[str, Any]) -> dict[str, Any]:
    return {"description": parameter["description"]} if "description" in parameter else {}


def _choice(values: list[Any], *, is_input: bool) -> str:
    if values == [None]:
        return "None"
    return f"Literal[{', '.join(repr(value) for value in values)}]" if is_input else "str"


def _one_line(text: str) -> str:
    """Leaves out the list of choices that drf-spectacular appends."""
    return " ".join(re.split(r"(?:^|\n)\s*\* `", text)[0].split())
