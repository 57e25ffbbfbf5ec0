"""An administrator whose token may only read sees everything, and is offered nothing that would be refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import PlatformRole, Scope, User
from accounts.people.services import user_create
from core.clock import db_now
from gpr.models import Gpr
from inventory.models import Cluster, Node
from journal.models import Event
from observability.prometheus.services import PrometheusChange, prometheus_change
from portal_shared.access import AUDITOR
from slices.models import Budget, Quota
from tests.builders import SHAPE
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

READ_ONLY = "Your access token may only read. Sign in with one that may write."
GPR_ACTS = [("waits", "priority"), ("waits", "reject"), ("held", "approve"), ("runs", "evict")]
NODE_ACTS = ["cordon", "uncordon", "replace", "force-release"]
CLUSTER_ACTS = ["join-token", "enable", "disable", "resume"]


@pytest.fixture
def reader(admin_world: AdminWorld) -> Client:
    return client_of(admin_world.people.admin, Scope.READ, Scope.ADMIN)


@pytest.fixture
def writer(admin_world: AdminWorld) -> Client:
    return client_of(admin_world.people.admin)


def node_of(admin_world: AdminWorld) -> Node:
    return admin_world.cluster.nodes.order_by("name")[0]


def act_urls(admin_world: AdminWorld) -> list[str]:
    gprs = [f"/admin/queue/{getattr(admin_world, which).pk}/{act}/" for which, act in GPR_ACTS]
    nodes = [f"/admin/inventory/{node_of(admin_world).pk}/{act}/" for act in NODE_ACTS]
    clusters = [f"/admin/clusters/{admin_world.cluster.pk}/{act}/" for act in CLUSTER_ACTS]
    quota, _ = Quota.objects.get_or_create(slice=admin_world.slice, shape=SHAPE, defaults={"created_at": db_now()})
    quotas = ["/admin/quotas/create/", f"/admin/quotas/{quota.pk}/", f"/admin/quotas/{quota.pk}/delete/"]
    budget, _ = Budget.objects.get_or_create(slice=admin_world.slice, defaults={"gpu_hours": 9, "period": "week", "created_at": db_now()})
    budgets = ["/admin/budgets/create/", f"/admin/budgets/{budget.pk}/", f"/admin/budgets/{budget.pk}/delete/"]
    return [*gprs, *nodes, *clusters, *quotas, *budgets]


def decided(admin_world: AdminWorld) -> set[str]:
    return {f"/admin/inventory/{node_of(admin_world).pk}/uncordon/", f"/admin/clusters/{admin_world.cluster.pk}/enable/"}


def books() -> list[Any]:
    rows = (
        Gpr.objects.order_by("pk"),
        Node.objects.order_by("pk"),
        Cluster.objects.order_by("pk"),
        Event.objects.exclude(kind="access.refused").order_by("pk"),
        Quota.objects.order_by("pk"),
        Budget.objects.order_by("pk"),
    )
    return [list(each.values()) for each in rows]


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_no_act_is_asked_or_done(headers: dict[str, str], admin_world: AdminWorld, reader: Client, writer: Client) -> None:
    Cluster.objects.update(rewound_at=db_now())
    urls, before = act_urls(admin_world), books()

    for url in urls:
        asked, sent = reader.get(url, headers=headers), reader.post(url, {"why": "x", "version": 1, "priority": 5}, headers=headers)
        assert (asked.status_code, sent.status_code) == (403, 403), url
        said = asked.headers["HX-Trigger"] if headers else asked.content.decode()
        assert READ_ONLY in said, url
        # A page whose question is decided already is refused; a dialog says so by itself.
        assert writer.get(url, headers=headers).status_code == (409 if url in decided(admin_world) and not headers else 200), url
    assert reader.post("/admin/clusters/", {"name": "new"}, headers=headers).status_code == 403
    assert books() == before


def test_pages_give_the_reason_in_the_place_of_acts(admin_world: AdminWorld, reader: Client, writer: Client) -> None:
    Cluster.objects.update(rewound_at=db_now())
    node = f"/admin/inventory/{node_of(admin_world).pk}/"
    inspected = [f"/admin/queue/{gpr.pk}/" for gpr in (admin_world.waits, admin_world.held, admin_world.runs)]
    offered = act_urls(admin_world)

    for path in (
        *inspected,
        node,
        "/admin/clusters/",
        "/admin/quotas/",
        "/admin/budgets/",
        "/admin/queue/",
        "/admin/inventory/",
        "/admin/schedule/",
    ):
        shown = reader.get(path).content.decode()
        assert [url for url in offered if url in shown] == [], path
        assert 'method="post" action="/admin/' not in shown, path
        assert (READ_ONLY in shown) == (path in {*inspected, node, "/admin/clusters/", "/admin/quotas/", "/admin/budgets/"}), path
        assert READ_ONLY not in writer.get(path).content.decode(), path
    assert READ_ONLY in reader.get(inspected[0], headers=HTMX).content.decode()


def test_an_auditor_reads_what_forms_would_change_and_is_told_that_an_auditor_changes_nothing(admin_world: AdminWorld) -> None:
    user_create(name="aud", role=PlatformRole.AUDITOR, now=db_now())
    auditor, cluster = client_of(User.objects.get(name="aud")), admin_world.cluster
    change = PrometheusChange(url="https://prometheus.example", auth="bearer", secret="hush-hush", beyond_s=86_400)
    prometheus_change(cluster=cluster, change=change, actor=admin_world.people.admin, now=db_now())

    clusters, aside = (auditor.get(path).content.decode() for path in ("/admin/clusters/", "/admin/remediation/"))
    assert "https://prometheus.example, beyond 1 d" in clusters
    assert "deleted after 30 s, by force after 2 min" in clusters
    assert "Reset the GPUs: after approval" in aside
    assert "hush-hush" not in clusters
    for url in (*act_urls(admin_world), f"/admin/clusters/{cluster.pk}/prometheus/", f"/admin/remediation/policies/{cluster.pk}/"):
        asked = auditor.get(url)
        assert asked.status_code == 403, url
        assert AUDITOR in asked.content.decode(), url


def test_who_may_write_is_offered_each_act_where_it_suits(admin_world: AdminWorld, writer: Client) -> None:
    Cluster.objects.update(rewound_at=db_now())
    offered = act_urls(admin_world)
    paths = [
        *(f"/admin/queue/{gpr.pk}/" for gpr in (admin_world.waits, admin_world.held, admin_world.runs)),
        "/admin/clusters/",
        "/admin/quotas/",
        "/admin/budgets/",
    ]
    paths.append(f"/admin/inventory/{node_of(admin_world).pk}/")

    shown = "".join(writer.get(path).content.decode() for path in paths)

    assert {url for url in offered if url not in shown} == decided(admin_world)
