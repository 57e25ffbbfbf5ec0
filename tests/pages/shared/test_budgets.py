"""Budgets on pages: the administrator gives, changes and deletes them; a member sees what is left, and what a request breaks."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.test import Client

from core.clock import db_now
from journal.models import Event
from slices.models import AtLimit, Budget, Period
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.shared.test_quotas import text
from tests.pages.user_world import client_of, form

pytestmark = pytest.mark.django_db

BUDGETS, GIVE = "/admin/budgets/", "/admin/budgets/create/"
YEARS = {"starts_at": datetime(2026, 1, 1, tzinfo=UTC), "ends_at": datetime(2126, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_one_is_given_shown_with_its_use_changed_and_deleted(headers: dict[str, str], admin_world: AdminWorld, admin: Client) -> None:
    """`runs` of vision holds two nodes of 8 GPUs."""
    assert "No budgets yet" in text(admin.get(BUDGETS))
    assert "GPUs of all shapes" in text(admin.get(GIVE, headers=headers))
    given = {
        "owner": str(admin_world.slice.pk),
        "shape": "",
        "period": "month",
        "gpu_hours": "1000",
        "at_limit": "approve",
        "why": "A pilot.",
    }

    made = admin.post(GIVE, given, headers=headers)

    budget = Budget.objects.get()
    assert (budget.owner, budget.shape, budget.gpu_hours, budget.period) == (admin_world.slice, "", 1000, "month")
    said = made.headers.get("HX-Trigger") or text(admin.get(BUDGETS))
    assert "Budget of workspace vision: 1,000 GPU-hours in each month, beyond it approval." in said
    shown = text(admin.get(BUDGETS, {"part": "rows"}))
    assert 'of 1000 GPU-hours with what is booked"' in shown
    assert f"in the month from {db_now():%Y-%m}-01" in shown

    assert 'value="1000"' in text(admin.get(f"{BUDGETS}{budget.pk}/", headers=headers))
    refused = admin.post(f"{BUDGETS}{budget.pk}/", {"gpu_hours": "0", "at_limit": "refuse"}, headers=headers)
    assert "greater than or equal to 1" in refused.content.decode()
    admin.post(f"{BUDGETS}{budget.pk}/", {"gpu_hours": "5", "at_limit": "refuse"}, headers=headers)
    budget.refresh_from_db()
    assert (budget.gpu_hours, budget.at_limit) == (5, AtLimit.REFUSE)

    admin.post(f"{BUDGETS}{budget.pk}/delete/", {"why": ""}, headers=headers)
    kinds = Event.objects.filter(kind__startswith="budget.", actor=admin_world.people.admin).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["budget.created", "budget.changed", "budget.deleted"]


def test_a_member_sees_the_bar_and_what_a_request_breaks_before_it_is_filed(admin_world: AdminWorld) -> None:
    budget = Budget.objects.create(project=admin_world.slice.project, gpu_hours=20_000, period=Period.RANGE, created_at=db_now(), **YEARS)
    owner = client_of(admin_world.people.owner)

    assert f"GPU-hours of project {admin_world.slice.project.name} from 2026-01-01" in text(owner.get("/workspaces/vision/"))
    Budget.objects.filter(pk=budget.pk).update(gpu_hours=1)
    shown = text(owner.post("/workspaces/vision/offers/", form()))
    assert "has 0 of 1 GPU-hours left from 2026-01-01" in shown
    assert "which needs approval" in shown
    Budget.objects.update(at_limit=AtLimit.REFUSE)
    shown = text(owner.post("/workspaces/vision/create/", form()), 422)
    assert "has 0 of 1 GPU-hours left from" in re.sub(r"\s+", " ", shown)
    assert not admin_world.slice.gprs.filter(name="train").exists()
