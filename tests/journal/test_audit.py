"""The audit log: who did what, from where, and what they were refused."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.models import Scope
from core.clock import db_now
from journal.services import event_record
from tests import factories
from tests.api.conftest import Caller
from tests.builders import SHAPE
from tests.pages.user_world import client_of

ROOT = Path(__file__).resolve().parents[2]
APPS = ("accounts", "slices", "inventory", "gpr", "journal", "observability", "manifests")
RECORDERS = {"event_record", "events_record", "report", "fault_report"}


@pytest.fixture
def root(db: None) -> Caller:
    return Caller(factories.token(factories.user("root", is_admin=True)))


def newest(caller: Caller, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = caller.get(f"audit/{query}").json()["results"][0]
    return found


def test_a_change_tells_who_did_it_with_which_token_from_where_and_in_which_request(root: Caller) -> None:
    answer = root.post("users/", {"name": "ada"})

    told = newest(root)
    assert (told["kind"], told["actor"], told["message"]) == ("user.created", "root", "ada was added as member.")
    assert (told["request_id"], told["address"]) == (answer.headers["X-Request-Id"], "127.0.0.1")
    assert told["token_key"] == root.get("me/").json()["token"]["key_id"]
    assert newest(root, f"?request={told['request_id']}")["id"] == told["id"]


def test_a_change_on_a_page_tells_the_session(db: None, root: Caller) -> None:
    admin = factories.user("boss", is_admin=True)
    browser = client_of(admin)

    browser.post("/admin/people/add/", {"name": "ada", "role": "member"})

    assert newest(root, "?actor=boss")["login_id"] == browser.session["login"]


def test_refusals_and_failed_sign_ins_are_recorded_once_a_minute_at_most(root: Caller) -> None:
    eve = Caller(factories.token(factories.user("eve")))
    for _ in range(3):
        assert eve.get("users/").status_code == 403
        Client(REMOTE_ADDR="198.51.100.7").post("/login/", {"token": "egsu_guess"})

    kinds = [row["kind"] for row in root.get("audit/").json()["results"]]
    assert (kinds.count("access.refused"), kinds.count("login.refused")) == (1, 1)
    assert "egsu_guess" not in root.get("audit/").content.decode()


def test_what_a_policy_refuses_and_each_refused_one_of_many_are_recorded_and_estimates_are_not(root: Caller) -> None:
    owner = factories.user("owner")
    slice_ = factories.make_slice(factories.cluster("aurora"), name="vision", owner=owner)
    gpr, caller = factories.gpr(slice_, owner), Caller(factories.token(owner))
    too_long = {"slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 365 * 86_400}

    def refusals() -> list[str]:
        return [row["message"] for row in root.get("audit/?kind=access.refused").json()["results"]]

    assert caller.post("gprs/estimate/", too_long).json()["code"] == "over_policy"
    assert refusals() == []
    assert caller.post("gprs/", {**too_long, "name": "train"}).json()["code"] == "over_policy"
    (told,) = refusals()
    assert told.startswith("owner was refused at /api/v1/gprs/: ")
    caller.post("gprs/bulk/", {"act": "approve", "ids": [str(gpr.pk)]})
    assert "owner was refused at /api/v1/gprs/bulk/: Only an administrator" in refusals()[0]


def test_it_is_for_administrators_and_auditors_and_its_columns_for_nobody_else(root: Caller) -> None:
    owner = factories.user("owner")
    slice_ = factories.make_slice(factories.cluster("aurora"), name="vision", owner=owner)
    Caller(factories.token(owner)).post(f"slices/{slice_.pk}/members/", {"user": "owner", "role": "owner"})
    factories.gpr(slice_, owner)
    caller = Caller(factories.token(owner))

    assert (caller.get("audit/").status_code, caller.get("audit/export/").status_code) == (403, 403)
    assert not {"address", "request_id", "token_key", "login_id"} & set(caller.get("events/").json()["results"][0])
    assert root.get("audit/?kind=gpr.").json()["results"][0]["kind"] == "gpr.created"
    assert client_of(owner).get("/admin/audit/").status_code == 404
    assert client_of(factories.user("eye", is_admin=True), Scope.READ, Scope.ADMIN).get("/admin/audit/").status_code == 200


def test_an_export_has_every_record_as_a_line_of_json_oldest_first(root: Caller) -> None:
    for number in range(3):
        root.post("users/", {"name": f"user-{number}"})

    answer: Any = root.get("audit/export/", kind="user.created", text="user-")
    lines = [json.loads(line) for line in b"".join(answer.streaming_content).decode().splitlines()]

    assert [line["message"] for line in lines] == [f"user-{number} was added as member." for number in range(3)]
    assert answer.headers["Content-Type"] == "application/x-ndjson"


def test_the_page_shows_values_before_and_after_and_finds_by_workspace_day_and_request(root: Caller) -> None:
    owner, cluster = factories.user("owner"), factories.cluster("aurora")
    vision, speech = (factories.make_slice(cluster, name=name, owner=owner) for name in ("vision", "speech"))
    answers = [root.post(f"slices/{each.pk}/members/", {"user": "owner", "role": "viewer"}) for each in (vision, speech)]
    root.post(f"slices/{vision.pk}/members/", {"user": "root", "role": "owner"})
    answer = root.post(f"slices/{vision.pk}/members/", {"user": "owner", "role": "editor"})
    assert [each.status_code for each in answers] == [409, 409]
    page = client_of(factories.user("boss", is_admin=True), Scope.READ, Scope.ADMIN)

    def shown(query: str) -> str:
        return page.get(f"/admin/audit/?{query}").content.decode()

    event_record(kind="cluster.enabled", message="It opens at 2026-11-27 14:20:00 UTC.", at=db_now())
    assert "14:20:00 UTC" not in shown("kind=cluster.enabled")
    today = f"{db_now():%Y-%m-%d}"
    assert "role: owner → editor" in shown(f"slice=vision&kind=slice.member&since={today}")
    assert "No records" in shown("slice=speech&kind=slice.member")
    assert "No records" in shown(f"slice=vision&until={today}")
    assert "owner is editor" in shown(f"request={answer.headers['X-Request-Id']}")
    assert "Must be a day" in shown("since=tomorrow")
    assert [row["kind"] for row in root.get("audit/?slice=vision&kind=slice.member").json()["results"]] == ["slice.member_set"] * 2


def test_every_service_that_acts_for_a_person_records_an_event() -> None:
    """It finds the services itself: public functions with a parameter `actor` that write to the database, by themselves or below."""
    calls, services = _calls_and_services()

    silent = {name for name in services if _reaches(name, WRITES, calls) and not _reaches(name, RECORDERS, calls)}

    assert silent == set()
    assert len(services) > 60  # it finds them
    assert not {"user_disable", "member_set", "gpr_cancel"} - services


# The words of Events of changes, and one that only tells an agent's report.
CHANGE = re.compile(r"(?:^|[a-z_]+\.|[a-z]+_)(?:changed|edited|extended|set)\Z")
NOT_BY_FIELDS = {"namespace_changed"}


def test_every_event_of_a_change_tells_what_changed() -> None:
    """It finds them itself: functions that name such an Event in a call."""
    told: set[tuple[str, ...]] = set()
    silent: set[tuple[str, ...]] = set()
    for function in _functions():
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        named = {text for call in calls for text in _texts(call) if CHANGE.search(text)} - NOT_BY_FIELDS
        if named:
            (told if _tells(calls) else silent).add((function.name, *sorted(named)))

    assert silent == set()
    assert len(told) > 15  # it finds them


def _texts(call: ast.Call) -> set[str]:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    is_recorder = "record" in _name(call.func) or _name(call.func) == "AccountChange"
    return {each.value for each in given if is_recorder and isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _tells(calls: list[ast.Call]) -> bool:
    is_reported = any(_name(call.func) == "AccountChange" and "before" in {key.arg for key in call.keywords} for call in calls)
    return is_reported or any(_name(call.func) == "difference" for call in calls)


def test_a_change_tells_values_before_and_after_and_no_secret(root: Caller, settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"
    cluster = root.post("clusters/", {"name": "aurora"}).json()
    root.post("users/", {"name": "ada"})
    root.patch("users/ada/", {"role": "auditor"})
    assert newest(root, "?kind=user.role_changed")["data"] == {"before": {"role": "member"}, "after": {"role": "auditor"}}

    root.patch(f"clusters/{cluster['id']}/", {"api_url": "https://api.example"})
    assert newest(root, "?kind=cluster.api_url_changed")["data"] == {"before": {"api_url": ""}, "after": {"api_url": "https://api.example"}}

    made = root.post("channels/", {"name": "ops", "kind": "slack_bot", "target": "#ops", "secret": "xoxb-canary-1"}).json()
    root.patch(f"channels/{made['id']}/", {"digest": "daily", "secret": "xoxb-canary-2", "target": "#canary-3"})
    told = newest(root, "?kind=channel.changed")["data"]
    assert (told["before"], told["after"]) == ({"digest": "none"}, {"digest": "daily"})
    assert "canary" not in root.get("audit/").content.decode()


WRITES = {"save", "create", "update", "delete", "bulk_create", "bulk_update", "update_or_create", "get_or_create"}


def _calls_and_services() -> tuple[dict[str, set[str]], set[str]]:
    calls: dict[str, set[str]] = defaultdict(set)
    services = set()
    for function in _functions():
        calls[function.name] |= {name for node in ast.walk(function) if isinstance(node, ast.Call) and (name := _name(node.func))}
        calls[function.name] |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}  # given to others as a callback
        arguments = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        if "actor" in arguments and "self" not in arguments and not function.name.startswith("_"):
            services.add(function.name)
    return calls, services


def _functions() -> Iterator[ast.FunctionDef]:
    for app in APPS:
        for path in sorted((ROOT / app).rglob("*.py")):
            if "migrations" not in path.parts:
                yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _reaches(name: str, wanted: set[str], calls: dict[str, set[str]]) -> bool:
    seen, open_ = set(), [name]
    while open_:
        for called in calls.get(open_.pop(), ()):
            if called in wanted:
                return True
            if called in calls and called not in seen:
                seen.add(called)
                open_.append(called)
    return False
