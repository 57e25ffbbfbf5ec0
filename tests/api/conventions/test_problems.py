"""Every bad request gets a clear problem document, never a stack, and stores nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import InterfaceError, OperationalError
from django.urls import get_resolver, resolve
from drf_spectacular.generators import SchemaGenerator

from accounts.models import ApiToken
from core.rest.deprecations import DEPRECATED, Deprecation
from core.rest.fields import StrictSerializer
from gpr.models import Gpr
from journal.models import Event
from journal.refusals import REFUSED
from slices.models import Project
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.factories import People

MALFORMED = {
    "nothing but a brace": b"{",
    "a trailing comma": b'{"name": "x",}',
    "single quotes": b"{'name': 'x'}",
    "NaN": b'{"name": NaN}',
    "Infinity": b'{"name": -Infinity}',
    "a number beyond all floats": b'{"name": 1e400}',
    "more digits than anybody reads": b'{"name": ' + b"9" * 10_000 + b"}",
    "a raw control character": b'{"name": "a\x01b"}',
    "not UTF-8": b'{"name": "\xff"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "a lone surrogate": b'{"name": "\\ud800"}',
    "a lone surrogate in a key": b'{"\\udfff": "x"}',
    "one key twice": b'{"name": "x", "name": "y"}',
    "nesting": b'{"name": ' + b"[" * 40 + b"]" * 40 + b"}",
    "nesting beyond the stack": b"[" * 200_000,
    "nesting of objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["me/", "no-such-thing/"])
def test_each_answer_tells_the_version(path: str, people: People, settings: Any) -> None:
    assert Caller(factories.token(people.owner)).get(path).headers["EGS-Version"] == settings.EGS_VERSION


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_body_is_a_400(body: bytes, admin: Caller) -> None:
    assert_problem(admin.raw("projects/", body), 400, "malformed_json")
    assert not Project.objects.exists()


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null", b"true", b"[{}]"])
def test_a_body_that_is_no_object_is_a_400(body: bytes, admin: Caller) -> None:
    assert_problem(admin.raw("projects/", body), 400, "invalid_input")


STOCK = re.compile(
    r"This field|[Nn]ot a valid|Ensure (this|that)|[Aa] valid|Expected a|may not be|Use one of these|wrong format|too large to"
)


def _words(field: Any) -> Iterator[str]:
    yield from map(str, field.error_messages.values())
    if (child := getattr(field, "child", None)) is not None:
        yield from _words(child)


def _kinds(of: type[StrictSerializer]) -> Iterator[type[StrictSerializer]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_no_refusal_of_a_field_speaks_in_the_words_of_the_framework() -> None:
    get_resolver().url_patterns  # noqa: B018  # all serializers are there
    fields = [(kind.__qualname__, name, field) for kind in _kinds(StrictSerializer) for name, field in kind().fields.items()]

    assert len(fields) > 300
    assert [(*where, text) for *where, field in fields for text in _words(field) if STOCK.search(text)] == []


def test_a_word_that_is_no_choice_is_told_with_the_nearest_or_with_all(owner: Caller, world: World) -> None:
    body = {"name": "x", "slice": "vision", "shape": "H100-80GB", "nodes": 1, "duration_s": 60, "within": "rak", "after_condition": "q"}

    errors = assert_problem(owner.post("gprs/", body), 400, "invalid_input")["errors"]

    assert errors["within"] == ["There is no rak here. Did you mean rack?"]
    assert errors["after_condition"] == ["There is no q here. There are any, success."]


def test_an_empty_body_counts_as_an_empty_object(admin: Caller) -> None:
    body = assert_problem(admin.raw("projects/", b""), 400, "invalid_input")

    assert body["errors"] == {"name": ["Is missing: give a value."]}


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", ""]
)
def test_anything_but_json_is_a_415(kind: str, admin: Caller) -> None:
    assert_problem(admin.raw("projects/", b"name=p", content_type=kind), 415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_may_say_its_charset(kind: str, admin: Caller) -> None:
    assert admin.raw("projects/", b'{"name": "p"}', content_type=kind).status_code == 201


def test_a_body_beyond_the_limit_is_a_413(admin: Caller, settings: Any) -> None:
    body = json.dumps({"name": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE}).encode()

    assert_problem(admin.raw("projects/", body), 413, "body_too_large")


@pytest.mark.parametrize("path", ["nothing/", "gprs", "gprs/x/y/z/", "%00/", "gprs/../../etc/passwd/", "GPRS/", "\u00e9/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_address_is_a_404_and_never_a_redirect(path: str, method: str, owner: Caller) -> None:
    assert_problem(owner.raw(path, b"{}", method=method), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "gprs/"), ("PUT", "gprs/"), ("POST", "me/"), ("GET", "gprs/estimate/"), ("OPTIONS", "gprs/")]
)
def test_a_method_that_is_not_there_is_a_405(method: str, path: str, owner: Caller) -> None:
    assert_problem(owner.call(method, path), 405, "method_not_allowed")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/json", "nonsense", ""])
def test_whatever_is_accepted_the_answer_is_json(accept: str, owner: Caller) -> None:
    response = owner.client.get("/api/v1/me/", headers={"Accept": accept})

    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize(("body", "status"), [(b'{"name": "p"}', 201), (b"{", 400), (b"", 400)])
def test_a_body_that_comes_in_chunks_is_read_too(body: bytes, status: int, people: People) -> None:
    bearer = f"Bearer {factories.token(people.admin)}".encode()
    headers = [(b"transfer-encoding", b"chunked"), (b"content-type", b"application/json"), (b"authorization", bearer)]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/projects/", "query_string": b"", "headers": headers}
    view = resolve("/api/v1/projects/").func

    assert view(ASGIRequest(scope, BytesIO(body))).status_code == status


def test_what_django_refuses_before_any_view_is_a_problem_too(owner: Caller) -> None:
    assert_problem(owner.client.get("/api/v1/me/", headers={"Host": "evil.example"}), 400, "bad_request")


def test_unknown_fields_are_all_named_together_with_every_other_fault(admin: Caller) -> None:
    body = assert_problem(admin.post("clusters/", {"nmae": "c", "namespace": 1}), 400, "invalid_input")

    assert set(body["errors"]) == {"name", "nmae", "namespace"}
    assert body["errors"]["nmae"] == ["There is no such field here."]


def test_an_unknown_field_is_echoed_in_part_only(admin: Caller) -> None:
    body = assert_problem(admin.post("clusters/", {"name": "c", "x" * 10_000: 1}), 400, "invalid_input")

    assert len(json.dumps(body)) < 1000


@pytest.mark.parametrize("path", ["gprs/?stat=QUEUED", "nodes/?name__gt=a", "queue/?state=x", "shapes/?page=2", "events/?limit=3"])
def test_an_unknown_filter_is_an_error_not_a_list_of_everything(path: str, owner: Caller, world: World) -> None:
    assert_problem(owner.get(path), 400, "invalid_input")


BAD_NAMES: list[Any] = [
    "",
    " ",
    "a\u0000b",
    "a\nb",
    "\u202eabc",
    "x" * 64,
    "-x",
    "x-",
    "a/b",
    "a b",
    5,
    True,
    None,
    ["a"],
    {"a": 1},
    "\u00e9",
]
BAD_NAMES += ["4be0643f-1d98-573b-97cd-ca98a65347dd", "4be0643f1d98573b97cdca98a65347dd"]


@pytest.mark.parametrize("path", ["projects/", "clusters/"])
def test_a_name_that_could_not_stand_in_a_path_is_refused_and_nothing_is_stored(path: str, admin: Caller) -> None:
    before = Event.objects.count()
    for name in BAD_NAMES:
        body = assert_problem(admin.post(path, {"name": name}), 400, "invalid_input")

        assert list(body["errors"]) == ["name"]
        assert Event.objects.count() == before


def test_a_fault_of_ours_tells_nothing_of_itself(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("secret of the house")

    monkeypatch.setattr("slices.api.TokenSerializer", break_down)
    owner.client.raise_request_exception = False

    response = owner.get("me/")

    assert_problem(response, 500, "internal")
    assert b"secret" not in response.content


def test_a_database_that_is_away_when_the_token_is_looked_up_is_told_of_as_such(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**given: Any) -> None:
        raise OperationalError("could not connect to server at 10.0.0.5")

    monkeypatch.setattr("accounts.authentication.token_authenticate", away)

    assert_problem(owner.get("me/"), 503, "unavailable")


@pytest.mark.parametrize("error", [OperationalError("could not connect to server at 10.0.0.5"), InterfaceError("connection is closed")])
def test_a_database_that_is_away_is_a_503_that_says_to_come_again(error: Exception, owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("gpr.requests.api.gprs_visible_to", fail)

    response = owner.get("gprs/")

    assert_problem(response, 503, "unavailable")
    assert response.headers["Retry-After"] == "5"
    assert b"10.0.0.5" not in response.content


def test_a_refused_request_stores_only_what_the_policy_refused(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    before = Event.objects.count(), ApiToken.objects.count()

    for fault in ({"nodes": 0}, {"nodes": 3}, {"shape": "H200"}, {"duration_s": 10**12}, {"clusters": ["nowhere"]}, {"extra": 1}):
        assert owner.post("gprs/", {**ask, **fault}).status_code in {400, 404}

    assert not Gpr.objects.exists()
    assert (Event.objects.exclude(kind=REFUSED).count(), ApiToken.objects.count()) == before
    assert [event.actor for event in Event.objects.filter(kind=REFUSED)] == [world.people.owner]  # ten to the twelfth seconds


@pytest.mark.django_db
def test_answers_tell_the_end_of_what_they_used_and_the_schema_marks_it(monkeypatch: pytest.MonkeyPatch, world: World, ask: Any) -> None:
    """An operation, a parameter of a list, a field of a body; answers that used none of them tell nothing."""
    since_at, ends_at = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    for key in ("shape.list", "gpr.list?state", "GprCreate.priority"):
        monkeypatch.setitem(DEPRECATED, key, Deprecation(since_at, ends_at, "Use something else."))
    owner = Caller(factories.token(world.people.owner))
    told = {
        "Deprecation": "@1798761600",
        "Sunset": "Sat, 01 Jan 2028 00:00:00 GMT",
        "Link": '</api/docs/>; rel="deprecation"; type="text/html"',
    }
    used = [owner.get("shapes/"), owner.get("gprs/", state="QUEUED"), owner.post("gprs/", {**ask, "priority": 100})]
    others = [owner.get("gprs/", limit="1"), owner.post("gprs/", ask), owner.get("gprs/", state="NONE", limit="1")]

    for answer, expected in ((answer, told) for answer in used):
        assert {name: answer.headers.get(name) for name in told} == expected
    assert [answer.headers.get("Deprecation") for answer in others] == [None, None, told["Deprecation"]]
    schema: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    (parameter,) = (each for each in schema["paths"]["/api/v1/gprs/"]["get"]["parameters"] if each["name"] == "state")
    field = schema["components"]["schemas"]["GprCreateRequest"]["properties"]["priority"]
    for marked in (schema["paths"]["/api/v1/shapes/"]["get"], parameter, field):
        assert marked["deprecated"] is True
        assert marked["description"].endswith("It ends on 2028-01-01. Use something else.")
    assert str(schema).count("'deprecated'") == 3
