"""Jobs on the pages: for members of the workspace alone, with what keeps each from its end."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest
from django.test import Client

from core.clock import db_now
from gpr.models import Job, JobLog
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


def test_a_page_lists_jobs_by_state(owner: Client, world: World) -> None:
    assert "egs run -n vision" in html.unescape(text(owner.get(PATH)))
    made(world, outcome="FAILED", finished_at=db_now(), message="Pod 1 ended with exit code 1.")

    assert "Pod 1 ended with exit code 1." in text(owner.get(PATH))
    assert "train" in text(owner.get(f"{PATH}?state=failed&part=list"))
    assert "There is no job in this state" in text(owner.get(f"{PATH}?state=succeeded"))


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
