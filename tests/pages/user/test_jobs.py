"""Jobs on the pages: for members of the workspace alone, with what keeps each from its end."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest
from django.test import Client

from core.clock import db_now
from gpr.jobs.selectors import objects_name
from gpr.models import Job, JobLog
from observability.workloads.models import Pod, Workload
from protocol.tenancy.workloads import WorkloadPhase
from tests import factories
from tests.pages.user_world import World, client_of, text

pytestmark = [pytest.mark.django_db]
PATH = "/workspaces/vision/jobs/"


def made(world: World, **changes: object) -> Job:
    gpr = factories.active(world.slice, world.people.owner, name="train", nodes=2, model={"name": "llama"})
    fields = {"image": "registry.example/train:1", "command": ["torchrun", "my train.py"], "env": {"LR": "secret-rate"}, **changes}
    return Job.objects.create(gpr=gpr, created_at=db_now(), **fields)


def test_a_page_shows_a_job_s_state_its_pods_reasons_and_output(owner: Client, world: World) -> None:
    job = made(world, phase=WorkloadPhase.PENDING, seen_run=1, message="1 of 2 pods run. Image cannot be pulled.", pods_running=1)
    JobLog.objects.create(job=job, rank=1, run=1, text="loss <0.1>\n", wanted_until_at=db_now() + timedelta(hours=1))

    shown = text(owner.get(f"/jobs/{job.pk}/?rank=1"))

    said = html.unescape(shown)
    assert "1 of 2 pods run. Image cannot be pulled." in said
    assert "loss &lt;0.1&gt;" in shown
    assert "torchrun 'my train.py'" in said
    assert "secret-rate" not in said, "variables are named only"
    assert f'href="/gprs/{job.gpr_id}/release/"' in shown
    assert f'href="/jobs/{job.pk}/"' in text(owner.get(f"/gprs/{job.gpr_id}/"))


def test_a_page_shows_what_keeps_each_pod_from_starting_and_no_other_s(owner: Client, world: World) -> None:
    job = made(world)
    gpr, at = job.gpr, db_now()
    workload = Workload.objects.create(
        slice=gpr.slice, cluster=world.cluster, namespace="train", uid="w", kind="Job", name=objects_name("train", job.pk, 1), created_at=at
    )
    given = {"workload": workload, "cluster": world.cluster, "created_at": at}
    Pod.objects.create(uid="1", name="train-0", rank=0, phase="Running", gpr=gpr, node="aurora-0", **given)
    Pod.objects.create(uid="2", name="train-1", rank=1, phase="Pending", hold="image", why="ImagePullBackOff: no such image.", **given)
    theirs = Workload.objects.create(
        slice=world.foreign, cluster=world.cluster, namespace="x", uid="w", kind="Job", name=workload.name, created_at=at
    )
    Pod.objects.create(uid="3", name="canary-pod", phase="Pending", **{**given, "workload": theirs})

    shown = html.unescape(text(owner.get(f"/jobs/{job.pk}/?part=now")))

    assert "ImagePullBackOff: no such image." in shown
    assert "aurora-0" in shown
    assert "canary-pod" not in shown


def test_a_page_lists_jobs_by_state(owner: Client, world: World) -> None:
    assert "egs run -n vision" in html.unescape(text(owner.get(PATH)))
    made(world, outcome="FAILED", finished_at=db_now(), message="Pod 1 ended with exit code 1.")

    assert "Pod 1 ended with exit code 1." in text(owner.get(PATH))
    assert "train" in text(owner.get(f"{PATH}?state=failed&part=list"))
    assert "There is no job in this state" in text(owner.get(f"{PATH}?state=succeeded"))


def test_a_job_that_waits_tells_when_it_is_promised(owner: Client, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, name="later")
    job = Job.objects.create(gpr=gpr, created_at=db_now(), image="a/b:1")

    shown = text(owner.get(f"/jobs/{job.pk}/?part=now"))

    assert "<dt>Promised by</dt>" in shown
    assert gpr.promise.promised_start_at.isoformat(timespec="seconds")[:16] in shown


def test_others_see_nothing_of_it_and_viewers_cannot_stop_it(world: World) -> None:
    job = made(world)
    outsider, teammate = client_of(world.people.outsider), client_of(world.people.teammate)

    assert [outsider.get(path).status_code for path in (PATH, f"/jobs/{job.pk}/", f"/jobs/{job.pk}/?part=log")] == [404, 404, 404]
    shown = text(teammate.get(f"/jobs/{job.pk}/"))
    assert "torchrun" in shown
    assert "/release/" not in shown


def test_a_pod_that_is_not_there_is_told(owner: Client, world: World) -> None:
    job = made(world)

    for rank in ("2", "x", "-1"):
        assert owner.get(f"/jobs/{job.pk}/?rank={rank}").status_code == 400
