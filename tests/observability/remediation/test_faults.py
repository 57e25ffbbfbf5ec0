"""Faults of hardware and trends set a node aside, and an application's error never does."""

from __future__ import annotations

from copy import deepcopy

import pytest

from inventory.models import CordonCause, Node
from observability.models import FaultCount, RemediationCase
from observability.remediation.faults import COUNTS, DAY_S, XID_ACTIONS, Action, faults_of
from observability.remediation.policies import remediation_policy_change
from tests.observability.remediation.ward import Ward, told
from tests.observability.telemetry.saying import gpus_of

pytestmark = pytest.mark.django_db
ZERO = {**dict.fromkeys(COUNTS, 0), "xid_counts": ""}


@pytest.fixture(scope="module")
def built_ward(module_db: None) -> Ward:
    return Ward()


@pytest.fixture
def ward(built_ward: Ward, db: None) -> Ward:
    return deepcopy(built_ward)


def is_aside(node: Node) -> bool:
    return Node.objects.get(pk=node.pk).cordoned_at is not None


@pytest.mark.both_databases
def test_a_fatal_xid_sets_its_node_aside_with_its_cause_and_the_evidence(ward: Ward) -> None:
    ward.read(gpu=1, xid=79)
    ward.look()

    node = ward.node
    assert (node.cordoned_at, node.faulty_at) == (ward.now, ward.now)
    assert (node.cordon_cause, node.cordon_code) == (CordonCause.FAULT, "xid 79")
    assert node.cordon_reason == "GPU 1 reported Xid 79 (GPU has fallen off the bus)."
    case = ward.case
    assert (case.cause, case.why, case.action) == (CordonCause.FAULT, node.cordon_reason, Action.REBOOT_NODE)
    assert [(each["gpu"], each["metric"], each["value"], each["before"]) for each in case.evidence] == [(1, "xid", 79, 0)]
    (text,) = told("opened")
    assert text == f"Node {node.name} is set aside: {case.why} Next: reboot the node and check."


def test_each_xid_asks_for_the_action_of_the_vendors_table() -> None:
    asked = {xid: fault.action for xid in range(200) for fault in faults_of({**ZERO, "xid": xid}, ZERO, {}, limits={})}

    assert {xid for xid, action in asked.items() if action is Action.REBOOT_NODE} == {79}
    assert {xid for xid, action in asked.items() if action is Action.SUPPORT} == {61, 122, 142}
    assert {62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 158} <= {xid for xid, action in asked.items() if action is Action.RESET_GPUS}
    assert set(asked) == set(XID_ACTIONS)
    assert not set(asked) & {13, 31, 43, 45, 63, 92, 94, 121, 137}


def test_errors_of_applications_set_no_node_aside(ward: Ward) -> None:
    for xid in (13, 31, 43, 45, 63, 94, 0, 13):
        ward.read(xid=xid)
        ward.look()

    assert not RemediationCase.objects.exists()
    assert not is_aside(ward.node)


def test_an_xid_that_the_gauge_still_shows_is_no_second_fault(ward: Ward) -> None:
    ward.read(xid=79)
    ward.look()
    for _ in range(3):
        ward.look()

    assert len(ward.case.evidence) == 1


def test_several_xids_between_two_scrapes_are_all_evidence_once_and_the_worst_decides(ward: Ward) -> None:
    (gpu, *_) = gpus_of(ward.node)
    for xids in ({13: 4, 48: 1, 79: 1, 95: 1}, {48: 1, 79: 1, 95: 1}, {95: 1}, {}):
        ward.xids[gpu.pk] = xids
        ward.read(xid=13)  # the last, and no fault
        ward.look()

    assert sorted(each["value"] for each in ward.case.evidence) == [48, 79, 95]
    assert (ward.node.cordon_code, ward.case.action) == ("xid 79", Action.REBOOT_NODE)


def test_a_worse_fault_of_the_same_node_asks_for_the_stronger_action(ward: Ward) -> None:
    ward.read(xid=48)
    ward.look()
    assert ward.case.action == Action.RESET_GPUS
    ward.read(gpu=1, xid=79)
    ward.look()

    assert (ward.case.action, len(ward.case.evidence)) == (Action.REBOOT_NODE, 2)


@pytest.mark.parametrize(
    ("metric", "step", "is_fault"),
    [("ecc_corrected", 1200, False), ("ecc_corrected", 6000, True), ("rows_remapped", 1, False), ("rows_remapped", 5, True)],
)
def test_a_trend_is_a_fault_beyond_its_limit_a_day(ward: Ward, metric: str, step: int, is_fault: bool) -> None:
    """The first count is where it begins: a GPU may have counted for years."""
    FaultCount.objects.all().delete()
    for n in range(3):
        ward.count({metric: 300_000 + n * step})
        ward.look(3600)

    assert is_aside(ward.node) == is_fault


def test_a_slow_trend_is_no_fault_however_long_it_goes_on(ward: Ward) -> None:
    for day in range(6):
        ward.read(rows_remapped=day * 5)
        ward.look(DAY_S)

    assert not is_aside(ward.node)


def test_a_counter_that_begins_anew_and_one_that_is_not_told_are_no_faults(ward: Ward) -> None:
    ward.read(ecc_corrected=50_000)
    FaultCount.objects.all().delete()
    ward.look()
    ward.read(ecc_corrected=3)
    ward.look()
    ward.said = {pk: {**said, "ecc_corrected": -1} for pk, said in ward.said.items()}
    ward.look()

    assert not is_aside(ward.node)


def test_a_policy_ignores_xids_sets_limits_and_switches_the_watch_off(ward: Ward) -> None:
    change = {"ignored_xids": [74], "limits": {"ecc_uncorrected": 3}}
    remediation_policy_change(cluster=ward.cluster, change=change, actor=ward.admin, now=ward.now)  # type: ignore[arg-type]
    ward.read(xid=74, ecc_uncorrected=2)
    ward.look()
    assert not is_aside(ward.node)
    ward.read(ecc_uncorrected=3)
    ward.look()
    assert ward.case.code == "ecc_uncorrected"

    remediation_policy_change(cluster=ward.cluster, change={"watches_faults": False}, actor=ward.admin, now=ward.now)
    other = Node.objects.exclude(pk=ward.node.pk).get()
    ward.read(node=other, xid=79)
    ward.look()
    assert not is_aside(other)


def test_a_fleet_without_news_costs_few_queries(ward: Ward, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(5):  # type: ignore[operator]
        from observability.remediation.services import remediation_step

        remediation_step(now=ward.now)
