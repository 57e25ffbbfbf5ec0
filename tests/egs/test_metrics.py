"""Prometheus and administrators read metrics; others may not."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network

import httpx
import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from accounts.models import Scope
from core.clock import db_now
from core.db_threads import in_db_thread
from egs.metrics import scrape
from gpr.allocation.allocator import tick
from gpr.models import Gpr, GprState, Promise
from inventory.models import AgentSession, Node
from protocol.agents.sync import SYNC_PATH
from tests import factories
from tests.egs.conftest import Connect
from tests.observability.telemetry.saying import gpus_of, reading, store

Sample = tuple[str, frozenset[tuple[str, str]]]


def read(text: str | bytes) -> dict[Sample, float]:
    """Reads as Prometheus would; a text that it could not read fails here. The label `process` is left out."""
    families = text_string_to_metric_families(text if isinstance(text, str) else text.decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset((k, v) for k, v in sample.labels.items() if k != "process")): sample.value for sample in samples}


def value(samples: dict[Sample, float], name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


# -- what stands in it ---------------------------------------------------------------------------------------------------


@pytest.mark.both_databases
@pytest.mark.django_db
def test_a_scrape_tells_of_the_queue_the_nodes_the_agents_and_the_ticks() -> None:
    owner = factories.user("owner")
    heard, silent = factories.cluster("heard", nodes=3), factories.cluster("silent", nodes=1)
    AgentSession.objects.filter(cluster=silent).update(last_sync_at=timezone.now() - timedelta(hours=1))
    Node.objects.filter(name="heard-2").update(cordoned_at=timezone.now())
    factories.started(factories.make_slice(heard, owner=owner), owner, nodes=2)
    waiting = factories.gpr(factories.make_slice(heard, owner=owner), owner, nodes=2)
    Gpr.objects.filter(pk=waiting.pk).update(queued_at=timezone.now() - timedelta(minutes=10))

    samples = read(scrape())

    assert value(samples, "egs_database_up") == 1
    assert value(samples, "egs_gprs", state="PROVISIONING") == 1
    assert value(samples, "egs_gprs", state="QUEUED") == value(samples, "egs_queue_length") == 1
    assert {dict(labels)["state"] for name, labels in samples if name == "egs_gprs"} == set(GprState.values)
    assert 600 <= value(samples, "egs_queue_oldest_wait_seconds") < 1200
    assert value(samples, "egs_nodes", availability="held") == 2
    assert value(samples, "egs_nodes", availability="unusable") == 2
    assert value(samples, "egs_nodes", availability="free") == 0
    assert value(samples, "egs_agents", state="heard") == value(samples, "egs_agents", state="silent") == 1
    assert value(samples, "egs_gpus", state="held") + value(samples, "egs_gpus", state="not_held") > 0
    assert value(samples, "egs_ticks_total") == 1
    assert 0 <= value(samples, "egs_last_tick_age_seconds") < 600
    assert value(samples, "egs_last_tick_duration_seconds") > 0


@pytest.mark.both_databases
@pytest.mark.django_db
def test_each_start_counts_once_as_kept_or_late() -> None:
    owner, there = factories.user("owner"), factories.cluster("c", nodes=2)
    factories.started(factories.make_slice(there, owner=owner), owner, nodes=1)
    late = factories.gpr(factories.make_slice(there, owner=owner), owner, nodes=1)
    Promise.objects.filter(gpr=late).update(first_promised_start_at=timezone.now() - timedelta(minutes=2))

    tick()
    tick()

    samples = read(scrape())
    assert value(samples, "egs_promises_total", outcome="kept") == 1
    assert value(samples, "egs_promises_total", outcome="late") == 1


@pytest.mark.django_db
def test_an_empty_platform_can_be_scraped_before_the_first_tick() -> None:
    samples = read(scrape())

    assert value(samples, "egs_queue_oldest_wait_seconds") == 0
    assert not any(name == "egs_last_tick_age_seconds" for name, _ in samples)


@pytest.mark.django_db
def test_a_scrape_costs_the_same_queries_for_any_number_of_gprs_and_nodes() -> None:
    owner = factories.user("owner")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            scrape()
        return len(captured)

    factories.gpr(factories.make_slice(factories.cluster("one", nodes=1), owner=owner), owner)
    few = queries()
    for name in ("two", "three"):
        there = factories.cluster(name, nodes=5)
        for _ in range(3):
            factories.gpr(factories.make_slice(there, owner=owner), owner)

    assert queries() == few <= 17  # on PostgreSQL five of them ask for the time


# -- who may read it -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
async def test_the_metrics_are_read_from_this_machine_or_an_allowed_network_alone(connect_from: Connect, settings: Settings) -> None:
    assert (await connect_from("127.0.0.1").get("/metrics")).status_code == 200
    assert (await connect_from("10.1.2.3").get("/metrics")).status_code == 401

    settings.EGS_METRICS_ALLOW = [ip_network("10.1.0.0/16")]

    assert (await connect_from("10.1.2.3").get("/metrics")).status_code == 200
    assert (await connect_from("127.0.0.1").get("/metrics")).status_code == 401


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via"])
async def test_a_proxy_on_this_machine_does_not_make_its_callers_local(header: str, local: httpx.AsyncClient) -> None:
    assert (await local.get("/metrics", headers={header: "127.0.0.1"})).status_code == 401


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("is_admin", "scopes", "status"),
    [(True, [Scope.READ], 200), (True, [Scope.ADMIN], 200), (False, [Scope.READ, Scope.WRITE], 403)],
)
async def test_from_elsewhere_an_administrators_token_reads_the_metrics_and_no_other(
    is_admin: bool, scopes: list[Scope], status: int, connect_from: Connect
) -> None:
    secret = await in_db_thread(lambda: factories.token(factories.user("somebody", is_admin=is_admin), *scopes))

    answer = await connect_from("10.1.2.3").get("/metrics", headers={"Authorization": f"Bearer {secret}"})

    assert answer.status_code == status
    assert ("egs_gprs" in answer.text) == (status == 200)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic cm9vdDpyb290"}])
async def test_who_is_not_known_is_told_how_to_be(header: dict[str, str], connect_from: Connect) -> None:
    answer = await connect_from("10.1.2.3").get("/metrics", headers=header)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "not_authenticated"


# -- what a process counts -----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
async def test_requests_count_by_route_method_and_status_and_bear_no_id_in_a_label(local: httpx.AsyncClient) -> None:
    host = {"Host": django_settings.ALLOWED_HOSTS[0]}

    async def counts() -> dict[Sample, float]:
        return read((await local.get("/metrics")).text)

    before = await counts()
    for id_ in ("6f1c1ad6-5f5a-4f0e-9d38-3a3a4f9f0001", "6f1c1ad6-5f5a-4f0e-9d38-3a3a4f9f0002"):
        assert (await local.get(f"/api/v1/gprs/{id_}/", headers=host)).status_code == 401
    await local.request("BREW", "/no/such/address", headers=host)
    await local.post(SYNC_PATH)
    after = await counts()

    def gained(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return after[key] - before.get(key, 0)

    assert gained("egs_http_requests_total", route="api:gpr-detail", method="GET", status="401") == 2
    assert gained("egs_http_request_duration_seconds_count", route="api:gpr-detail", method="GET") == 2
    assert gained("egs_http_requests_total", route="other", method="other", status="404") == 1
    assert gained("egs_agent_syncs_total", status="401") == 1
    assert not any("6f1c1ad6" in text for _, labels in after for pair in labels for text in pair)
    assert not any("/healthz" in text or "metrics" in text for _, labels in after for pair in labels for text in pair)


@pytest.mark.django_db
def test_what_a_process_counts_is_told_apart_from_its_siblings() -> None:
    families = text_string_to_metric_families(scrape().decode())
    own = [sample for family in families for sample in family.samples if family.name.startswith(("egs_http", "egs_agent_syncs"))]

    assert all(sample.labels["process"] for sample in own)


@pytest.mark.django_db
def test_a_scrape_tells_what_the_gpus_do() -> None:
    owner, there = factories.user("owner"), factories.cluster("c", nodes=2)
    node = factories.held(factories.active(factories.make_slice(there, owner=owner), owner, nodes=1))[0].node
    now = db_now()
    store(there, *(reading(gpu, at=now, utilization_percent=80, power_w=500, temperature_c=70) for gpu in gpus_of(node)))

    samples = read(scrape())

    assert value(samples, "egs_gpus", state="held") == value(samples, "egs_gpus", state="not_held") == value(samples, "egs_gpus_read") == 8
    assert value(samples, "egs_gpu_power_watts") == 4000
    assert value(samples, "egs_gpu_hottest_celsius") == 70
    assert value(samples, "egs_gpu_held_utilization_percent") == 80
