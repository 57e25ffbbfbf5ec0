"""`remediation/` and `remediation-policies/`: nodes that are set aside, for those who oversee the platform."""

from __future__ import annotations

from typing import Any

import pytest

from inventory.models import AgentSession, Node, Repair
from journal.models import Event
from observability.models import RemediationCase
from protocol.nodes.steps import CAPABILITIES
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults

pytestmark = pytest.mark.django_db

PATH, POLICIES = "remediation/", "remediation-policies/"


@pytest.fixture
def case(world: World) -> RemediationCase:
    AgentSession.objects.update(capabilities=list(CAPABILITIES))
    return factories.case(world.cluster, xid=79)


def test_a_case_says_why_the_node_is_aside_with_the_evidence_and_what_comes_next(admin: Caller, case: RemediationCase) -> None:
    told = admin.get(f"{PATH}{case.pk}/").json()

    assert (told["name"], told["state"], told["cause"], told["code"]) == (case.node.name, "asking", "fault", "xid 79")
    assert (told["action"], told["next"]) == ("reboot_node", "Reboot the node and check")
    (fault,) = told["evidence"]
    assert (fault["gpu"], fault["metric"], fault["value"], fault["text"]) == (1, "xid", 79, "reported Xid 79 (GPU has fallen off the bus)")
    assert told["preview"]["steps"][:3] == ["Reboot the node", "Node ready", "GPU count"]
    assert (told["preview"]["why_not_now"], told["preview"]["held_by"]) == ("", [])
    listed = admin.get(PATH, is_open="true", state="asking").json()["results"]
    assert [row["id"] for row in listed] == [str(case.pk)]
    assert admin.get(PATH, state="returned").json()["results"] == []


def test_an_approval_begins_the_repair_and_names_who_gave_it(world: World, admin: Caller, case: RemediationCase) -> None:
    told = admin.post(f"{PATH}{case.pk}/approve/", {"action": "reset_gpus", "why": "The rack is new."}).json()

    assert (told["state"], told["action"], told["repair_count"]) == ("acting", "reset_gpus", 1)
    (repair,) = told["repairs"]
    assert (repair["name"], repair["begun_by"], repair["phase"]) == ("Reset the GPUs and check", world.people.admin.name, "PENDING")
    assert "The rack is new." in Event.objects.get(kind="remediation.approved").message
    assert Repair.objects.get().entry_steps[0] == "reset_gpus"
    assert_problem(admin.post(f"{PATH}{case.pk}/approve/"), 409, "conflict")


def test_what_people_decide_stands(admin: Caller, case: RemediationCase) -> None:
    assert admin.post(f"{PATH}{case.pk}/keep/", {"why": "I want to see it."}).json()["state"] == "kept"
    assert admin.post(f"{PATH}{case.pk}/resume/").json()["state"] == "open"
    told = admin.post(f"{PATH}{case.pk}/give-back/", {"why": "It is well."}).json()

    assert (told["state"], told["state_why"], told["closed_by"], told["preview"]) == ("returned", "By hand: It is well.", "admin", None)
    assert Node.objects.get(pk=case.node_id).cordoned_at is None
    for act, body in (("keep", {"why": "x"}), ("give-back", {"why": "x"}), ("resume", None), ("approve", None)):
        assert_problem(admin.post(f"{PATH}{case.pk}/{act}/", body), 409, "conflict")


def test_the_log_for_the_vendor_has_the_evidence_and_names_no_tenant(world: World, admin: Caller, case: RemediationCase) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    text = admin.get(f"{PATH}{case.pk}/log/").json()["text"]

    assert "GPU 1 GPU-x: reported Xid 79 (GPU has fallen off the bus) (before: 0)" in text
    assert case.node.name in text
    for name in (gpr.name, world.slice.name, world.slice.project.name, world.people.owner.name):
        assert name not in text


@pytest.mark.parametrize("persona", ["owner", "teammate", "outsider"])
def test_members_see_nothing_of_cases_and_policies(
    persona: str, request: pytest.FixtureRequest, world: World, case: RemediationCase
) -> None:
    caller: Caller = request.getfixturevalue(persona)

    for path in (PATH, f"{PATH}{case.pk}/", f"{PATH}{case.pk}/log/", POLICIES, f"{POLICIES}aurora/"):
        assert caller.get(path).status_code == 403
    told = [event["kind"] for event in caller.get("events/").json()["results"]]
    assert not [kind for kind in told if kind.startswith("remediation")]
    assert not caller.get("nodes/").json()["results"][0]["cordon_reason"]


def test_a_policy_has_defaults_that_ask_and_a_change_leaves_the_rest(admin: Caller, world: World) -> None:
    (told,) = [row for row in admin.get(POLICIES).json()["results"] if row["name"] == "aurora"]
    assert (told["check_node"], told["restart_driver"], told["reset_gpus"], told["reboot_node"]) == ("auto", "ask", "ask", "ask")

    changed = admin.patch(f"{POLICIES}aurora/", {"reboot_node": "auto", "ignored_xids": [74], "limits": {"nvlink_errors": 0}}).json()
    assert changed == {**told, "reboot_node": "auto", "ignored_xids": [74], "limits": {"nvlink_errors": 0}}
    assert changed == admin.get(f"{POLICIES}aurora/").json()
    assert "reboot_node auto" in Event.objects.get(kind="remediation_policy.changed").message


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"reboot_node": "maybe"}, "reboot_node", "maybe"),
        ({"tries_max": 0}, "tries_max", "1"),
        ({"ignored_xids": [13]}, "ignored_xids", "Xid 13 sets no node aside anyway."),
        ({"limits": {"warp": 1}}, "limits", "There is no limit warp; there are ecc_uncorrected"),
        ({"limits": {"ecc_corrected": -1}}, "limits", "0"),
        ({"color": "red"}, "color", "no such field"),
    ],
)
def test_nonsense_in_a_policy_is_refused(change: dict[str, Any], field: str, says: str, admin: Caller, world: World) -> None:
    refused = admin.patch(f"{POLICIES}aurora/", change)

    assert faults(refused) == [field]
    assert says in str(refused.json()["errors"])
