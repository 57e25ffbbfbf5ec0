"""The zone of a reader is that of his pages, and of nothing else that the same thread answers."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import Scope
from tests import factories
from tests.pages.user_world import make_world

pytestmark = pytest.mark.django_db


def test_the_api_tells_times_in_utc_whoever_has_read_a_page_before() -> None:
    world = make_world()
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    bearer = {"Authorization": f"Bearer {factories.token(world.people.owner, Scope.READ)}"}
    owner = world.client("owner")
    owner.cookies["egs_zone"] = "Asia/Tokyo"
    assert "Asia/Tokyo" in owner.get(f"/gprs/{waits.pk}/").content.decode()

    told = Client().get(f"/api/v1/gprs/{waits.pk}/", headers=bearer).json()

    assert told["created_at"].endswith("Z")
