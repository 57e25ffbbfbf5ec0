"""Templates that say what runs, too: a job or a notebook starts from them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpr.models import GprTemplate, Job
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE
from tests.e2e.processes import ROOT

RUNS = {"kind": "Job", "image": "train:1.0", "command": ["torchrun", "train.py"], "env": {"LR": "1"}, "retries": 2, "releases_box": False}
BOX = {"shape": SHAPE, "nodes": 2, "duration_s": 7200}


@pytest.fixture
def template(owner: Caller, job: dict[str, Any]) -> dict[str, Any]:
    made = owner.post("templates/", {"name": "training", "slice": "vision", **BOX, **RUNS})
    assert made.status_code == 201, made.content
    told: dict[str, Any] = made.json()
    return told


def test_a_job_takes_from_its_template_what_it_does_not_say(owner: Caller, template: dict[str, Any]) -> None:
    made = owner.post("jobs/", {"name": "a", "slice": "vision", "template": "training", "env": {"LR": "2"}})

    assert made.status_code == 201, made.content
    told = made.json()
    assert {name: told[name] for name in RUNS} == {**RUNS, "env": {"LR": "2"}}
    assert told["nodes"] == 2


def test_a_template_is_read_as_it_was_made_and_each_field_is_taken_back_by_null(owner: Caller, template: dict[str, Any]) -> None:
    assert {name: template[name] for name in RUNS} == RUNS
    assert template["volumes"] is template["manifest"] is None

    changed = owner.patch("templates/training/", {"retries": None, "image": "train:2.0"}).json()

    assert changed == {**template, "retries": None, "image": "train:2.0"}
    assert "retries" not in GprTemplate.objects.get().job


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"image": "two words"}, "image"),
        ({"env": {"1BAD": "x"}}, "env"),
        ({"kind": "CronJob"}, "kind"),
        ({"kind": "Notebook"}, "nodes"),
        ({"kind": "Manifest", "image": None}, "manifest"),
        ({"retries": 101}, "retries"),
    ],
)
def test_a_template_holds_nothing_that_cannot_run(owner: Caller, template: dict[str, Any], changes: dict[str, Any], field: str) -> None:
    assert field in faults(owner.patch("templates/training/", changes))
    assert owner.get("templates/training/").json() == template


def test_a_notebook_starts_from_a_template_with_its_idle_time_out(owner: Caller, job: dict[str, Any]) -> None:
    body = {"name": "notebook", "slice": "vision", "shape": SHAPE, "duration_s": 3600, "idle_timeout_s": 1800, "image": "lab:1"}
    assert owner.post("templates/", {**body, "kind": "Notebook"}).status_code == 201

    made = owner.post("notebooks/", {"name": "lab", "slice": "vision", "template": "notebook"})

    assert made.status_code == 201, made.content
    assert (made.json()["kind"], made.json()["image"]) == ("Notebook", "lab:1")
    assert Job.objects.get().gpr.idle_timeout_s == 1800


def test_nobody_outside_learns_what_a_template_runs(owner: Caller, outsider: Caller, template: dict[str, Any]) -> None:
    assert outsider.get("templates/").json()["results"] == []
    assert_problem(outsider.get("templates/training/"), 404, "not_found")
    assert "train:1.0" not in outsider.get("events/").content.decode()


def test_the_four_that_are_shipped_are_applied_and_stay_as_they_are(owner: Caller, world: World, job: dict[str, Any]) -> None:
    text = (ROOT / "deploy/examples/templates.yaml").read_text()
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(text)]

    first = owner.post("manifests/apply/", {"files": [{"name": "templates.yaml", "text": text}]})
    again = owner.post("manifests/apply/", {"files": [{"name": "templates.yaml", "text": text}]})

    assert first.status_code == again.status_code == 200, first.content
    assert names == ["training", "fine-tuning", "notebook", "batch"]
    assert sorted(GprTemplate.objects.values_list("name", flat=True)) == sorted(names)
    assert {each["act"] for each in again.json()["results"]} == {"unchanged"}
    for name in ("training", "fine-tuning", "batch"):
        made = owner.post("jobs/", {"name": name, "slice": "vision", "template": name})
        assert made.status_code == 201, made.content
    assert owner.post("notebooks/", {"name": "lab", "slice": "vision", "template": "notebook"}).status_code == 201
