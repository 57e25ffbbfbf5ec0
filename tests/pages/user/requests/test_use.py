"""The page of a request shows how to use its box. tests/kube/tenancy/test_members.py proves that Kubernetes takes the Job."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from typing import Any

import pytest
import yaml

from core.clock import db_now
from gpr.models import Gpr
from inventory.models import Cluster
from portal_user.pages.requests.job import job_name
from protocol import cluster_names
from slices.models import Namespace
from tests import factories
from tests.pages.user_world import World, make_world, text
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def built_world(module_db: None) -> World:
    made = make_world()
    ready_namespace(made.slice, made.cluster, at=db_now(), name="vision-train")
    return made


@pytest.fixture
def runs(world: World) -> Gpr:
    return factories.active(world.slice, world.people.owner, name="Train_7", nodes=2)


def use(world: World, gpr: Gpr, persona: str = "owner") -> str:
    return re.sub(r"\s+", " ", unescape(text(world.client(persona).get(f"/gprs/{gpr.pk}/", {"part": "use"}))))


def job_of(world: World, gpr: Gpr) -> Any:
    *_, job = yaml.safe_load_all(world.client("owner").get(f"/gprs/{gpr.pk}/job.yaml").content)
    return job


def test_a_box_that_is_open_says_how_to_use_it(world: World, runs: Gpr) -> None:
    shown = use(world, runs)

    assert "Use it now" in shown
    assert "vision-train in aurora" in shown
    assert "/workspaces/vision/access/new/?cluster=aurora" in shown
    assert "egs gpr extend Train_7 1h egs gpr release Train_7" in shown
    file = world.client("owner").get(f"/gprs/{runs.pk}/job.yaml")
    assert file["Content-Disposition"] == 'attachment; filename="train-7.yaml"'
    assert re.sub(r"\s+", " ", file.content.decode()).strip() in shown


def test_its_job_has_a_pod_on_each_node_and_all_gpus_there(world: World, runs: Gpr) -> None:
    job = job_of(world, runs)

    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == ("train-7", "vision-train")
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 2)
    assert container["resources"] == {"limits": {cluster_names.GPU: 8}}


@pytest.mark.rotates
def test_a_part_of_a_node_asks_for_cpu_and_memory_too(world: World) -> None:
    part = factories.gpr(world.slice, world.people.owner, name="part", nodes=1, gpus_per_node=2)

    job = job_of(world, part)

    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {cluster_names.GPU: 2}
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "parallelism" not in job["spec"]


def test_one_that_waits_says_so_and_offers_no_release(world: World, runs: Gpr) -> None:
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)

    shown = use(world, waits)

    assert "Use it when it starts" in shown
    assert "Pods may be made now: they wait for it." in shown
    assert "egs gpr watch waits egs run --in waits" in shown
    assert "-- COMMAND egs gpr cancel waits" in shown
    assert "release" not in shown


@pytest.mark.rotates
def test_of_several_clusters_the_job_is_for_the_one_where_it_is_planned(world: World) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(is_enabled=False)
    other = factories.cluster("borealis", nodes=2)
    world.slice.clusters.add(other)
    ready_namespace(world.slice, other, at=db_now(), name="vision-there")
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)

    assert job_of(world, waits)["metadata"]["namespace"] == "vision-there"


def test_each_gets_the_commands_that_he_may_use(world: World, runs: Gpr) -> None:
    """A viewer looks. An administrator who is no member gets no kubeconfig."""
    viewer, admin = use(world, runs, "teammate"), use(world, runs, "admin")

    assert ["egs gpr show Train_7" in shown for shown in (viewer, admin)] == [True, True]
    assert ["egs kubeconfig" in shown for shown in (viewer, admin)] == [True, False]
    assert ["egs gpr release" in shown for shown in (viewer, admin)] == [False, True]
    assert ["kubectl --kubeconfig" in shown for shown in (viewer, admin)] == [False, False]
    assert world.client("outsider").get(f"/gprs/{runs.pk}/job.yaml").status_code == 404


def test_without_a_namespace_it_says_what_is_missing(world: World, runs: Gpr) -> None:
    Namespace.objects.all().delete()

    shown = use(world, runs)

    assert "none is ready, so no pod can use it." in shown
    assert "Job that fits" not in shown
    assert world.client("owner").get(f"/gprs/{runs.pk}/job.yaml").status_code == 404


@pytest.mark.rotates
def test_one_that_has_ended_is_of_no_use(world: World, runs: Gpr) -> None:
    Gpr.objects.filter(pk=runs.pk).update(state="EXITING")

    assert "Use it" not in use(world, runs)
    assert world.client("owner").get(f"/gprs/{runs.pk}/job.yaml").status_code == 404


@pytest.mark.parametrize(
    ("name", "made"),
    [("Train_7", "train-7"), ("7b", "job-7b"), ("a.B--c", "a-b-c"), ("x" * 49 + "-yz", "x" * 49), ("9" * 63, f"job-{'9' * 46}")],
)
def test_any_name_of_a_request_gives_a_name_of_a_job(name: str, made: str) -> None:
    assert job_name(name) == made


def test_each_command_is_one_of_egs(world: World, runs: Gpr) -> None:
    """Its help answers to the words before the options."""
    lines = re.findall(r"egs (gpr \w+|kubeconfig)", use(world, runs))

    assert len(lines) == 4
    for line in lines:
        done = subprocess.run([sys.executable, "-m", "egs_client", *line.split(), "--help"], capture_output=True, check=False)
        assert done.returncode == 0, line
