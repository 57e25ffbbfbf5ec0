"""The next page says once without a script what came of an act, in both portals in one way."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db


def toast_in(client: Client, path: str) -> str:
    shown = client.get(path).content.decode()
    said, _, _ = shown.split('id="toasts"')[1].partition('<template id="toast-template">')
    return said


def acts(admin_world: AdminWorld) -> list[tuple[str, dict[str, object], str]]:
    node = admin_world.cluster.nodes.order_by("name").first()
    assert node is not None
    queue, inventory, cluster = "/admin/queue", f"/admin/inventory/{node.pk}", f"/admin/clusters/{admin_world.cluster.pk}"
    held = node.reservations.get()
    return [
        (f"{queue}/{admin_world.held.pk}/approve/", {"version": admin_world.held.version}, "held-back is in the queue"),
        (f"{queue}/{admin_world.waits.pk}/priority/", {"version": admin_world.waits.version, "priority": 7}, "waits has priority 7"),
        (f"{queue}/{admin_world.waits.pk}/reject/", {"version": admin_world.waits.version + 1, "why": "no"}, "waits is rejected"),
        (f"{inventory}/cordon/", {"why": "firmware"}, "aurora-0 is set aside"),
        (f"{inventory}/uncordon/", {}, "aurora-0 is in use again"),
        (f"{inventory}/force-release/", {"why": "dead", "reservations": str(held.pk)}, "aurora-0 is free"),
        (f"{cluster}/disable/", {}, "Cluster aurora is disabled"),
        (f"{cluster}/enable/", {}, "Cluster aurora is enabled"),
        ("/admin/clusters/", {"name": "cassini"}, "Cluster cassini is added"),
    ]


def test_each_act_of_an_administrator_is_confirmed_once(admin_world: AdminWorld, admin: Client) -> None:
    for url, typed, said in acts(admin_world):
        sent = admin.post(url, typed)
        assert sent.status_code == 302, (url, sent.content)

        assert said in toast_in(admin, sent["Location"]), url
        assert said not in toast_in(admin, sent["Location"]), url


def test_a_fragment_of_another_open_page_does_not_take_the_confirmation(admin_world: AdminWorld, admin: Client) -> None:
    sent = admin.post("/admin/clusters/", {"name": "cassini"})

    for path in ("/admin/queue/count/", "/admin/clusters/?part=rows", f"/admin/queue/{admin_world.waits.pk}/", "/?part=list"):
        admin.get(path, headers=HTMX)

    assert "Cluster cassini is added" in toast_in(admin, sent["Location"])


def test_a_user_is_told_in_the_same_place(admin_world: AdminWorld) -> None:
    owner = client_of(admin_world.people.owner)
    sent = owner.post(f"/gprs/{admin_world.runs.pk}/release/", {"version": admin_world.runs.version})

    assert "runs is released" in toast_in(owner, sent["Location"])
    assert "runs is released" not in toast_in(owner, sent["Location"])
