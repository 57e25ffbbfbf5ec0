"""The rules and the dashboard in deploy/prometheus/ name only metrics that there are, and a real Prometheus takes them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import uvicorn
import yaml
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from core.clock import db_now
from core.db_threads import in_db_thread
from egs.asgi import application
from egs.metrics import scrape
from gpr.models import AllocatorRecord, PromiseMove
from tests import factories
from tests.e2e.processes import program
from tests.observability.telemetry.prometheus import OwnPrometheus
from tests.observability.telemetry.saying import gpus_of, reading, store

FOLDER = Path(settings.BASE_DIR) / "deploy" / "prometheus"
RULES, DASHBOARD = FOLDER / "rules.yaml", FOLDER / "grafana.json"
NAME = re.compile(r"\begs_[a-z_]+")


def expressions() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return rules + dashboard_expressions()


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


@pytest.mark.django_db
def test_every_metric_that_they_name_stands_in_a_scrape() -> None:
    _platform_at_work()
    there = {sample.name for family in text_string_to_metric_families(scrape().decode()) for sample in family.samples}
    counted = {"egs_http_requests_total", "egs_http_request_duration_seconds_bucket"}  # once a request was answered

    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(named) > 10
    assert named <= there | counted


def test_prometheus_takes_the_rules_and_each_fires_in_trouble_alone(tmp_path: Path) -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
    shutil.copy(RULES, tmp_path)
    shutil.copy(Path(__file__).with_name("prometheus_rules.yaml"), tmp_path)
    for arguments in (["check", "rules", "--lint-fatal", "rules.yaml"], ["test", "rules", "prometheus_rules.yaml"]):
        done = subprocess.run(
            [program("promtool", package="prometheus"), *arguments], cwd=tmp_path, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rotates
@pytest.mark.xdist_group("prometheus")
@pytest.mark.django_db(transaction=True)
async def test_each_chart_of_the_dashboard_shows_what_a_real_prometheus_scraped_from_egs(tmp_path: Path) -> None:
    await in_db_thread(_platform_at_work)
    server = uvicorn.Server(uvicorn.Config(application, port=0, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    prometheus = OwnPrometheus(tmp_path, scrapes={"egs": port})
    await asyncio.to_thread(prometheus.start)
    try:
        waiting = dashboard_expressions()
        until_mono = time.monotonic() + 60
        while waiting and time.monotonic() < until_mono:
            await asyncio.to_thread(httpx.get, f"http://127.0.0.1:{port}/login/")
            await asyncio.sleep(0.5)
            waiting = [each for each in waiting if not await asyncio.to_thread(_has_a_number, prometheus, each)]
        assert waiting == []
        assert (await asyncio.to_thread(prometheus.query, 'egs_gpus{state="held"}'))[0]["value"][1] == "8"
    finally:
        prometheus.stop()
        server.should_exit = True
        await serving


def _has_a_number(prometheus: OwnPrometheus, expression: str) -> bool:
    found = prometheus.query(expression)
    return bool(found) and all(series["value"][1] != "NaN" for series in found)


def _platform_at_work() -> None:
    owner, now = factories.user("owner"), db_now()
    cluster = factories.cluster("aurora", nodes=1)
    gpr = factories.active(factories.make_slice(cluster, owner=owner), owner)
    gpu = gpus_of(cluster.nodes.get())[0]
    store(cluster, reading(gpu, at=now, temperature_c=50, power_w=300, utilization_percent=40), now=now)
    PromiseMove.objects.create(gpr=gpr, at=now, old_start_at=now, new_start_at=now + timedelta(hours=1), cause="overrun")
    assert AllocatorRecord.objects.exists()
