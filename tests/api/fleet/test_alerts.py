"""Alerts over the API: what each may see, who may acknowledge, and which rules and silences are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.clock import db_now
from journal.models import Event
from observability.alerts.defaults import defaults_ensure
from observability.alerts.models import Alert, AlertRule, AlertSilence, AlertState
from tests.api.conftest import Caller, World, assert_problem
from tests.observability.alerts.rows import alert_of, rule_of

HOT = {"name": "hot", "signal": "temperature_c", "kind": "threshold", "level": 70, "severity": "warning"}


def names(caller: Caller, path: str, **query: Any) -> list[str]:
    return sorted(row["name"] for row in caller.get(path, **query).json()["results"])


def test_members_see_the_alerts_of_their_workspaces_and_administrators_all(
    world: World, owner: Caller, teammate: Caller, outsider: Caller, admin: Caller
) -> None:
    alert_of(world.slice, world.people.owner, rule=rule_of(world.slice, None, name="ours"))
    alert_of(world.foreign_slice, None, rule=rule_of(world.foreign_slice, None, name="canary"))
    platform = alert_of(None, None, rule=rule_of(None, None, name="platform"))

    assert names(owner, "alerts/") == names(teammate, "alerts/") == ["ours"]
    assert names(outsider, "alerts/") == ["canary"]
    assert names(admin, "alerts/") == ["canary", "ours", "platform"]
    assert names(admin, "alerts/", platform="true") == ["platform"]
    assert names(admin, "alerts/", state="RESOLVED") == []
    assert_problem(owner.get(f"alerts/{platform.pk}/"), 404, "not_found")
    assert_problem(owner.get(f"alerts/{platform.pk}/subjects/"), 404, "not_found")


def test_an_alert_says_what_it_is_about_and_what_to_do(world: World, owner: Caller) -> None:
    alert = alert_of(world.slice, world.people.owner, subjects=3)
    shown = owner.get(f"alerts/{alert.pk}/").json()
    assert (shown["condition"], shown["runbook"], shown["worst"], shown["unit"]) == (
        "Temperature is 70 °C or more",
        "Look at the fans.",
        74,
        "°C",
    )
    assert [row["name"] for row in owner.get(f"alerts/{alert.pk}/subjects/").json()["results"]] == [f"aurora-0 GPU {n}" for n in range(3)]


def test_who_acknowledges_an_alert_owns_it_and_what_is_over_cannot_be(world: World, owner: Caller) -> None:
    alert = alert_of(world.slice, world.people.owner)
    shown = owner.post(f"alerts/{alert.pk}/acknowledge/", {"note": "I look at it."}).json()
    assert (shown["state"], shown["owner"], shown["note"]) == ("ACKNOWLEDGED", "owner", "I look at it.")
    assert Event.objects.get(kind="alert.acknowledged").slice_id == world.slice.pk
    Alert.objects.update(state=AlertState.RESOLVED, resolved_at=db_now())
    assert_problem(owner.post(f"alerts/{alert.pk}/acknowledge/", {}), 409, "conflict")


def test_a_member_makes_a_rule_for_his_boxes_alone(world: World, owner: Caller, outsider: Caller) -> None:
    made = owner.post("alert-rules/", {**HOT, "slice": "vision"}).json()
    assert (made["tells"], made["clear_level"], made["owner"]) == ("box", 70, "owner")
    assert_problem(owner.post("alert-rules/", HOT), 403, "not_allowed")
    assert_problem(owner.post("alert-rules/", {**HOT, "slice": "vision", "tells": "admins"}), 400, "invalid_input")
    assert_problem(owner.post("alert-rules/", {**HOT, "slice": "vision", "signal": "node_not_ready"}), 400, "invalid_input")
    assert_problem(outsider.get(f"alert-rules/{made['id']}/"), 404, "not_found")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"clear_level": 80}, "clear_level"),
    ({"severe_level": 60}, "severe_level"),
    ({"kind": "rate"}, "kind"),
    ({"level": True}, "level"),
    ({"level": 1e300}, "level"),
    ({"signal": "ecc_corrected", "kind": "rate", "level": 0}, "level"),
    ({"kind": "trend", "window_s": 5}, "window_s"),
    ({"hold_s": 10**9}, "hold_s"),
    ({"signal": "luck"}, "signal"),
    ({"shape": "H1000"}, "shape"),
]


@pytest.mark.parametrize(("terms", "field"), WRONG, ids=[field for _, field in WRONG])
def test_a_rule_that_cannot_be_is_refused_at_its_field(terms: dict[str, Any], field: str, admin: Caller) -> None:
    answer = admin.post("alert-rules/", {**HOT, **terms})
    assert_problem(answer, 400, "invalid_input")
    assert field in answer.json()["errors"]


def test_rules_of_egs_are_changed_or_switched_off_and_never_deleted(admin: Caller, owner: Caller) -> None:
    defaults_ensure(now=db_now())
    rule = AlertRule.objects.get(code="gpu-hot")
    assert admin.patch(f"alert-rules/{rule.pk}/", {"level": 82, "is_on": False}).json()["level"] == 82
    assert_problem(admin.delete(f"alert-rules/{rule.pk}/"), 409, "conflict")
    assert_problem(owner.get(f"alert-rules/{rule.pk}/"), 404, "not_found")  # it is off
    admin.patch(f"alert-rules/{rule.pk}/", {"is_on": True})
    assert_problem(owner.patch(f"alert-rules/{rule.pk}/", {"level": 1}), 403, "not_allowed")
    assert_problem(owner.get(f"alert-rules/{AlertRule.objects.get(code='node-not-ready').pk}/"), 404, "not_found")  # not told to boxes


def test_a_silence_is_of_ones_own_people_and_ends_when_one_says_so(world: World, owner: Caller, outsider: Caller, admin: Caller) -> None:
    soon, late = ((db_now() + timedelta(days=days)).isoformat() for days in (1, 60))
    assert_problem(owner.post("alert-silences/", {"ends_at": soon, "reason": "r"}), 403, "not_allowed")
    assert_problem(admin.post("alert-silences/", {"ends_at": soon, "reason": "all of it"}), 400, "invalid_input")
    assert_problem(owner.post("alert-silences/", {"slice": "vision", "ends_at": late, "reason": "r"}), 400, "invalid_input")
    never = {"starts_at": "9999-12-01T00:00:00Z", "ends_at": "9999-12-31T00:00:00Z", "reason": "r"}
    assert_problem(owner.post("alert-silences/", {"slice": "vision", **never}), 400, "invalid_input")
    platform = alert_of(None, None)
    assert_problem(
        owner.post("alert-silences/", {"slice": "vision", "alert": str(platform.pk), "ends_at": soon, "reason": "r"}), 404, "not_found"
    )
    made = owner.post("alert-silences/", {"slice": "vision", "ends_at": soon, "reason": "A demo."}).json()
    assert made["name"] == "all alerts of workspace vision"
    assert_problem(outsider.delete(f"alert-silences/{made['id']}/"), 404, "not_found")
    assert owner.delete(f"alert-silences/{made['id']}/").status_code == 204
    assert_problem(owner.delete(f"alert-silences/{made['id']}/"), 409, "conflict")


def test_events_of_the_platforms_alerts_are_no_news_of_a_workspace(world: World, owner: Caller, admin: Caller) -> None:
    alert = alert_of(None, None, cluster=world.cluster)
    admin.post(f"alerts/{alert.pk}/acknowledge/", {})
    assert "alert.acknowledged" not in {row["kind"] for row in owner.get("events/").json()["results"]}
    assert "alert.acknowledged" in {row["kind"] for row in admin.get("events/").json()["results"]}


def test_a_workspace_has_so_many_rules_and_silences_at_most(world: World, owner: Caller) -> None:
    from observability.alerts.services import RULES_MOST, SILENCES_MOST

    for n in range(RULES_MOST):
        rule_of(world.slice, world.people.owner, name=f"r{n}")
    assert_problem(owner.post("alert-rules/", {**HOT, "slice": "vision"}), 409, "conflict")
    now = db_now()
    times = {"created_at": now, "starts_at": now, "ends_at": now + timedelta(days=1)}
    AlertSilence.objects.bulk_create(
        AlertSilence(slice=world.slice, owner=world.people.owner, reason="r", **times) for _ in range(SILENCES_MOST)
    )
    asked = {"slice": "vision", "ends_at": times["ends_at"].isoformat(), "reason": "r"}
    assert_problem(owner.post("alert-silences/", asked), 409, "conflict")
