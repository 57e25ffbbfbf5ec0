"""The rules and the dashboard in deploy/prometheus/ name only metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from core.clock import db_now
from egs.metrics import scrape
from gpr.models import AllocatorRecord, PromiseMove
from tests import factories
from tests.observability.telemetry.saying import gpus_of, reading, store

FOLDER = Path(settings.BASE_DIR) / "deploy" / "prometheus"
RULES, DASHBOARD = FOLDER / "rules.yaml", FOLDER / "grafana.json"
NAME = re.compile(r"\begs_[a-z_]+")


def expressions() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return rules + [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


@pytest.mark.django_db
def test_every_metric_that_they_name_stands_in_a_scrape() -> None:
    owner, now = factories.user("owner"), db_now()
    cluster = factories.cluster("aurora", nodes=1)
    gpr = factories.active(factories.make_slice(cluster, owner=owner), owner)
    gpu = gpus_of(cluster.nodes.get())[0]
    store(cluster, reading(gpu, at=now, temperature_c=50, power_w=300, utilization_percent=40), now=now)
    PromiseMove.objects.create(gpr=gpr, at=now, old_start_at=now, new_start_at=now + timedelta(hours=1), cause="overrun")
    assert AllocatorRecord.objects.exists()
    there = {sample.name for family in text_string_to_metric_families(scrape().decode()) for sample in family.samples}
    counted = {"egs_http_requests_total", "egs_http_request_duration_seconds_bucket"}  # once a request was answered

    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(named) > 10
    assert named <= there | counted


def test_the_rules_are_what_prometheus_takes() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "rules", str(RULES)], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
