"""Workloads, one workload and pods, in both portals; and what stands of them on the page of a request."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr
from observability.workloads.measuring import workloads_step
from observability.workloads.models import Workload
from observability.workloads.selectors import gpus_of
from slices.models import Slice
from tests.observability.telemetry.saying import reading, store
from tests.observability.workloads.saying import GATED, JOB, pods_of, seen, tell
from tests.pages.admin_world import QUERIES_MAX, AdminWorld
from tests.pages.user_world import client_of
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db

LISTS = {"admin": ("/admin/workloads/", "/admin/pods/"), "user": ("/workloads/", "/pods/")}


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return re.sub(r"\s+", " ", response.content.decode())


def names(markup: str) -> list[str]:
    return re.findall(r'<(?:a|span) class="strong"(?: href="[^"]*")?>([^<]+)</', markup)


def workload_of(world: AdminWorld) -> Workload:
    """Makes the workload of the box `runs`: it trains, one of its GPUs is slow and hot, and a pod beside it has no image.

    A stranger's workload serves.
    """
    ready_namespace(world.slice, world.cluster, at=db_now(), name="vision-train")
    ready_namespace(Slice.objects.get(name="speech"), world.cluster, at=db_now(), name="speech-ns")
    arguments = ("torchrun", "--nnodes", "2", "train.py", "--model", "llama", "--hf-token", "(hidden)")
    pods = pods_of(world.runs, "vision-train", image="nvcr.io/nvidia/nemo:1", arguments=arguments, requests={"nvidia.com/gpu": "8"})
    no_image = {"hold": "image", "why": "The image of container main cannot be pulled (ErrImagePull).", "phase": "Pending"}
    late = seen("lacks", "vision-train", owners=(JOB,), gpr_id=str(world.runs.pk), node="aurora-0", **no_image)
    tell(world.cluster, *pods, late, seen("waits", "vision-train", owners=(JOB,), **GATED))
    tell(world.cluster, seen("theirs", "speech-ns", owners=(), model="whisper", **GATED))
    found = Workload.objects.get(name="train")
    gpus, now = [gpu.gpu for gpu in gpus_of([found])[found.pk]], db_now()
    for step in range(9):
        at = now + timedelta(seconds=15 * step - 120)
        if at < max(row.starts_at for gpu in gpus for row in gpu.reserved.all()):
            at = now + timedelta(seconds=step / 10)
        store(world.cluster, *(reading(gpu, at=at, **told(gpu.index, gpu.node.name)) for gpu in gpus), now=at)
    workloads_step(now=now)
    Workload.objects.filter(pk=found.pk).update(behind={str(gpus[3].pk): (now - timedelta(minutes=3)).isoformat()}, straggler_count=1)
    return found


def told(index: int, node: str) -> dict[str, float]:
    is_slow = (index, node) == (3, "aurora-0")
    return {"temperature_c": 88 if is_slow else 60 + index, "utilization_percent": 62 if is_slow else 96, "power_w": 400 + 10 * index}


@pytest.fixture
def workload(admin_world: AdminWorld) -> Workload:
    return workload_of(admin_world)


@pytest.fixture
def owner(admin_world: AdminWorld) -> Client:
    return client_of(admin_world.people.owner)


def test_lists_show_each_reader_what_he_may_see(admin_world: AdminWorld, workload: Workload, admin: Client, owner: Client) -> None:
    workloads, pods = LISTS["user"]
    assert sorted(names(text(owner.get(workloads)))) == ["train", "train-worker"]
    assert sorted(names(text(owner.get(pods)))) == ["lacks", "runs-0", "runs-1", "waits"]
    assert names(text(client_of(admin_world.people.outsider).get(workloads))) == ["theirs"]
    assert sorted(names(text(admin.get(LISTS["admin"][0])))) == ["theirs", "train", "train-worker"]
    for page in (workloads, pods):
        for search in ("theirs", "whisper", "speech"):
            shown = text(owner.get(page, {"q": search}))
            assert names(shown) == []
        assert "whisper" not in text(owner.get(page))
        assert owner.get(f"/admin{page}").status_code == 404


def test_a_row_says_what_a_workload_has_and_what_is_wrong(workload: Workload, owner: Client) -> None:
    shown = text(owner.get("/workloads/"))

    assert "JobSet in vision-train" in shown
    assert "llama" in shown
    assert "NeMo" in shown
    assert "1 straggler" in shown
    assert ">runs</a>" in shown
    assert names(text(owner.get("/workloads/", {"view": "straggling"}))) == ["train"]
    assert names(text(owner.get("/workloads/", {"kind": "Job", "cluster": "aurora"}))) == ["train-worker"]
    assert "No workloads match" in text(owner.get("/workloads/", {"q": "nothing"}))
    assert "No workloads here" in text(owner.get("/workloads/", {"view": "ended"}))
    assert owner.get("/workloads/", {"view": "wrong"}).status_code == 400


def test_its_page_names_the_straggler_the_hottest_gpu_and_its_configuration(workload: Workload, owner: Client) -> None:
    shown = text(owner.get(f"/workloads/{workload.pk}/"))

    assert "aurora-0, GPU 3</a>, runs-0 (worker 0), behind its peers" in shown
    assert re.search(r"Hottest GPU</dt> <dd.*?88 °C", shown)
    assert re.search(r"Highest power</dt> <dd.*?470 W", shown)
    assert '<span class="heat-cell heat-8">88 °C</span>' in shown
    assert "nodes 2" in shown
    assert "--hf-token (hidden)" in shown
    assert "Busy" in shown  # the phase
    assert 'data-longest="45"' in shown  # the line breaks where there were no readings
    first_by_use = text(owner.get(f"/workloads/{workload.pk}/", {"sort": "use"})).split('aria-label="Table of GPUs"')[1]
    assert re.findall(r"GPU (\d)</span>", first_by_use)[0] == "3"


def test_nobody_else_finds_its_page_and_a_choice_that_is_not_there_is_refused(
    admin_world: AdminWorld, workload: Workload, admin: Client, owner: Client
) -> None:
    assert client_of(admin_world.people.outsider).get(f"/workloads/{workload.pk}/").status_code == 404
    assert owner.get(f"/admin/workloads/{workload.pk}/").status_code == 404
    assert admin.get(f"/admin/workloads/{workload.pk}/").status_code == 200
    assert owner.get(f"/workloads/{workload.pk}/", {"range": "99y"}).status_code == 400


def test_a_pod_says_what_keeps_it_from_running(workload: Workload, owner: Client) -> None:
    shown = text(owner.get("/pods/", {"view": "held-back"}))

    assert sorted(names(shown)) == ["lacks", "waits"]
    assert "cannot be pulled (ErrImagePull)" in shown
    assert "No image" in shown
    assert f"Those of JobSet {workload.name}" in text(owner.get("/pods/", {"workload": str(workload.pk)}))


def test_the_page_of_a_request_counts_its_pods_and_says_what_keeps_each_from_running(
    admin_world: AdminWorld, workload: Workload, owner: Client
) -> None:
    runs: Gpr = admin_world.runs
    shown = text(owner.get(f"/gprs/{runs.pk}/", {"part": "use"}))

    assert "2 pods with 16 GPUs in its box" in shown
    assert "lacks. The image of container main cannot be pulled (ErrImagePull)." in shown
    assert f'href="/workloads/{workload.pk}/"' in shown


def test_a_silent_cluster_is_said(admin_world: AdminWorld, workload: Workload, owner: Client) -> None:
    admin_world.cluster.agent.last_sync_at = db_now() - timedelta(minutes=5)
    admin_world.cluster.agent.save()

    assert "aurora is silent" in text(owner.get("/workloads/"))
    assert "This is the last report." in text(owner.get(f"/workloads/{workload.pk}/"))


@pytest.mark.parametrize("path", ["/workloads/", "/pods/", "/workloads/{pk}/"])
def test_pages_cost_few_queries(path: str, workload: Workload, owner: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        owner.get(path.format(pk=workload.pk))

    assert len(queries) <= QUERIES_MAX + 2, [each["sql"][:90] for each in queries]
