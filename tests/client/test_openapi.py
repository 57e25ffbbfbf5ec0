"""The SDK and OpenAPI say the same: every operation with every parameter and field, and every field of every answer."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import Any, get_args, get_origin

import msgspec
import pytest
from django.conf import settings

from egs.sdk.files import files_left_over, files_made
from egs.sdk.schema import OF_PAGES, document
from egs_client.sync.api import Api
from egs_client.sync.pages import Pages
from egs_client.sync.resource import Resource

SCALARS = {"string": str, "integer": int, "number": float, "boolean": bool}


class Recorder(Api):
    """Notes what the SDK would send."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", "")
        self.sent: list[tuple[str, str, set[str], set[str], set[str], Any]] = []

    def call(
        self,
        http: str,
        path: str,
        *,
        kind: Any,
        params: Any = None,
        body: Any = None,
        is_keyed: bool = False,
        key: Any = None,
        if_match: Any = None,
    ) -> Any:
        headers = {name for name, is_sent in (("Idempotency-Key", is_keyed), ("If-Match", if_match)) if is_sent}
        self.sent.append((http, path, set(params or {}), set(body or {}), headers, kind))
        raise StopIteration

    def text(self, http: str, path: str, *, params: Any = None) -> str:
        self.call(http, path, kind=str, params=params)
        return ""


def groups(at: Any) -> Iterator[Any]:
    """Yields every group of operations below the client."""
    for name, member in inspect.getmembers(type(at)):
        if isinstance(member, cached_property):
            group = getattr(at, name)
            yield group
            yield from groups(group)


def called(client: Recorder) -> Iterator[tuple[tuple[str, str], set[str], set[str], set[str], Any]]:
    for group in groups(client):
        for name, method in inspect.getmembers(group, inspect.ismethod):
            if name.startswith("_") or isinstance(inspect.getattr_static(Resource, name, None), staticmethod):
                continue
            given = {parameter.name: f"<{parameter.name}>" for parameter in inspect.signature(method).parameters.values()}
            try:
                answer = method(**given)
                assert isinstance(answer, Pages)
                list(answer)
            except (StopIteration, RuntimeError):
                pass  # sent
            http, path, params, body, headers, kind = client.sent.pop()
            yield (http, re.sub(r"%3C\w+%3E", "{}", f"/api/v1/{path}")), params, body, headers, kind


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return document()


def test_the_sdk_has_every_operation_with_its_parameters_and_fields(schema: dict[str, Any]) -> None:
    components = schema["components"]["schemas"]
    wanted = {}
    for path, by_method in schema["paths"].items():
        for http, operation in by_method.items():
            parameters = operation.get("parameters", [])
            queries = {parameter["name"] for parameter in parameters if parameter["in"] == "query"} - OF_PAGES
            asked = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref")
            fields = set(components[asked.rsplit("/")[-1]].get("properties", {})) if asked else set()
            headers = {parameter["name"] for parameter in parameters if parameter["in"] == "header"} - {"If-None-Match"}
            wanted[http.upper(), re.sub(r"{\w+}", "{}", path)] = (queries, fields, headers)

    found = {at: (params, body, headers) for at, params, body, headers, _ in called(Recorder())}

    assert found == wanted


def test_the_sdk_has_every_field_of_every_answer_with_its_type(schema: dict[str, Any]) -> None:
    kinds = {at: kind for at, _, _, _, kind in called(Recorder())}
    differences = []
    for path, by_method in schema["paths"].items():
        for http, operation in by_method.items():
            kind = kinds[http.upper(), re.sub(r"{\w+}", "{}", path)]
            answer = next(answer for code, answer in operation["responses"].items() if code.startswith("2"))
            content = answer.get("content", {"": {"schema": None}})
            wanted = next(iter(content.values()))["schema"]
            differences += [f"{http} {path}: {line}" for line in compared(kind, wanted, schema["components"]["schemas"], seen=set())]

    assert not differences


def compared(kind: Any, wanted: Any, components: dict[str, Any], *, seen: set[str]) -> Iterator[str]:
    """Returns what differs between a type of Python's and one of the schema's."""
    if wanted is None:
        if kind is not type(None):
            yield "answers nothing"
        return
    if wanted.get("nullable") or {"$ref": "#/components/schemas/NullEnum"} in wanted.get("oneOf", []):
        if kind is Any:
            return
        if type(None) not in get_args(kind):
            yield f"{kind} may be null"
        kind = without_none(kind)
    options = [option.get("type") for option in wanted.get("oneOf", []) if "$ref" not in option]
    if len(options) > 1:
        if set(get_args(kind)) - {type(None)} != {SCALARS[option] for option in options}:
            yield f"{kind} is one of {options}"
        return
    if "allOf" in wanted or "oneOf" in wanted:
        wanted = wanted.get("allOf", wanted.get("oneOf"))[0]
    if "$ref" in wanted:
        name = wanted["$ref"].rsplit("/")[-1]
        if name in seen:
            return
        seen, wanted = seen | {name}, components[name]
    if "properties" in wanted and isinstance(get_origin(kind) or kind, type) and issubclass(get_origin(kind) or kind, msgspec.Struct):
        yield from of_struct(kind, wanted, components, seen=seen)
    elif wanted.get("type") == "array":
        if get_origin(kind) is not list:
            yield f"{kind} is a list"
        else:
            yield from compared(get_args(kind)[0], wanted["items"], components, seen=seen)
    elif wanted.get("type") == "object":
        if get_origin(kind) is not dict:
            yield f"{kind} is a mapping"
    elif kind is not (datetime if wanted.get("format") == "date-time" else SCALARS.get(str(wanted.get("type")), Any)):
        yield f"{kind} is {wanted}"


def of_struct(kind: Any, wanted: dict[str, Any], components: dict[str, Any], *, seen: set[str]) -> Iterator[str]:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if fields.keys() != wanted["properties"].keys():
        yield f"{kind} has {fields.keys() ^ wanted['properties'].keys()} otherwise"
    for name, inner in wanted["properties"].items():
        needed = name in wanted.get("required", [])
        found = fields.get(name)
        if found is not None:
            given = found if needed or inner.get("nullable") else without_none(found)
            yield from (f"{name}: {line}" for line in compared(given, inner, components, seen=seen))


def without_none(kind: Any) -> Any:
    if not isinstance(kind, types.UnionType):
        return kind
    kinds = [each for each in get_args(kind) if each is not type(None)]
    return kinds[0] if len(kinds) == 1 else kind


def test_what_the_sdk_has_from_openapi_is_as_make_client_writes_it() -> None:
    package = settings.BASE_DIR / "egs_client"
    made = files_made(package)
    stale = [str(path) for path, text in made.items() if not path.exists() or path.read_text() != text]

    assert not stale + [str(path) for path in files_left_over(package, made)], (
        "The API or the async half has changed: run manage.py egs_client"
    )
