"""Budgets by REST: who sees which, with what use, and what an administrator is refused."""

from __future__ import annotations

from typing import Any

import pytest

from journal.models import Event
from slices.models import Budget
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE

WEEKLY = {"gpu_hours": 100, "period": "week"}
RANGE = {"period": "range", "starts_at": "2026-01-01T00:00:00Z", "ends_at": "2126-01-01T00:00:00Z"}


def made(admin: Caller, **body: Any) -> dict[str, Any]:
    answer = admin.post("budgets/", {**WEEKLY, **body})
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_members_see_those_of_their_workspaces_and_projects_with_what_is_left(admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    of_slice = made(admin, slice="vision", shape=SHAPE, **RANGE)
    made(admin, project=world.slice.project.name, **RANGE)
    made(admin, slice="canary-slice")
    owner.post("gprs/", {**ask, "nodes": 1, "gpus_per_node": 5, "duration_s": 7200})

    rows = owner.get("budgets/").json()["results"]

    told = [(row["slice"], row["shape"], row["gpu_hours"], row["used_hours"], row["committed_hours"], row["left_hours"]) for row in rows]
    assert told == [(None, "", 100, 0.0, 10.0, 90.0), ("vision", SHAPE, 100, 0.0, 10.0, 90.0)]
    assert (of_slice["starts_at"], of_slice["at_limit"]) == ("2026-01-01T00:00:00Z", "approve")
    assert len(admin.get("budgets/", period="week").json()["results"]) == 1
    assert_problem(owner.post("budgets/", {**WEEKLY, "slice": "vision"}), 403, "not_allowed")


def test_a_request_beyond_one_gets_the_same_text_as_an_estimate_and_a_refusal_the_same_figures(
    admin: Caller, owner: Caller, world: World, ask: Any
) -> None:
    budget = made(admin, slice="vision", **RANGE, gpu_hours=5)
    body = {**ask, "nodes": 1, "gpus_per_node": 5, "duration_s": 7200}
    text = (
        "The budget of workspace vision has 5 of 5 GPU-hours left from 2026-01-01 00:00:00 UTC to 2126-01-01 00:00:00 UTC; "
        "10 were asked for{}. 5 GPUs may be booked for 1 h at most."
    )

    assert owner.post("gprs/estimate/", body).json()["approval_reasons"] == [text.format(", which needs approval")]
    gpr = owner.post("gprs/", body).json()
    assert (gpr["state"], gpr["approval_reasons"]) == ("PENDING_APPROVAL", [text.format(", which needs approval")])

    admin.patch(f"budgets/{budget['id']}/", {"at_limit": "refuse"})
    for path in ("gprs/", "gprs/estimate/"):
        problem = assert_problem(owner.post(path, body), 400, "over_policy")
        assert problem["detail"] == text.format("")
        assert (problem["limit"], problem["most"], problem["fitting_duration_s"]) == ("gpu_hours", 5, 3600)


def test_a_change_and_a_deletion_are_recorded_with_their_reasons(admin: Caller, world: World) -> None:
    budget = made(admin, slice="vision")

    after = admin.patch(f"budgets/{budget['id']}/", {"gpu_hours": 200, "at_limit": "refuse", "why": "A deadline."}).json()
    assert (after["gpu_hours"], after["left_hours"]) == (200, 200.0)
    assert admin.delete(f"budgets/{budget['id']}/?why=Over").status_code == 204

    assert list(Event.objects.filter(kind__startswith="budget.").order_by("pk").values_list("message", flat=True)) == [
        "The budget for workspace vision was made: 100 GPU-hours in each week, beyond it approval.",
        "The budget for workspace vision was changed: 200 GPU-hours in each week, beyond it refusal; "
        "before it was 100 GPU-hours in each week, beyond it approval. A deadline.",
        "The budget for workspace vision was deleted; it was 200 GPU-hours in each week, beyond it refusal. Over",
    ]


BAD: list[tuple[list[str], dict[str, Any]]] = [
    (["project"], {}),
    (["shape"], {"slice": "vision", "shape": "A100"}),
    (["gpu_hours"], {"slice": "vision", "gpu_hours": 0}),
    (["period"], {"slice": "vision", "period": "year"}),
    (["starts_at"], {"slice": "vision", "starts_at": "2026-01-01T00:00:00Z"}),
    (["ends_at", "starts_at"], {"slice": "vision", "period": "range"}),
    (["ends_at"], {"slice": "vision", **RANGE, "ends_at": "2026-01-01T00:00:00Z"}),
    (["why"], {"slice": "vision", "why": "a\u0000"}),
]


def test_what_means_nothing_is_refused_in_its_field_and_a_second_one_is_a_conflict(admin: Caller, world: World) -> None:
    for fields, body in BAD:
        assert sorted(faults(admin.post("budgets/", {**WEEKLY, **body}))) == fields, body
    assert not Budget.objects.exists()

    made(admin, slice="vision")
    assert_problem(admin.post("budgets/", {**WEEKLY, "slice": "vision"}), 409, "conflict")
    made(admin, slice="vision", shape=SHAPE)
    made(admin, slice="vision", period="month")


@pytest.mark.parametrize("at_limit", ["approve", "refuse"])
def test_budgets_of_another_time_or_shape_do_not_bind(at_limit: str, admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    factories.cluster(shape="A100-80GB")
    made(admin, slice="vision", period="range", starts_at="2126-01-01T00:00:00Z", ends_at="2127-01-01T00:00:00Z", gpu_hours=1)
    made(admin, slice="vision", shape="A100-80GB", gpu_hours=1, at_limit=at_limit)

    assert owner.post("gprs/", ask).json()["state"] == "QUEUED"
