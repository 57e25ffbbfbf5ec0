"""Pages of a GPR that was filed as an object of a cluster say so."""

from __future__ import annotations

import pytest

from core.clock import db_now
from gpr.cluster_requests.services import cluster_requests_take
from gpr.models import Gpr
from tests import factories
from tests.cluster_requests.stage import claim
from tests.pages.user_world import World, text
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db

ORIGIN = "object train/llama of cluster aurora, made by ci"


@pytest.fixture
def filed(world: World) -> Gpr:
    ready_namespace(world.slice, world.cluster, at=db_now())
    (answer,) = cluster_requests_take(cluster=world.cluster, requests=[claim("llama", requester="ci")], now=db_now())
    return Gpr.objects.get(pk=answer.gpr_id)


@pytest.mark.parametrize(("persona", "is_told"), [("owner", True), ("teammate", True), ("outsider", False), ("admin", True)])
def test_its_page_names_the_object(persona: str, is_told: bool, world: World, filed: Gpr) -> None:
    shown = world.client(persona).get(f"/gprs/{filed.pk}/").content.decode()

    assert (ORIGIN in shown) == is_told


def test_the_administrators_page_names_it_too(world: World, filed: Gpr) -> None:
    assert ORIGIN in text(world.client("admin").get(f"/admin/queue/{filed.pk}/"))


def test_pages_of_others_say_nothing_of_objects(world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    for path in (f"/gprs/{gpr.pk}/", f"/admin/queue/{gpr.pk}/"):
        assert "Filed as" not in text(world.client("admin").get(path))


def test_one_for_pods_that_wait_says_so(world: World) -> None:
    ready_namespace(world.slice, world.cluster, at=db_now())
    (answer,) = cluster_requests_take(cluster=world.cluster, requests=[claim("llama", requester="", is_auto=True)], now=db_now())

    shown = text(world.client("owner").get(f"/gprs/{answer.gpr_id}/"))

    assert "object train/llama of cluster aurora for pods that wait" in shown
