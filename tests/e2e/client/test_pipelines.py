"""The examples of pipelines, run against a hub. Their runners are not here: each step's own body is run as the runner would."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from egs_client.sync.client import Client
from tests.e2e.client.hub import EGS, Egs, Hub
from tests.e2e.processes import ROOT

pytestmark = pytest.mark.rotates(0)

EXAMPLES = ROOT / "deploy" / "examples" / "pipelines"


@pytest.fixture
def pipeline(hub: Hub, egs: Egs) -> Egs:
    """Its steps find `egs` on the path, and the scripts of the repository beside them."""
    folder = egs.home / "bin"
    folder.mkdir()
    _program(folder / "egs", f'exec {" ".join(EGS)} "$@"')
    for name in ("prepare", "train"):
        _program(egs.home / name, f"echo {name}d")
    egs.env["PATH"] = f"{folder}:{egs.environment()['PATH']}"
    hub.end_all()
    return egs


def test_the_steps_of_the_workflow_file_both_and_run_one_after_the_other(hub: Hub, pipeline: Egs) -> None:
    flow = yaml.safe_load((EXAMPLES / "github-actions.yaml").read_text())
    own = {name: re.sub(r"\$\{\{ github.run_id }}", "7", text) for name, text in flow["env"].items()}
    pipeline.env |= {name: own[name] for name in ("PREP", "TRAIN")}
    file, prepare, train, give_back = (step for step in flow["jobs"]["train"]["steps"] if "run" in step)

    assert "train-7" in _ran(pipeline, file["run"])
    (first, then) = (hub.ada.get(f"/gprs/?name={name}")["results"][0] for name in ("prep-7", "train-7"))
    assert (then["after_id"], then["after_condition"]) == (first["id"], "success")
    assert "prepared" in _ran(pipeline, prepare["run"])
    assert "traind" in _ran(pipeline, train["run"])
    assert give_back["if"] == "always()"
    _ran(pipeline, give_back["run"])
    assert {hub.ada.get(f"/gprs/{gpr['id']}/")["state"] for gpr in (first, then)} <= {"RELEASED", "EXITING"}
    hub.end_all()


def test_a_pipeline_that_breaks_off_leaves_nothing(hub: Hub, pipeline: Egs) -> None:
    flow = yaml.safe_load((EXAMPLES / "github-actions.yaml").read_text())
    pipeline.env |= {"PREP": "prep-8", "TRAIN": "train-8"}
    runs = [step["run"] for step in flow["jobs"]["train"]["steps"] if "run" in step]
    _ran(pipeline, runs[0])

    _ran(pipeline, runs[-1])

    states = {gpr["name"]: gpr["state"] for gpr in hub.ada.get("/gprs/?page_size=50")["results"]}
    assert (states["prep-8"] in {"CANCELED", "RELEASED", "EXITING"}, states["train-8"]) == (True, "CANCELED")
    hub.end_all()


def test_the_scripts_of_the_argo_workflow_run_in_the_order_of_its_graph(hub: Hub, pipeline: Egs) -> None:
    flow = yaml.safe_load((EXAMPLES / "argo.yaml").read_text())["spec"]
    templates = {template["name"]: template for template in flow["templates"]}
    tasks = templates[flow["entrypoint"]]["dag"]["tasks"]
    done: list[str] = []
    for task in tasks:
        assert set(task.get("depends", "").split()) <= set(done)
        given = {parameter["name"]: parameter["value"] for parameter in task.get("arguments", {}).get("parameters", ())}
        said = _script(pipeline, templates[task["template"]]["script"]["source"], given)
        done.append(task["name"])
        assert ("starts by" if task["name"] == "file" else " has ") in said

    _script(pipeline, templates[flow["onExit"]]["script"]["source"], {})

    states = {gpr["name"]: gpr["state"] for gpr in hub.ada.get("/gprs/?page_size=50")["results"]}
    assert {states["prep-9"], states["train-9"]} <= {"RELEASED", "EXITING"}
    hub.end_all()


def test_the_tasks_of_the_airflow_dag_run(hub: Hub, pipeline: Egs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EGS_URL", "EGS_TOKEN", "EGS_WORKSPACE"):
        monkeypatch.setenv(name, pipeline.env[name])
    runner = ModuleType("airflow.sdk")
    runner.dag, runner.task = (lambda **_: lambda make: make), _task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", runner)
    _Task.order.clear()

    runpy.run_path(str(EXAMPLES / "airflow_dag.py"))

    assert _Task.order == ["file", "prepare", "train", "give_back"]
    with Client(hub.url, hub.tokens["user_token"], workspace="vision") as client:
        states = {gpr.name: gpr.state for gpr in client.gprs.list(page_size=50).all(limit=50)}
    assert {states["prep-{{ run_id }}"], states["train-{{ run_id }}"]} <= {"RELEASED", "EXITING"}
    hub.end_all()


def test_the_hook_checks_the_manifests_that_a_commit_changes(pipeline: Egs) -> None:
    """It runs as pre-commit does it: the entry, and behind it the files that match."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    shutil.copytree(ROOT / "deploy" / "examples" / "gitops" / "fleet", pipeline.home / "fleet")
    changed = sorted(str(path) for path in (pipeline.home / "fleet").rglob("*") if re.search(hook["files"], path.name))
    assert len(changed) > 1
    assert "No mistake can be seen" in _ran(pipeline, " ".join([hook["entry"], *changed]))

    (pipeline.home / "wrong.yaml").write_text("apiVersion: egs.io/v1alpha1\nkind: Workspace\nmetadata: {name: a}\nspec: {projekt: b}\n")
    assert "wrong.yaml:4" in _ran(pipeline, f"{hook['entry']} {pipeline.home}/wrong.yaml", code=6)


class _Task:
    """A task of Airflow that is run as soon as it is called."""

    order: list[str] = []

    def __init__(self, work: Any, name: str) -> None:
        self._work, self._name = work, name

    def override(self, *, task_id: str) -> _Task:
        return _Task(self._work, task_id)

    def __call__(self, *given: Any, **named: Any) -> Any:
        _Task.order.append(self._name)
        found = self._work(*given, **named)
        return found if isinstance(found, dict) else _Done()


class _Done:
    def __rshift__(self, other: Any) -> Any:
        return other


def _task(work: Any = None, **_: Any) -> Any:
    return _task if work is None else _Task(work, work.__name__)


def _script(egs: Egs, source: str, given: dict[str, str]) -> str:
    values = {"workflow.name": "9", "workflow.parameters.workspace": "vision"}
    values |= {f"inputs.parameters.{name}": text for name, text in given.items()}
    return _done(egs, [sys.executable, "-c", re.sub(r"\{\{([a-z.]+)}}", lambda found: values[found[1]], source)])


def _ran(egs: Egs, script: str, code: int = 0) -> str:
    """Runs it as the runner does: errors and unset variables end a step."""
    return _done(egs, ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", script], code)


def _done(egs: Egs, arguments: list[str], code: int = 0) -> str:
    done = subprocess.run(arguments, env=egs.environment(), cwd=egs.home, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
