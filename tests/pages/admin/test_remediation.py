"""Nodes that are set aside, as administrators see them: why, what is done, and what they decide."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from inventory.models import AgentSession, Node, Repair
from observability.models import RemediationCase, RemediationPolicy
from protocol.nodes.steps import CAPABILITIES
from tests import factories
from tests.pages.admin_world import AdminWorld

pytestmark = pytest.mark.django_db


@pytest.fixture
def case(admin_world: AdminWorld) -> RemediationCase:
    AgentSession.objects.update(capabilities=list(CAPABILITIES))
    return factories.case(admin_world.cluster, xid=79)


def at(name: str, case: RemediationCase) -> str:
    return reverse(f"admin-case{f'-{name}' if name else ''}", args=[case.pk])


def test_the_list_says_why_each_node_is_aside_and_who_is_waited_for(admin: Client, case: RemediationCase) -> None:
    page = admin.get(reverse("admin-remediation")).content.decode()

    for text in (
        case.node.name,
        "GPU 1 reported Xid 79 (GPU has fallen off the bus).",
        "Needs approval",
        "Reboot the node and check",
    ):
        assert text in page
    assert re.search(r"Waits for you\s*<small[^>]*>1<", page)
    assert case.node.name not in admin.get(reverse("admin-remediation"), {"state": "closed"}).content.decode()
    assert admin.get(reverse("admin-remediation"), {"state": "odd"}).status_code == 400


def test_the_question_previews_the_steps_and_the_answer_begins_the_repair(admin: Client, case: RemediationCase) -> None:
    asked = admin.get(at("approve", case)).content.decode()
    assert "Steps: Reboot the node, Node ready, GPU count" in asked

    admin.post(at("approve", case), {"action": "reset_gpus", "why": "The rack is new."})
    assert Repair.objects.get().action == "reset_gpus"
    page = admin.get(at("", case)).content.decode()
    assert "Reset the GPUs and check" in page
    assert "No step has ended yet." in page
    assert 'href="' + at("approve", case) not in page


def test_a_node_is_kept_aside_gone_on_with_and_used_again_by_hand(admin: Client, case: RemediationCase) -> None:
    admin.post(at("keep", case), {"why": "I want to see it."})
    assert "I want to see it." in admin.get(at("", case)).content.decode()
    admin.post(at("resume", case))
    case.refresh_from_db()
    assert case.state == "open"
    admin.post(at("give-back", case), {"why": "It is well."})

    assert Node.objects.get(pk=case.node_id).cordoned_at is None
    assert "This case is closed." in admin.get(at("keep", case)).content.decode()
    assert case.node.name in admin.get(reverse("admin-remediation"), {"state": "closed"}).content.decode()


def test_the_log_is_a_text_to_download(admin: Client, case: RemediationCase) -> None:
    answer = admin.get(at("log", case))

    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["Content-Disposition"].startswith(f'attachment; filename="{case.node.name}-')
    assert "reported Xid 79" in answer.content.decode()


def test_a_policy_is_changed_in_words_and_numbers(admin: Client, admin_world: AdminWorld) -> None:
    url = reverse("admin-remediation-policy", args=[admin_world.cluster.pk])
    form = {"watches_faults": "yes", "check_node": "auto", "restart_driver": "auto", "reset_gpus": "ask", "reboot_node": "never"}
    refused = admin.post(url, {**form, "tries_max": "3", "returns_max": "2", "ignored_xids": "13"})
    assert "no other sets a node aside" in refused.content.decode()

    admin.post(url, {**form, "tries_max": "3", "returns_max": "2", "ignored_xids": "74, 48", "limit_nvlink_errors": "0"})
    policy = RemediationPolicy.objects.get()
    assert (policy.restart_driver, policy.reboot_node, policy.tries_max) == ("auto", "never", 3)
    assert (policy.ignored_xids, policy.limits) == ([48, 74], {"nvlink_errors": 0})
    page = admin.get(reverse("admin-remediation")).content.decode()
    assert "Reboot the node: never" in page


def test_a_list_of_many_cases_costs_as_many_queries_as_one(
    admin: Client, admin_world: AdminWorld, case: RemediationCase, django_assert_max_num_queries: object
) -> None:
    for n in range(20):
        RemediationCase.objects.create(
            node=case.node, opened_at=case.opened_at, tries_since_at=case.opened_at, cause="fault", why=f"Fault {n}.", state="returned",
            action="check_node", closed_at=case.opened_at,
        )  # fmt: skip

    with django_assert_max_num_queries(14):  # type: ignore[operator]
        admin.get(reverse("admin-remediation"), {"state": "closed"})
