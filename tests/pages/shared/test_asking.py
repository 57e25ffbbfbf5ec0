"""The one way of asking before an act, in both portals: what cannot be done any more is not offered, and a preview leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from core.clock import db_now
from gpr.models import Gpr, GprState
from gpr.requests.editing import gpr_cancel
from inventory.models import Cluster, MaintenanceWindow, Node
from slices.models import Kubeconfig, KubeconfigState
from tests import factories
from tests.pages.user_world import HTMX, World, make_world, text

pytestmark = pytest.mark.django_db


def _gpr(world: World, state: GprState) -> Gpr:
    gpr = factories.gpr(world.slice, world.people.owner, name="over")
    if state == GprState.CANCELED:
        gpr_cancel(gpr=gpr, actor=world.people.owner, now=db_now())
    return gpr


def _act(act: str, state: GprState) -> Callable[[World], str]:
    return lambda world: f"/gprs/{_gpr(world, state).pk}/{act}/"


def _decision(act: str, state: GprState) -> Callable[[World], str]:
    return lambda world: f"/admin/queue/{_gpr(world, state).pk}/{act}/"


def _node(act: str, **state: object) -> Callable[[World], str]:
    def url(world: World) -> str:
        Node.objects.update(**state)
        return f"/admin/inventory/{Node.objects.values_list('pk', flat=True)[0]}/{act}/"

    return url


def _cluster(act: str, **state: object) -> Callable[[World], str]:
    def url(world: World) -> str:
        Cluster.objects.update(**state)
        return f"/admin/clusters/{world.cluster.pk}/{act}/"

    return url


def _maintenance(world: World) -> str:
    now = db_now()
    row = MaintenanceWindow.objects.create(
        cluster=world.cluster, reason="x", starts_at=now, ends_at=now.replace(year=now.year + 1), created_at=now, canceled_at=now
    )
    return f"/admin/maintenance/{row.pk}/cancel/"


def _kubeconfig(world: World) -> str:
    now = db_now()
    row = Kubeconfig.objects.create(
        slice=world.slice,
        user=world.people.owner,
        cluster=world.cluster,
        state=KubeconfigState.REVOKED,
        duration_s=3600,
        asked_at=now,
        due_at=now,
        ended_at=now,
    )
    return f"/workspaces/vision/access/{row.pk}/revoke/"


OVER: dict[str, Callable[[World], str]] = {
    "cancel": _act("delete", GprState.CANCELED),
    "release": _act("release", GprState.CANCELED),
    "extend": _act("extend", GprState.QUEUED),
    "edit": _act("edit", GprState.CANCELED),
    "approve": _decision("approve", GprState.QUEUED),
    "evict": _decision("evict", GprState.CANCELED),
    "cordon": _node("cordon", cordoned_at=datetime(2026, 1, 1, tzinfo=UTC), cordon_reason="x"),
    "uncordon": _node("uncordon", cordoned_at=None),
    "enable": _cluster("enable", is_enabled=True),
    "disable": _cluster("disable", is_enabled=False),
    "maintenance": _maintenance,
    "kubeconfig": _kubeconfig,
}


@pytest.mark.parametrize("which", OVER)
def test_what_cannot_be_done_any_more_is_not_offered_and_says_why(which: str) -> None:
    world = make_world()
    url = OVER[which](world)
    admin = world.client("admin")

    page = text(admin.get(url), 409)
    main = page[page.index("<main") : page.index("</main")]
    dialog = text(admin.get(url, headers=HTMX))

    for markup in (main, dialog):
        assert "submit" not in markup  # nothing to send
        assert any(word in markup for word in ("any more", "already", "has ended"))
    assert 'class="btn" href="' in main  # the way back
    assert admin.post(url, {"version": "1", "why": "x", "extra": "1 min"}).status_code == (422 if which == "edit" else 409)


@pytest.mark.parametrize("act", ["priority", "move"])
def test_a_preview_is_asked_without_anything_in_the_address(act: str) -> None:
    """No log and no browser's history gets the token against forgery, or the reason."""
    world = make_world()
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    gpr = factories.gpr(world.foreign, world.people.outsider, name="waits")
    url, admin = f"/admin/queue/{gpr.pk}/{act}/", world.client("admin")

    assert 'formmethod="get"' not in text(admin.get(url))
    assert "hx-get" not in text(admin.get(url, headers=HTMX))
    shown = text(admin.post(url, {"version": gpr.version, "priority": "200", "to": "first", "why": "audit", "act": "preview"}))

    assert 'id="ask-effects"' in shown
    assert 'value="audit"' in shown
    gpr.refresh_from_db()
    assert gpr.priority == 101
