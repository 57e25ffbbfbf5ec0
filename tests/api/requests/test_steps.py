from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

import pytest

from core.clock import db_now
from core.rest.sealed import seal
from gpr.models import Gpr
from inventory.models import CheckResult, StepResult
from protocol.agents.events import Outcome
from protocol.nodes.checks import Verdict
from protocol.nodes.steps import Milestone
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.fixture(autouse=True, scope="module")
def built_gpr(built_world: World) -> Gpr:
    gpr = factories.started(built_world.slice, built_world.people.owner, nodes=2)
    began_at = db_now()
    for n, (row, step) in enumerate((row, step) for step in ("node_ready", "drain") for row in factories.held(gpr)):
        at = began_at + timedelta(seconds=n)
        log, evidence = f"log of {step}", {"gpus": 8}
        StepResult.objects.create(
            reservation=row, step=step, attempt=1, outcome=Outcome.OK, started_at=at, ended_at=at, log=log, evidence=evidence
        )
    return gpr


@pytest.fixture
def gpr(built_gpr: Gpr, db: None) -> Gpr:
    return deepcopy(built_gpr)


def test_each_attempt_on_each_node_is_told_with_its_log_oldest_first(owner: Caller, gpr: Gpr) -> None:
    rows = owner.get(f"gprs/{gpr.pk}/steps/").json()["results"]

    assert [(row["step"], row["stage"], row["node"]) for row in rows] == [
        ("node_ready", "entry", "aurora-0"),
        ("node_ready", "entry", "aurora-1"),
        ("drain", "exit", "aurora-0"),
        ("drain", "exit", "aurora-1"),
    ]
    first = rows[0]
    assert (first["log"], first["evidence"], first["attempt"], first["run"], first["outcome"], first["name"]) == (
        "log of node_ready",
        {"gpus": 8},
        1,
        1,
        "OK",
        "node_ready",
    )


def test_claim_and_open_are_of_the_way_in_and_close_and_release_of_the_way_out(owner: Caller, gpr: Gpr) -> None:
    row, at = factories.held(gpr)[0], db_now()
    for step in Milestone:
        StepResult.objects.create(reservation=row, step=step, attempt=1, outcome=Outcome.OK, started_at=at, ended_at=at)

    told = {each["step"]: each["stage"] for each in owner.get(f"gprs/{gpr.pk}/steps/").json()["results"]}

    assert told | {"claim": "entry", "open": "entry", "close": "exit", "release": "exit"} == told


def test_they_come_in_pages(owner: Caller, gpr: Gpr) -> None:
    first = owner.get(f"gprs/{gpr.pk}/steps/?page_size=3").json()

    second = owner.get(first["next"]).json()

    assert (len(first["results"]), len(second["results"]), second["next"]) == (3, 1, None)


@pytest.mark.parametrize(("persona", "status"), [("teammate", 200), ("outsider", 404), ("admin", 200), ("reader", 200), ("anonymous", 401)])
def test_who_sees_the_gpr_sees_its_steps(persona: str, status: int, gpr: Gpr, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(persona).get(f"gprs/{gpr.pk}/steps/").status_code == status


def test_one_that_never_started_has_none(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    assert owner.get(f"gprs/{gpr.pk}/steps/").json() == {"next": None, "previous": None, "results": []}


def test_a_foreign_gpr_s_steps_are_as_absent_as_no_gpr_s(outsider: Caller, gpr: Gpr) -> None:
    assert assert_problem(outsider.get(f"gprs/{gpr.pk}/steps/"), 404, "not_found") == outsider.get("gprs/nothing/steps/").json()


def test_each_measurement_is_told_with_its_threshold_and_verdict(owner: Caller, admin: Caller, gpr: Gpr) -> None:
    step = StepResult.objects.order_by("started_at").first()
    assert step is not None
    CheckResult.objects.create(
        step=step, what="nccl_bandwidth", value=470.0, unit="GB/s", threshold=460.0, is_least=True, verdict=Verdict.PASS
    )

    (told,) = owner.get(f"gprs/{gpr.pk}/steps/").json()["results"][0]["results"]

    assert told.pop("id")
    assert told == {
        "name": "NCCL all-reduce, bus bandwidth",
        "check": "nccl_bandwidth",
        "gpu_uuid": "",
        "value": 470.0,
        "unit": "GB/s",
        "threshold": 460.0,
        "is_least": True,
        "verdict": "PASS",
        "text": "",
    }
    assert step.reservation is not None
    of_node = admin.get(f"nodes/{step.reservation.node.name}/steps/").json()["results"]
    assert [row["results"] for row in of_node if row["id"] == str(seal(step.pk))] == [
        [told | {"id": str(seal(CheckResult.objects.get().pk))}]
    ]


def test_a_step_that_measured_nothing_says_why_beside_its_outcome(gpr: Gpr, owner: Caller) -> None:
    """One of which anything was measured did its work."""
    why = "no image for NCCL is set"
    nothing, something = StepResult.objects.filter(reservation__gpr=gpr)[:2]
    for step in (nothing, something):
        CheckResult.objects.create(step=step, what="nccl_bandwidth", verdict=Verdict.SKIP, text=why)
    CheckResult.objects.create(step=something, what="nccl_latency", verdict=Verdict.PASS, value=21.0)

    told = {row["id"]: row["skipped_why"] for row in owner.get(f"gprs/{gpr.pk}/steps/").json()["results"]}

    assert (told[str(seal(nothing.pk))], told[str(seal(something.pk))]) == (why, "")
