"""Templates that say what runs, on the pages: made as YAML, shown in the list, and the beginning of a job's form."""

from __future__ import annotations

import html

import pytest
from django.test import Client

from core.clock import db_now
from gpr.models import GprTemplate
from tests import factories
from tests.pages.user_world import World, client_of, text
from tests.slices.kubeconfigs import ready_namespace

pytestmark = [pytest.mark.django_db]
PATH = "/workspaces/vision/templates/"
RUNS = "kind: Job\nimage: train:1.0\ncommand: [torchrun, my train.py]\nenv: {LR: '3e-4'}\n"


def test_an_owner_says_what_a_template_runs_and_a_job_begins_with_it(owner: Client, world: World) -> None:
    ready_namespace(world.slice, world.cluster, at=db_now())

    made = owner.post(f"{PATH}new/", {"name": "training", "nodes": "2", "duration": "2 h", "runs": RUNS.replace("\n", "\r\n")})

    assert made.status_code == 302, text(made, made.status_code)
    template = GprTemplate.objects.get()
    assert template.job == {"kind": "Job", "image": "train:1.0", "command": ["torchrun", "my train.py"], "env": {"LR": "3e-4"}}
    shown = html.unescape(text(owner.get(PATH)))
    assert "runs train:1.0 as Job" in shown
    assert f"/workspaces/vision/jobs/new/?template={template.pk}" in shown
    form = html.unescape(text(owner.get(f"/workspaces/vision/jobs/new/?template={template.pk}")))
    assert "train:1.0" in form
    assert "torchrun 'my train.py'" in form
    assert "LR=3e-4" in form
    assert "image: train:1.0" in html.unescape(text(owner.get(f"{PATH}{template.pk}/")))


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ("image: [", "Line"),
        ("image: two words", "Must be a reference of an image"),
        ("imagine: a:1", "imagine"),
        ("kind: CronJob", "kind"),
        ("image: a:1\n---\nimage: b:1\n", "Write one document."),
    ],
)
def test_what_cannot_run_is_told_at_the_field(owner: Client, world: World, runs: str, words: str) -> None:
    shown = html.unescape(text(owner.post(f"{PATH}new/", {"name": "training", "runs": runs}), 422))

    assert words in shown
    assert not GprTemplate.objects.exists()


def test_an_emptied_field_leaves_a_template_of_requests(owner: Client, world: World) -> None:
    template = factories.template(world.slice, name="training", asked={"nodes": 1})
    GprTemplate.objects.update(job={"image": "a:1"})

    owner.post(f"{PATH}{template.pk}/", {"name": "training", "nodes": "1", "runs": ""})

    template.refresh_from_db()
    assert template.job == {}


def test_outsiders_see_nothing_of_it(world: World) -> None:
    factories.template(world.slice, name="training", asked={"nodes": 1})
    GprTemplate.objects.update(job={"image": "canary-image:1"})

    assert client_of(world.people.outsider).get(PATH).status_code == 404
