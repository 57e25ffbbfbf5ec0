"""Filing a job by page: one form, one job; each mistake beside its field; what it becomes is shown before."""

from __future__ import annotations

import html
import inspect
import re
import shlex
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from typer.main import get_command

from core.clock import db_now
from core.words import duration_parse
from egs_client.cli import options
from egs_client.cli.commands import jobs as commands
from gpr.models import Gpr, Job
from tests import factories
from tests.pages.user_world import CREATE, HTMX, World, form, snippet_in, text
from tests.slices.kubeconfigs import ready_namespace

pytestmark = [pytest.mark.django_db]
NEW = "/workspaces/vision/jobs/new/"
OFFERS = "/workspaces/vision/jobs/offers/"
MANIFEST = """apiVersion: v1
kind: Service
metadata: {name: own}
spec:
  type: NodePort
  ports: [{port: 80}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: main
          image: a:1
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""


def asked(**changes: Any) -> dict[str, Any]:
    given = {"kind": "Job", "image": "a/b:1", "user_id": "1000", "retries": "0", "releases_box": "on", "nodes": "2", **changes}
    return form(**given)


@pytest.fixture
def owner(world: World) -> Client:
    ready_namespace(world.slice, world.cluster, at=db_now())
    return world.client("owner")


def shown(markup: str, place: str) -> str:
    found = re.search(rf'<pre[^>]* id="{place}"[^>]*>(.*?)</pre>', markup, re.DOTALL)
    assert found, markup
    return html.unescape(found[1])


def test_an_owner_files_a_job_once_however_often_the_form_is_sent(owner: Client) -> None:
    sent = asked(
        command="torchrun 'my train.py'",
        env="LR=3e-4\r\n\r\nNAME=a=b\r\n",
        volumes="data:/data",
        secrets="hub, wandb",
        retries="2",
        checkpoint="touch /data/saved",
        releases_box=None,
    )

    answers = [owner.post(NEW, sent) for _ in range(2)]

    job = Job.objects.get()
    assert {(answer.status_code, answer["Location"]) for answer in answers} == {(302, f"/jobs/{job.pk}/")}
    assert (job.image, job.command, job.env) == ("a/b:1", ["torchrun", "my train.py"], {"LR": "3e-4", "NAME": "a=b"})
    assert (job.volumes, job.secrets, job.retries, job.releases_box) == ({"data": "/data"}, ["hub", "wandb"], 2, False)
    assert job.checkpoint == ["/bin/sh", "-c", "touch /data/saved"]
    assert (job.gpr.nodes, job.gpr.duration_s) == (2, 3600)
    assert "You have sent this form already" in text(owner.post(NEW, {**sent, "key": "0" * 32}), 409)
    assert Job.objects.count() == 1


def test_mistakes_stand_beside_their_fields_and_nothing_is_filed(owner: Client) -> None:
    sent = asked(image="no image", command="echo 'open", env="LR=1\nnonsense", volumes="data:/dev/shm", nodes="x")

    markup = html.unescape(text(owner.post(NEW, sent), 422))

    assert "A quotation mark is not closed." in markup
    assert "Line 2: write NAME=VALUE." in markup
    assert 'id="id_image_error"' in markup
    whole = html.unescape(text(owner.post(NEW, {**sent, "command": "", "env": "", "nodes": "1"}), 422))
    assert "without spaces, as registry.example/team/train:1.0" in whole
    assert "/dev/shm is no path where it can be mounted" in whole  # noqa: S108  # a path of a pod
    assert not Gpr.objects.exists()


def test_a_manifest_is_refused_by_line_and_field_and_kept_for_the_next_try(owner: Client) -> None:
    sent = asked(kind="Manifest", image="left over", retries="", manifest_file=SimpleUploadedFile("job.yaml", MANIFEST.encode()))

    markup = html.unescape(text(owner.post(NEW, sent), 422))

    assert "Line 5, spec.type" in markup
    assert "type: NodePort" in markup
    assert not Gpr.objects.exists()
    good = MANIFEST.replace("NodePort", "ClusterIP").replace("\n", "\r\n")
    assert owner.post(NEW, {**sent, "manifest_file": "", "manifest": good}).status_code == 302
    assert Job.objects.get().objects_wanted[0]["metadata"] == {"name": "own"}


def test_the_page_shows_the_objects_and_the_commands_that_do_the_same(owner: Client, world: World) -> None:
    after = (db_now() + timedelta(days=1)).replace(second=0, microsecond=0)
    sent = asked(
        command="python 'a b.py' --lr 1",
        env="A=it's",
        volumes="data:/data",
        checkpoint="save it",
        gpus_per_node="4",
        duration="1h30m",
        priority="150",
        clusters=["aurora"],
        earliest_start_at=f"{after:%Y-%m-%dT%H:%M}",
        idle_timeout="never",
        evictable=None,
        model_name="llama",
    )

    markup = text(owner.post(OFFERS, sent, headers=HTMX))

    assert "Run on 8 GPUs" in markup
    service, job = yaml.safe_load_all(shown(markup, "as-objects"))
    assert (service["kind"], job["kind"], job["spec"]["completions"]) == ("Service", "Job", 2)
    (main,) = job["spec"]["template"]["spec"]["containers"]
    assert (main["image"], main["command"]) == ("a/b:1", ["python", "a b.py", "--lr", "1"])
    assert main["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    body = snippet_in(markup).body
    assert what_the_command_sends(shown(markup, "as-command")) == {**body, "earliest_start_at": after}


def what_the_command_sends(line: str) -> dict[str, Any]:
    words = shlex.split(line.replace("\\\n", ""))
    assert words[:2] == ["egs", "run"]
    context = get_command(commands.run_app).make_context("run", words[2:])
    given = context.params
    box = options.fields_of({name: given.get(name) for name in inspect.signature(options.box_options).parameters})
    fields = {
        **box,
        "slice": given["workspace"],
        **{name: given[name] for name in ("name", "image") if given[name]},
        "command": list(given["command"]),
        "clusters": list(box["clusters"]),
        "env": dict(pair.split("=", 1) for pair in given["env"]),
        "volumes": dict(pair.split(":", 1) for pair in given["volume"]),
        "checkpoint": ["/bin/sh", "-c", given["checkpoint"]],
    }
    fields["duration_s"] = duration_parse(fields["duration_s"])
    fields["idle_timeout_s"] = int(fields["idle_timeout_s"])
    return fields


@pytest.mark.parametrize(("persona", "answer"), [("owner", 200), ("teammate", 403), ("outsider", 404), ("admin", 200)])
def test_the_form_is_for_those_who_may_file(persona: str, answer: int, world: World) -> None:
    ready_namespace(world.slice, world.cluster, at=db_now())
    client = world.client(persona)

    assert client.get(NEW).status_code == answer
    assert client.post(OFFERS, asked()).status_code == answer
    assert client.post(NEW, asked()).status_code == (302 if answer == 200 else answer)


def test_a_workspace_without_a_namespace_is_told_before_the_form_is_filled(world: World) -> None:
    owner = world.client("owner")

    assert "The workspace has no namespace." in text(owner.get(NEW))
    assert "no namespace in a cluster where this may run" in html.unescape(text(owner.post(NEW, asked()), 422))
    assert "The workspace has no namespace." not in text(owner.get(CREATE))


def test_a_job_is_started_in_a_box_that_is_there_once(owner: Client, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="box", nodes=2)
    path, sent = f"/gprs/{gpr.pk}/run/", {"kind": "Job", "image": "a/b:1", "command": "python train.py", "user_id": "1000", "retries": "0"}
    use = html.unescape(text(owner.get(f"/gprs/{gpr.pk}/")))
    assert f'href="{path}"' in use
    assert "egs run --in box --image" in use
    assert "Run a job in box" in text(owner.get(path))
    code = text(owner.post(f"{path}?part=code", sent, headers=HTMX))
    assert shown(code, "as-command") == "egs run --in box \\\n  --image a/b:1 \\\n  -- python train.py"
    assert "completions: 2" in shown(code, "as-objects")
    assert snippet_in(code).body == {"gpr": str(gpr.pk), "image": "a/b:1", "command": ["python", "train.py"]}
    assert "without spaces, as" in html.unescape(text(owner.post(path, {**sent, "image": "no image"}), 422))

    answer = owner.post(path, sent)

    job = Job.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{job.pk}/")
    assert (job.gpr_id, job.releases_box) == (gpr.pk, False)
    assert "box has a job already." in text(owner.post(path, sent), 422)
    assert owner.get(path)["Location"] == f"/jobs/{job.pk}/"
    assert f'href="{path}"' not in text(owner.get(f"/gprs/{gpr.pk}/"))


def test_only_who_may_change_a_box_starts_a_job_in_it(world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="box")

    for persona, answer in (("teammate", 403), ("outsider", 404)):
        client = world.client(persona)
        assert [client.get(f"/gprs/{gpr.pk}/run/").status_code, client.post(f"/gprs/{gpr.pk}/run/").status_code] == [answer, answer]
    assert not Job.objects.exists()
