"""A notebook is a job of one node with a token, which its owner alone gets."""

from __future__ import annotations

from typing import Any

import pytest

from core.clock import db_now
from core.vault import decrypt
from gpr.jobs.logs import log_read
from gpr.jobs.services import notebook_open, tokens_rotate
from gpr.jobs.spec import JobSpec
from gpr.models import Job, JobLog, JobState
from inventory.models import AgentSession
from journal.models import Event, Outbox
from protocol.tenancy.workloads import WorkloadPhase, WorkloadSeen
from slices.models import Role
from slices.services import member_set
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.jobs.stage import IMAGE, JobStage

pytestmark = pytest.mark.both_databases
WHAT = JobSpec(kind="Notebook", image=IMAGE)
URL = "https://lab.nb.example.org/"


@pytest.fixture
def notebook(job: dict[str, Any]) -> dict[str, Any]:
    """The body of one that the API takes."""
    return {**{name: job[name] for name in ("slice", "shape", "duration_s", "image")}, "name": "lab", "gpus_per_node": 1}


def runs(stage: JobStage, *, run: int = 1, url: str = "", what: JobSpec = WHAT) -> Job:
    job = stage.opened(name="lab", what=what)
    sees(stage, job, run=run, url=url)
    return job


def sees(stage: JobStage, job: Job, *, run: int = 1, url: str = "") -> None:
    seen = WorkloadSeen(id=str(job.pk), run=run, phase=WorkloadPhase.RUNNING, pods_running=1, namespace="train", url=url)
    stage.agent.sync(at=stage.now, workloads_seen=(seen,))


def test_a_notebook_is_a_job_of_one_node_in_a_list_of_its_own(owner: Caller, notebook: dict[str, Any], job: dict[str, Any]) -> None:
    made = owner.post("notebooks/", {**notebook, "volumes": {"home": "/home/jovyan"}})
    owner.post("jobs/", job)

    assert made.status_code == 201, made.content
    assert (made.json()["kind"], made.json()["nodes"], made.json()["state"]) == ("Notebook", 1, "WAITING")
    assert [row["name"] for row in owner.get("notebooks/").json()["results"]] == ["lab"]
    assert [row["name"] for row in owner.get("jobs/", kind="Notebook").json()["results"]] == ["lab"]
    assert_problem(owner.get("notebooks/train/"), 404, "not_found")
    assert faults(owner.post("notebooks/", {**notebook, "nodes": 2})) == ["nodes"]
    assert owner.post("notebooks/lab/cancel/").json()["state"] == "STOPPED"


def test_an_agent_that_makes_no_notebooks_is_asked_for_none(owner: Caller, world: World, notebook: dict[str, Any]) -> None:
    AgentSession.objects.filter(cluster=world.cluster).update(workload_kinds=["Job"])

    assert "upgraded" in assert_problem(owner.post("notebooks/", notebook), 400, "invalid_input")["errors"]["kind"][0]


def test_the_agent_gets_the_token_and_the_owner_the_same_each_time(stage: JobStage) -> None:
    job = runs(stage)
    (work,) = stage.workloads() or ()

    access = notebook_open(job=stage.now_of(job), actor=stage.owner, now=stage.now)

    assert access.token == work.token
    assert len(work.token) > 40
    assert (access.namespace, access.service, access.url, access.port) == ("train", work.name, "", 8888)


def test_a_notebook_behind_an_ingress_has_the_address_that_its_agent_told(stage: JobStage) -> None:
    job = runs(stage, url=URL)

    assert notebook_open(job=stage.now_of(job), actor=stage.owner, now=stage.now).url == URL


def test_no_other_person_gets_the_token_whatever_their_role(
    owner: Caller, teammate: Caller, outsider: Caller, admin: Caller, world: World, notebook: dict[str, Any]
) -> None:
    made = owner.post("notebooks/", notebook).json()
    member_set(slice_=world.slice, user=world.people.teammate, role=Role.OWNER, actor=None, now=db_now())
    token = decrypt(Job.objects.get(pk=made["id"]).token_sealed)

    assert_problem(owner.post("notebooks/lab/open/"), 409, "wrong_state")
    for caller, code in ((teammate, 403), (admin, 403), (outsider, 404)):
        assert caller.post(f"notebooks/{made['id']}/open/").status_code == code
    for caller in (owner, teammate, admin):
        for path in ("notebooks/", "notebooks/lab/", "jobs/lab/", "gprs/", "events/", "notices/"):
            assert token not in caller.get(path).content.decode()


def test_its_token_is_stored_encrypted_and_stands_in_no_event_notice_or_output(stage: JobStage) -> None:
    job = runs(stage)
    access = notebook_open(job=stage.now_of(job), actor=stage.owner, now=stage.now)
    stage.prints(job, f"http://lab:8888/lab?token={access.token}\n", until="t1")

    row = Job.objects.get()
    assert row.token_sealed
    assert access.token not in row.token_sealed
    assert decrypt(row.token_sealed) == access.token
    assert "?token=[token]" in log_read(job=stage.now_of(job), rank=0, since=None, now=stage.now).text
    assert access.token not in JobLog.objects.get().text
    assert access.token not in str(list(Event.objects.values())) + str(list(Outbox.objects.values()))
    assert Event.objects.filter(kind="job.opened", actor=stage.owner).count() == 1
    assert tokens_rotate() == (1, 0)


def test_an_evicted_notebook_comes_back_with_its_token_and_its_home(stage: JobStage) -> None:
    job = runs(stage, what=JobSpec(kind="Notebook", image=IMAGE, volumes={"home": "/home/jovyan"}))
    (before,) = stage.workloads() or ()

    stage.leave_and_return(job)
    (after,) = stage.workloads() or ()
    assert (after.run, after.token, after.volumes) == (2, before.token, before.volumes)
    assert after.name != before.name
    assert stage.now_of(job).state == JobState.STARTING
    sees(stage, job, run=2)
    assert notebook_open(job=stage.now_of(job), actor=stage.owner, now=stage.now).service == after.name


def test_a_notebook_whose_server_was_shut_down_gives_its_gpus_back(stage: JobStage) -> None:
    job = runs(stage)

    stage.sees(job, WorkloadPhase.SUCCEEDED)

    assert stage.gpr_of(job).state == "EXITING"
    assert Outbox.objects.filter(event__kind="job.succeeded").exists()
