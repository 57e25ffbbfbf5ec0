"""Check policies in the admin portal, and what checks measured on the pages of the node and of the request."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from core.clock import db_now
from inventory.models import CheckPolicy, CheckResult, Node, StepResult
from protocol.agents.events import Outcome
from protocol.nodes.checks import Verdict
from tests import factories
from tests.builders import SHAPE
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

# Each day: tests/api/fleet/test_check_policies.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

PAGE, CREATE = "/admin/checks/", "/admin/checks/create/"


def text(response: Any) -> str:
    """Returns what is to be read, without the tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", response.content.decode())).split())


def test_without_any_the_page_tells_egs_s_own_limits(admin_world: AdminWorld, admin: Client) -> None:
    shown = text(admin.get(PAGE))

    assert "No checks are set yet" in shown
    assert "NCCL all-reduce, bus bandwidth" in shown
    assert "H100 460, H200 431, A100 228" in shown


def test_a_policy_is_set_changed_and_deleted(admin_world: AdminWorld, admin: Client) -> None:
    new = {"cluster": admin_world.cluster.name, "shape": SHAPE, "limit_nccl_bandwidth": "430.5"}
    admin.post(CREATE, {**new, "image_nccl": "a/b:1", "skipped_steps": ["storage"], "runtime_class": "nvidia", "pull_secret": "mine"})
    policy = CheckPolicy.objects.get()
    assert (policy.limits, policy.images, policy.skipped_steps) == ({"nccl_bandwidth": 430.5}, {"nccl": "a/b:1"}, ["storage"])
    shown = text(admin.get(PAGE))
    assert "NCCL all-reduce, bus bandwidth: at least 430.5 GB/s" in shown
    assert "without Storage" in shown
    assert "runtime class nvidia pull secret mine" in shown

    asked = admin.get(f"{PAGE}{policy.pk}/", headers=HTMX).content.decode()
    assert 'value="430.5"' in asked
    assert 'value="nvidia"' in asked
    admin.post(f"{PAGE}{policy.pk}/", {"limit_rdma_rate": "200", "why": "Older links."})
    policy.refresh_from_db()
    assert (policy.limits, policy.images) == ({"rdma_rate": 200.0}, {})

    admin.post(f"{PAGE}{policy.pk}/delete/", {"why": "Not needed."})
    assert not CheckPolicy.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("limit_gpu_temperature", "151", "less than or equal to 150"),
        ("limit_gpu_temperature", "nan", "Enter a number"),
        ("image_nccl", "http://a b", "must be the reference of an image"),
        ("rdma_subnet", "fe80::", "first half of a GID"),
        ("runtime_class", "-", "name of a runtime class"),
        ("skipped_steps", "drain", "drain is not one of the available choices"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field_and_stays_typed(
    field: str, value: str, says: str, admin_world: AdminWorld, admin: Client
) -> None:
    refused = admin.post(CREATE, {"cluster": admin_world.cluster.name, field: value}, headers=HTMX)

    assert says in text(refused)
    assert not CheckPolicy.objects.exists()


@pytest.fixture
def measured(admin_world: AdminWorld) -> Node:
    """The node of a running box: a check that failed on one of its GPUs, and one of the node that passed."""
    row = factories.held(admin_world.runs)[0]
    now = db_now()
    step = StepResult.objects.create(
        reservation=row, step="gpu_health", attempt=1, outcome=Outcome.FAILED, started_at=now, ended_at=now, log="as measured"
    )
    about = {"step": step, "unit": "°C", "threshold": 87.0, "what": "gpu_temperature"}
    CheckResult.objects.create(**about, gpu_uuid="GPU-aaaaaaaa-1", value=91.0, verdict=Verdict.FAIL)
    CheckResult.objects.create(**about, gpu_uuid="GPU-bbbbbbbb-2", value=31.0, verdict=Verdict.PASS)
    CheckResult.objects.create(**about, gpu_uuid="GPU-cccccccc-3", value=43.0, verdict=Verdict.PASS)
    return row.node


def test_the_page_of_a_node_tells_what_each_gpu_measured(measured: Node, admin: Client) -> None:
    shown = text(admin.get(f"/admin/inventory/{measured.pk}/"))

    for part in ("GPU-aaaaaaaa", "91 °C", "at most 87 °C", "2 GPUs", "31, 43 °C", "as measured"):
        assert part in shown


NOTHING = "no image for NCCL is set"


@pytest.fixture
def unmeasured(admin_world: AdminWorld) -> Node:
    """A node of a running box, on all of whose nodes a check had nothing to measure."""
    now, rows = db_now(), factories.held(admin_world.runs)
    about = {"step": "nccl", "attempt": 1, "outcome": Outcome.OK, "started_at": now, "ended_at": now, "log": NOTHING}
    for row in rows:
        step = StepResult.objects.create(reservation=row, **about)
        CheckResult.objects.create(step=step, what="nccl_bandwidth", verdict=Verdict.SKIP, text=NOTHING)
    return rows[0].node


def test_a_check_that_measured_nothing_is_not_shown_as_passed_but_as_skipped_and_why(
    admin_world: AdminWorld, unmeasured: Node, admin: Client
) -> None:
    """The page of the node says so to administrators, and that of the request to its owner."""
    on_node = text(admin.get(f"/admin/inventory/{unmeasured.pk}/"))
    on_request = text(client_of(admin_world.people.owner).get(f"/gprs/{admin_world.runs.pk}/"))

    assert f"skipped: {NOTHING}" in on_node
    assert f"skipped: {NOTHING}" in on_request


def test_the_page_of_a_request_tells_what_is_bad_by_node_and_gpu_and_the_rest_together(admin_world: AdminWorld, measured: Node) -> None:
    shown = text(client_of(admin_world.people.owner).get(f"/gprs/{admin_world.runs.pk}/"))

    assert f"{measured.name} GPU-aaaaaaaa" in shown
    assert "31 to 43 °C" in shown
