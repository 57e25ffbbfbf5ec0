"""A node's way from being set aside to its return: replaced, repaired as the policy allows, and proved by the entry checks."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta

import msgspec
import pytest
from django.test import override_settings

from core.errors import Conflict
from inventory.models import CordonCause, Node, Repair, StepResult
from inventory.services.nodes import node_cordon, node_set_aside, node_uncordon
from observability.models import RemediationCase
from observability.remediation.cases import case_approve, case_give_back, case_keep, case_resume
from observability.remediation.faults import Action
from observability.remediation.models import CaseState, Mode
from observability.remediation.policies import remediation_policy_change
from protocol.agents.events import Outcome
from protocol.assignments import Desired, Phase
from protocol.nodes.steps import EntryStep
from tests.inventory.agent import seen_of
from tests.lifecycle.boxes.spares import RULES, report, say, spare_of
from tests.lifecycle.boxes.spares import told as told_of_box
from tests.lifecycle.stage import ENTRY, EXIT, fresh
from tests.observability.remediation.ward import Ward, repairs_of, told

pytestmark = pytest.mark.django_db
S = CaseState
AUTO = {"restart_driver": Mode.AUTO, "reset_gpus": Mode.AUTO, "reboot_node": Mode.AUTO}


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    with override_settings(**RULES):
        yield


@pytest.fixture(scope="module")
def built_ward(module_db: None) -> Ward:
    return Ward()


@pytest.fixture
def ward(built_ward: Ward, db: None) -> Ward:
    return deepcopy(built_ward)


def allow(ward: Ward, **modes: object) -> None:
    remediation_policy_change(cluster=ward.cluster, change={**AUTO, **modes}, actor=ward.admin, now=ward.now)  # type: ignore[typeddict-item]


def faulty(ward: Ward, xid: int = 79) -> None:
    ward.read(xid=xid)
    ward.look()


# -- the whole way -----------------------------------------------------------------------------------------------------


@pytest.mark.both_databases
def test_a_faulty_node_is_replaced_in_the_running_box_repaired_and_returns_only_after_its_checks(ward: Ward) -> None:
    allow(ward)
    gpr = ward.active()
    sick = ward.held(gpr)[0].node
    ward.read(node=sick, gpu=1, xid=79)
    ward.look()
    ward.tick()
    assert told_of_box(gpr, "gpr.node_failing") == [
        f"Node {sick.name} of job fails: GPU 1 reported Xid 79 (GPU has fallen off the bus). A spare is looked for; its end stays."
    ]
    say(ward, spare_of(gpr), *ENTRY)
    ward.tick()
    ward.look()
    case = RemediationCase.objects.get(node=sick)
    assert (case.state, case.state_why) == (S.OPEN, "A request still holds the node.")

    say(ward, gpr.reservations.get(node=sick), *EXIT)
    ward.look()
    case.refresh_from_db()
    assert (case.state, repairs_of(sick)) == (S.ACTING, ["reboot_node"])
    assert ward.repair.entry_steps[:2] == ("reboot_node", EntryStep.NODE_READY)
    assert EntryStep.GANG_NETWORK not in ward.repair.entry_steps
    assert ward.repair.epoch == Node.objects.get(pk=sick.pk).epoch

    stale = msgspec.structs.replace(ward.repair, epoch=ward.repair.epoch - 1)
    before = Repair.objects.values().get()
    for phase in (Phase.ENTERED, Phase.RELEASED):
        ward.agent.sync(seen_of(stale, phase), at=ward.now)
    assert Repair.objects.values().get() == before, "a word of another epoch has no effect"

    ward.step_ends("reboot_node")
    ward.look()
    case.refresh_from_db()
    assert case.state == S.PROVING
    assert Node.objects.get(pk=sick.pk).cordoned_at is not None
    ward.passes()
    case.refresh_from_db()
    node = Node.objects.get(pk=sick.pk)
    assert (case.state, case.closed_by_id) == (S.RETURNED, None)
    assert (node.cordoned_at, node.faulty_at, node.cordon_cause) == (None, None, "")
    assert StepResult.objects.filter(repair__case=case).count() == len(Repair.objects.get().entry_steps)
    assert fresh(gpr).state == "ACTIVE"

    ward.look()
    assert not RemediationCase.objects.filter(closed_at=None).exists(), "the Xid that the gauge still shows is an old one"


def test_a_box_without_a_spare_keeps_its_faulty_node_until_its_end(ward: Ward) -> None:
    allow(ward)
    gpr = ward.active(nodes=2)
    ward.read(xid=48)
    ward.look()
    for _ in range(3):
        ward.watched(RULES["EGS_SPARE_WAIT_S"])
        ward.tick()
        ward.look()

    assert fresh(gpr).state == "ACTIVE"
    assert ward.case.state == S.OPEN
    assert not Repair.objects.exists()


def test_a_part_of_a_node_is_told_no_more_than_that_the_node_has_a_fault(ward: Ward) -> None:
    gpr = ward.active(gpus_per_node=1)
    sick = ward.held(gpr)[0].node
    ward.read(node=sick, gpu=1, xid=79)
    ward.look()
    ward.tick()

    (text,) = told_of_box(gpr, "gpr.node_failing")
    assert "its hardware has a fault" in text
    assert "Xid" not in text


# -- what the policy says ----------------------------------------------------------------------------------------------


def test_by_default_an_administrator_is_asked_once_and_his_approval_begins_the_action(ward: Ward) -> None:
    faulty(ward)
    ward.look()
    ward.look()
    assert ward.case.state == S.ASKING
    assert len(told("asked")) == 1

    case_approve(case=ward.case, action=Action.REBOOT_NODE, actor=ward.admin, why="", now=ward.now)
    assert ward.case.state == S.ACTING
    assert Repair.objects.get().begun_by == ward.admin
    ward.passes()
    assert RemediationCase.objects.get().state == S.RETURNED


def test_an_action_that_the_policy_never_does_needs_a_person(ward: Ward) -> None:
    allow(ward, reboot_node=Mode.NEVER)
    faulty(ward)

    assert ward.case.state == S.ESCALATED
    assert "does not allow" in ward.case.state_why


def test_what_the_vendor_has_to_look_at_needs_a_person(ward: Ward) -> None:
    allow(ward)
    faulty(ward, xid=122)

    assert (ward.case.state, ward.case.action) == (S.ESCALATED, Action.SUPPORT)
    assert not Repair.objects.exists()


def test_a_node_of_an_agent_that_cannot_repair_waits_and_says_so(ward: Ward) -> None:
    allow(ward)
    ward.cluster.agent.capabilities = []
    ward.cluster.agent.save()
    faulty(ward)

    assert (ward.case.state, ward.case.state_why) == (S.OPEN, "The agent of its cluster is too old to repair nodes, or has not joined.")


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_repair_whose_checks_fail_is_followed_by_a_stronger_one_and_then_by_a_person(ward: Ward) -> None:
    allow(ward)
    faulty(ward, xid=119)
    ward.step_ends("reset_gpus")
    ward.fails()
    ward.look()
    assert repairs_of(ward.node) == ["reset_gpus", "reboot_node"]
    ward.step_ends("reboot_node")
    ward.fails()

    assert ward.case.state == S.ESCALATED
    assert ward.case.state_why.startswith("2 repairs failed. The last: check gpu_health failed 2 times")
    assert len(told("escalated")) == 1
    assert ward.node.cordoned_at is not None
    ward.look()
    assert Repair.objects.count() == 2


def test_an_action_that_could_not_be_done_needs_a_person_at_once(ward: Ward) -> None:
    allow(ward)
    faulty(ward)
    ward.fails("reboot_node", log="Reboot the node: it was not done within 20 min", blames_node=False)

    assert ward.case.state == S.ESCALATED
    assert ward.case.state_why == "It could not be done: Reboot the node: it was not done within 20 min"


def test_a_node_that_comes_back_and_fails_again_and_again_is_left_to_a_person(ward: Ward) -> None:
    allow(ward)
    for n in range(2):
        faulty(ward, xid=79)
        ward.passes()
        assert RemediationCase.objects.filter(state=S.RETURNED).count() == n + 1
        ward.read(xid=0)
        ward.look(3600)
    faulty(ward, xid=79)

    assert ward.case.state == S.ESCALATED
    assert ward.case.state_why == "It came back 2 times within a week, and failed again."


def test_failures_more_than_a_week_apart_are_no_flapping(ward: Ward) -> None:
    allow(ward)
    for _ in range(3):
        faulty(ward, xid=79)
        ward.passes()
        ward.read(xid=0)
        ward.look(timedelta(days=8).total_seconds())

    assert RemediationCase.objects.filter(state=S.RETURNED).count() == 3


# -- what people decide ------------------------------------------------------------------------------------------------


def test_a_node_that_an_administrator_set_aside_is_left_alone_until_he_says_so(ward: Ward) -> None:
    allow(ward)
    node_cordon(node=ward.node, actor=ward.admin, why="A loud fan.", now=ward.now)
    ward.look()
    ward.look(86_400)
    assert (ward.case.state, ward.case.why) == (S.KEPT, "A loud fan.")
    assert not Repair.objects.exists()
    assert told("opened", "asked", "escalated") == []

    case_resume(case=ward.case, actor=ward.admin, now=ward.now)
    ward.look()
    ward.passes()
    assert ward.node.cordoned_at is None


def test_a_node_that_is_kept_aside_leaves_its_repair_and_stays(ward: Ward) -> None:
    allow(ward)
    faulty(ward)
    case_keep(case=ward.case, actor=ward.admin, why="I want to see it.", now=ward.now)
    assert ward.repair.desired == Desired.ABSENT
    ward.repair_says(Phase.EXITING, Phase.RELEASED)
    ward.look(86_400)

    assert (ward.case.state, ward.case.state_why) == (S.KEPT, f"{ward.admin.name}: I want to see it.")
    assert ward.node.cordoned_at is not None


@pytest.mark.parametrize("how", ["case", "node"])
def test_a_node_that_is_returned_by_hand_is_in_use_and_the_same_fault_sets_it_aside_no_more(ward: Ward, how: str) -> None:
    faulty(ward)
    if how == "case":
        case_give_back(case=ward.case, actor=ward.admin, why="Looked at it.", now=ward.now)
    else:
        node_uncordon(node=ward.node, actor=ward.admin, now=ward.now)
    ward.look()
    ward.look()

    assert ward.node.cordoned_at is None
    assert RemediationCase.objects.get().state == S.RETURNED
    with pytest.raises(Conflict):
        case_keep(case=RemediationCase.objects.get(), actor=ward.admin, why="Late.", now=ward.now)


def test_an_approval_waits_for_the_node_to_be_free(ward: Ward) -> None:
    gpr = ward.active()
    sick = ward.held(gpr)[0].node
    node_set_aside(node=sick, why="Exit check failed.", now=ward.now, cause=CordonCause.CHECK, code="nccl")
    ward.look()
    case = RemediationCase.objects.get(node=sick)
    case_approve(case=case, action=Action.CHECK, actor=ward.admin, why="", now=ward.now)
    assert not Repair.objects.exists()

    say(ward, ward.held(gpr)[0], *EXIT)
    ward.look()
    assert repairs_of(sick) == [""]
    case.refresh_from_db()
    assert case.state == S.PROVING


# -- other causes ------------------------------------------------------------------------------------------------------


def test_a_node_that_was_lost_in_a_box_is_checked_once_it_is_ready_and_returns(ward: Ward) -> None:
    gpr = ward.active()
    sick = ward.held(gpr)[0].node
    report(ward, away=sick)
    ward.tick()
    say(ward, spare_of(gpr), *ENTRY)
    ward.tick()
    say(ward, gpr.reservations.get(node=sick), *EXIT)
    ward.look()
    case = RemediationCase.objects.get(node=sick)
    assert (case.action, case.state_why) == (Action.CHECK, "It is not ready yet, or some of its GPUs are sick.")
    assert "job" not in case.why

    report(ward)
    ward.look()
    ward.passes()
    case.refresh_from_db()
    assert case.state == S.RETURNED


def test_a_node_that_does_not_recover_by_itself_asks_for_more_after_a_while(ward: Ward) -> None:
    node_set_aside(node=ward.node, why="It was lost.", now=ward.now, cause=CordonCause.LOST)
    report(ward, away=ward.node)
    ward.look()
    assert ward.case.action == Action.CHECK
    ward.look(1800)
    ward.look()

    assert (ward.case.action, ward.case.state) == (Action.RESTART_DRIVER, S.ASKING)


def test_a_node_that_leaves_its_cluster_closes_its_case(ward: Ward) -> None:
    faulty(ward)
    ward.lose(ward.node)
    ward.look()

    assert RemediationCase.objects.get().state == S.GONE


def test_nothing_starts_on_a_node_while_it_is_repaired_and_a_box_may_as_soon_as_it_has_returned(ward: Ward) -> None:
    allow(ward)
    faulty(ward)
    epoch = ward.repair.epoch
    gpr = ward.submit(nodes=2)
    ward.tick()
    assert ward.held(gpr) == []

    ward.passes()
    ward.tick()
    assert max(row.epoch for row in ward.held(gpr)) == epoch + 1


def test_steps_of_a_repair_are_stored_once_and_tell_of_no_workspace(ward: Ward) -> None:
    allow(ward)
    faulty(ward)
    ward.step_ends("reboot_node", Outcome.FAILED, log="no answer", blames_node=False)
    ward.step_ends("reboot_node", Outcome.FAILED, log="no answer", blames_node=False)

    (step,) = StepResult.objects.all()
    assert (step.reservation_id, step.repair, step.log) == (None, Repair.objects.get(), "no answer")
