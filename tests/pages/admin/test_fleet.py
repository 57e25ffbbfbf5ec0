"""The admin portal shows inventory, nodes and clusters."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.tokens.minting import TokenKind
from core.clock import db_now
from inventory.models import AgentSession, Cluster, Node, Reservation, ReservationState
from journal.models import Event
from portal_admin.pages.fleet.clusters import join_commands
from tests import factories
from tests.pages.admin_world import HTMX, QUERIES_MAX, AdminWorld

# Each day: tests/api/fleet, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

INVENTORY, CLUSTERS = "/admin/inventory/", "/admin/clusters/"


@pytest.fixture
def node(admin_world: AdminWorld) -> Node:
    """Held by the GPR that runs."""
    found = admin_world.cluster.nodes.order_by("name").first()
    assert found is not None
    return found


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return str(response.content.decode())


def names(markup: str) -> list[str]:
    return re.findall(r'<a class="strong clip"[^>]*>([^<]+)</a>', markup)


def test_nodes_stand_by_cluster_and_shape_with_who_holds_them(admin: Client) -> None:
    shown = text(admin.get(INVENTORY))

    assert names(shown) == ["aurora-0", "aurora-1"]
    assert "aurora, H100-80GB" in shown
    assert "2 nodes, 0 of 16 GPUs free" in shown
    assert "GPU 3, held by runs of vision" in shown


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "held"),
        ({"cordoned_at": True, "cordon_reason": "Xid 79"}, "draining"),
        ({"released": True}, "free"),
        ({"released": True, "cordoned_at": True, "cordon_reason": "Xid 79"}, "set-aside"),
        ({"released": True, "is_ready": False}, "set-aside"),
        ({"silent": True}, "silent"),
        ({"released": True, "disabled": True}, "set-aside"),
    ],
)
def test_a_node_is_found_by_its_state(change: dict[str, Any], state: str, admin_world: AdminWorld, node: Node, admin: Client) -> None:
    now = db_now()
    if change.pop("released", False):
        for row in Reservation.objects.filter(node=node):
            row.gpus.update(state=ReservationState.RELEASED)
        Reservation.objects.filter(node=node).update(state=ReservationState.RELEASED, released_at=now)
    if change.pop("silent", False):
        AgentSession.objects.update(last_sync_at=now - timedelta(hours=1))
    if change.pop("disabled", False):
        Cluster.objects.update(is_enabled=False)
    if "cordoned_at" in change:
        change["cordoned_at"] = now
    if change:
        Node.objects.filter(pk=node.pk).update(**change)

    assert node.name in names(text(admin.get(INVENTORY, {"state": state})))
    for other in {"free", "held", "draining", "set-aside", "silent"} - {state}:
        assert node.name not in names(text(admin.get(INVENTORY, {"state": other})))


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"q": "runs"}, 2),
        ({"q": "aurora-1"}, 1),
        ({"q": "GPU-aurora-0-3"}, 1),
        ({"q": "vision"}, 2),
        ({"q": "\x00%"}, 0),
        ({"cluster": "aurora"}, 2),
        ({"cluster": "nowhere"}, 0),
        ({"shape": "A10"}, 0),
    ],
)
def test_filters_stand_in_the_url(filters: dict[str, str], count: int, admin: Client) -> None:
    assert len(names(text(admin.get(INVENTORY, filters)))) == count


def test_each_node_is_counted_once(admin: Client) -> None:
    shown = text(admin.get(INVENTORY))

    assert dict(re.findall(r">(All|Held|Free) <small>(\d+)</small>", shown)) == {"All": "2", "Held": "2", "Free": "0"}


def test_without_any_node_it_says_where_nodes_come_from(admin: Client) -> None:
    Node.objects.update(gone_at=db_now())

    assert "No nodes yet" in text(admin.get(INVENTORY))


def test_a_node_is_set_aside_and_used_again_each_with_a_question(node: Node, admin: Client) -> None:
    url = f"{INVENTORY}{node.pk}/"
    assert "Set aurora-0 aside?" in text(admin.get(f"{url}cordon/", headers=HTMX))
    assert admin.post(f"{url}cordon/", {"why": ""}).status_code == 422

    assert admin.post(f"{url}cordon/", {"why": "firmware"})["Location"] == url
    assert admin.post(f"{url}cordon/", {"why": "firmware"}).status_code == 409
    assert "firmware" in text(admin.get(url))
    assert "It was set aside: firmware." in text(admin.get(f"{url}uncordon/"))
    assert admin.post(f"{url}uncordon/", headers=HTMX).status_code == 204
    node.refresh_from_db()
    assert node.cordoned_at is None


def test_a_node_is_replaced_with_a_question_and_its_page_says_where_there_is_no_spare(
    node: Node, admin_world: AdminWorld, admin: Client
) -> None:
    url = f"{INVENTORY}{node.pk}/"
    assert f"{url}replace/" in text(admin.get(url))
    assert "Replace aurora-0?" in text(admin.get(f"{url}replace/", headers=HTMX))
    assert admin.post(f"{url}replace/", {"why": ""}).status_code == 422

    Node.objects.exclude(pk=node.pk).update(cordoned_at=db_now())
    refused = admin.post(f"{url}replace/", {"why": "its fan is loud"})
    assert refused.status_code == 409
    assert "No other node of its kind is free until its end." in refused.content.decode()
    assert not Reservation.objects.exclude(replaces=None).exists()

    Node.objects.exclude(pk=node.pk).update(cordoned_at=None)
    factories.add_nodes(admin_world.cluster, 1)
    assert admin.post(f"{url}replace/", {"why": "its fan is loud"})["Location"] == url
    assert Reservation.objects.get(replaces__node=node).is_coming
    assert admin.post(f"{url}replace/", {"why": "its fan is loud"}).status_code == 409


def test_gpus_of_a_node_that_is_set_aside_are_not_called_free(node: Node, admin_world: AdminWorld, admin: Client) -> None:
    """`0 of 8 free` and eight tiles that say free would contradict each other."""
    for row in Reservation.objects.filter(node=node):
        row.gpus.update(state=ReservationState.RELEASED)
    Reservation.objects.filter(node=node).update(state=ReservationState.RELEASED, released_at=db_now())
    url = f"{INVENTORY}{node.pk}/"
    assert text(admin.get(url)).count(">GPU 0, </span>free") == 1

    Node.objects.filter(pk=node.pk).update(cordoned_at=db_now(), cordon_reason="Xid 79")
    shown = text(admin.get(url))

    assert "0 of 8 free" in shown
    assert "</span>free" not in shown
    assert shown.count("</span>aside") == 8
    assert "GPU 0, not held, but nothing starts on its node now" in shown
    assert "Last reported" in shown


def test_a_release_by_force_frees_only_what_was_shown(admin_world: AdminWorld, node: Node, admin: Client) -> None:
    url = f"{INVENTORY}{node.pk}/force-release/"
    held = Reservation.objects.get(node=node)
    shown = text(admin.get(url))
    assert "runs of vision" in shown
    assert str(held.pk) in shown

    assert admin.post(url, {"why": "", "reservations": str(held.pk)}).status_code == 422
    assert admin.post(url, {"why": "dead", "reservations": str(held.pk)}).status_code == 302
    assert admin.post(url, {"why": "dead", "reservations": str(held.pk)}).status_code == 409
    held.refresh_from_db()
    assert held.state == ReservationState.RELEASED


@pytest.mark.parametrize("given", [{}, {"reservations": ""}, {"reservations": "not-an-id"}, {"reservations": str(uuid4())}])
def test_a_release_by_force_from_an_old_page_names_who_holds_the_node_now(given: dict[str, str], node: Node, admin: Client) -> None:
    url = f"{INVENTORY}{node.pk}/force-release/"

    response = admin.post(url, {"why": "the rack is dead", **given})
    shown = response.content.decode()

    assert response.status_code == 409
    assert "Other requests hold aurora-0 than you were shown." in shown
    assert "Read below which would lose it now, and decide again." in shown
    assert "runs of vision would lose it" in shown
    assert "Reservations" not in shown
    assert 'value="the rack is dead"' in shown
    held = Reservation.objects.get(node=node)
    assert held.state == ReservationState.HELD
    assert f'value="{held.pk}"' in shown


def test_a_node_that_nothing_holds_has_nothing_to_release(node: Node, admin: Client) -> None:
    Reservation.objects.update(state=ReservationState.RELEASED, released_at=db_now())
    url = f"{INVENTORY}{node.pk}/force-release/"

    for response in (admin.get(url), admin.post(url, {"why": "dead", "reservations": ""})):
        assert response.status_code == 409
        assert b"Nothing holds aurora-0 any more" in response.content


def test_a_node_page_tells_who_held_it_and_what_happened_also_when_it_is_gone(node: Node, admin: Client) -> None:
    Node.objects.filter(pk=node.pk).update(gone_at=db_now())
    shown = text(admin.get(f"{INVENTORY}{node.pk}/"))

    assert "This node is gone" in shown
    assert ">runs<" in shown
    assert "joined cluster aurora" in shown
    assert admin.get(f"{INVENTORY}{uuid4()}/").status_code == 404


def test_a_cluster_is_added_and_its_join_token_is_shown_once(admin: Client) -> None:
    assert admin.post(CLUSTERS, {"name": "borealis"})["Location"] == CLUSTERS
    cluster = Cluster.objects.get(name="borealis")
    assert "Not joined" in text(admin.get(CLUSTERS))

    url = f"{CLUSTERS}{cluster.pk}/join-token/"
    assert "Issue a join token for borealis?" in text(admin.get(url))
    shown = admin.post(url)
    assert f"{TokenKind.JOIN.value}_" in text(shown)
    assert "deploy/agent/install --hub http://testserver --image" in text(shown)
    assert "no-store" in shown["Cache-Control"]
    assert f"{TokenKind.JOIN.value}_" not in text(admin.get(CLUSTERS)) + text(admin.get(url))


def test_the_page_of_a_join_token_and_the_docs_tell_the_same_commands() -> None:
    assert join_commands("https://egs.example.org") in (settings.BASE_DIR / "docs/how-to/kubernetes.md").read_text()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("aurora", 409),
        ("AURORA", 409),
        ("", 422),
        (" ", 422),
        ("a b", 422),
        ("-a", 422),
        ("x" * 64, 422),
        ("6f1e1c6e-5b0a-4e0a-9b8e-0a6f5f6d7c11", 422),
        ("a\x00", 422),
    ],
)
def test_what_is_no_name_for_a_cluster_is_told_at_the_field(name: str, status: int, admin: Client) -> None:
    response = admin.post(CLUSTERS, {"name": name})

    assert response.status_code == status
    assert b"field-error" in response.content
    assert Cluster.objects.count() == 1


def test_an_administrator_sets_how_long_pods_may_outlive_their_request(admin_world: AdminWorld, admin: Client) -> None:
    cluster = admin_world.cluster
    url = f"{CLUSTERS}{cluster.pk}/drain/"

    assert "2 min" in admin.get(url).content.decode()
    for force, grace in (("30 s", "1 min"), ("2 d", "1 min"), ("0 s", "0 s")):
        answer = admin.post(url, {"drain_force_after_s": force, "drain_grace_s": grace})
        assert (answer.status_code, "Must be from" in answer.content.decode()) == (422, True), (force, grace)
    admin.post(url, {"drain_force_after_s": "5 min", "drain_grace_s": "0 s"})

    cluster.refresh_from_db()
    assert (cluster.drain_force_after_s, cluster.drain_grace_s) == (300, 0)
    (event,) = Event.objects.filter(kind="cluster.drain_changed")
    assert "get 300 s to stop" in event.message


def test_a_cluster_is_disabled_enabled_and_resumed(admin_world: AdminWorld, admin: Client) -> None:
    url = f"{CLUSTERS}{admin_world.cluster.pk}/"
    assert "Disable aurora?" in text(admin.get(f"{url}disable/"))
    assert admin.post(f"{url}disable/").status_code == 302
    assert "Disabled" in text(admin.get(CLUSTERS))
    assert admin.post(f"{url}enable/").status_code == 302

    assert admin.post(f"{url}resume/").status_code == 409
    Cluster.objects.update(rewound_at=db_now())
    assert "Rewound" in text(admin.get(CLUSTERS))
    assert admin.post(f"{url}resume/", headers=HTMX).status_code == 204
    admin_world.cluster.refresh_from_db()
    assert (admin_world.cluster.is_enabled, admin_world.cluster.rewound_at) == (True, None)


@pytest.mark.parametrize(
    ("agent", "word"),
    [({}, "Live"), ({"heard_s": 60}, "Late"), ({"heard_s": 600}, "Silent"), ({"locked": True}, "Locked"), ({"offset_s": 4.2}, "+4.20 s")],
)
def test_a_cluster_says_how_its_agent_is(agent: dict[str, Any], word: str, admin: Client) -> None:
    now = db_now()
    AgentSession.objects.update(
        last_sync_at=now - timedelta(seconds=agent.get("heard_s", 0)),
        locked_at=now if agent.get("locked") else None,
        clock_offset_s=agent.get("offset_s"),
    )

    assert word in text(admin.get(CLUSTERS))


@pytest.mark.parametrize("path", [INVENTORY, CLUSTERS, f"{INVENTORY}NODE/"])
def test_a_hundred_rows_cost_what_ten_cost(path: str, admin_world: AdminWorld, node: Node, admin: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            text(admin.get(path.replace("NODE", str(node.pk))))
        return len(queries)

    def more(count: int) -> None:
        factories.add_nodes(admin_world.cluster, count)
        for _ in range(count // 5):
            factories.cluster(nodes=1)

    more(10)
    few = cost()
    more(90)

    assert cost() == few <= QUERIES_MAX
