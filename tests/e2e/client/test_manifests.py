"""`egs apply` and its like, as platform teams run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.e2e.client.hub import Egs, Hub
from tests.e2e.processes import ROOT

pytestmark = pytest.mark.rotates(1)

GPR = """\
apiVersion: egs.io/v1alpha1
kind: GPUProvisioningRequest
metadata: {{name: {name}}}
spec: {{workspace: vision, shape: H100-80GB, nodes: 1, duration: 1h}}
"""
EXAMPLE = ROOT / "deploy" / "examples" / "gitops"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Makes a git repository with the example."""
    made = tmp_path / "platform"
    shutil.copytree(EXAMPLE, made)
    _git(made, "init", "--quiet")
    _commit(made)
    return made


def test_a_git_folder_keeps_a_set_up(repository: Path, admin: Egs) -> None:
    sync = [str(EXAMPLE / "sync"), f"file://{repository}", "fleet"]

    assert _lines(_ran(admin, sync)) == {
        "project/robotics created",
        "workspace/arms of robotics created",
        "policy of arms changed",
        "member/ada of arms created",
        "budget/month of robotics created",
        "gprtemplate/training of arms created",
    }
    admin.run("admin", "workspace", "change", "arms", "--nodes-approval", "9", "--yes")  # by hand
    assert "policy of arms changed" in _ran(admin, sync)
    arms = repository / "fleet" / "workspaces" / "arms.yaml"
    arms.write_text("---".join(arms.read_text().replace("durationMax: 7d", "durationMax: 5d").split("---")[:3]))
    projects = repository / "fleet" / "projects.yaml"
    projects.write_text(projects.read_text().split("---")[0])
    _commit(repository)
    shown = admin.run("diff", "-f", str(repository / "fleet"), "--prune", "-l", "managed-by=gitops", "--manager", "gitops", code=13)
    assert shown == (
        "~ policy of arms changed\n"
        '    spec.durationMax: "7d" -> "5d"\n'
        "- gprtemplate/training of arms deleted\n"
        "- budget/month of robotics deleted\n"
    )
    assert {line for line in _lines(_ran(admin, sync)) if "unchanged" not in line} == {
        "policy of arms changed",
        "budget/month of robotics deleted",
        "gprtemplate/training of arms deleted",
    }
    shutil.rmtree(repository / "fleet" / "workspaces")
    _commit(repository)
    assert "workspace/arms archived" in _ran(admin, sync)
    assert _lines(_ran(admin, sync)) == {"project/robotics unchanged"}


def test_a_workspace_s_owner_reads_changes_and_deletes_as_with_kubectl(egs: Egs) -> None:
    template = """\
apiVersion: egs.io/v1alpha1
kind: GPRTemplate
metadata: {name: short}
spec: {workspace: vision, shape: H100-80GB, duration: 1h}
"""
    assert egs.run("apply", "-f", "-", given=template) == "gprtemplate/short of vision created\n"
    assert egs.run("get", "templates", "short", "-o", "name") == "gprtemplate/short\n"
    written = egs.run("get", "templates", "short", "-o", "yaml")
    assert yaml.safe_load(written)["spec"]["duration"] == "1h"
    (egs.home / "short.yaml").write_text(written.replace("1h", "2h"))
    (egs.home / "kustomization.yaml").write_text("resources: [short.yaml]\n")
    assert egs.run("diff", "-k", ".", code=13).splitlines()[1] == '    spec.duration: "1h" -> "2h"'
    assert egs.run("apply", "-k", ".") == "gprtemplate/short of vision changed\n"
    assert egs.run("diff", "-f", "short.yaml") == ""
    assert "--yes" in egs.run("delete", "-f", "short.yaml", code=2)
    assert "gprtemplate/short of vision deleted" in egs.run("delete", "-f", "short.yaml", "--yes")
    assert "There is no templates short" in egs.run("get", "templates", "short", code=5)


def test_mistakes_are_told_as_compilers_tell_them_with_and_without_a_server(egs: Egs) -> None:
    (egs.home / "a.yaml").write_text("apiVersion: egs.io/v1alpha1\nkind: Membr\nmetadata: {name: 'no'}\n")
    told = "a.yaml:2: kind: There is no kind Membr. Did you mean Member?\n"
    assert told in egs.run("lint", "a.yaml", code=6)
    assert told in egs.run("apply", "-f", "a.yaml", code=6)
    assert egs.run("lint", "missing.yaml", code=2).startswith("error: missing.yaml cannot be read")
    (egs.home / "huge.yaml").write_bytes(b"#" * 1_000_000)
    assert "Give fewer at once" in egs.run("apply", "-f", "huge.yaml", code=2)
    assert "There is no manifest" in egs.run("apply", "-f", "-", given="# nothing yet\n")
    turned = 'apiVersion: egs.io/v1alpha1\nkind: Member\nmetadata: {name: "a\\u202eb\\e[31m"}\nspec: {rol: x}\n'
    assert "Member a\\u202eb\\x1b[31m: spec.rol: There is no such field here." in egs.run("lint", "-", given=turned, code=6)
    (egs.home / "latin.yaml").write_bytes(b"a: \xe9\n")
    assert "is not UTF-8" in egs.run("lint", "latin.yaml", code=2)
    (egs.home / "zero.yaml").write_bytes(b"kind: Member\nmetadata: {name: a\0}\n")
    assert egs.run("apply", "-f", "zero.yaml", code=6).startswith("zero.yaml:2: A character here is no text")
    assert "belong together" in egs.run("apply", "-f", "a.yaml", "--prune", code=2)
    theirs = "apiVersion: egs.io/v1alpha1\nkind: Member\nmetadata: {name: ada}\nspec: {workspace: foreign, role: owner}\n"
    assert "-:4: Member ada: spec.workspace: There is no such workspace" in egs.run("apply", "-f", "-", given=theirs, code=6)


def test_one_that_is_killed_at_any_moment_loses_and_doubles_nothing(hub: Hub, egs: Egs) -> None:
    """Nothing is done before the server has it all, and then it is done once: the next call finds what there is."""
    names = [f"box-{i}" for i in range(3)]
    made = "---\n".join(GPR.format(name=name) for name in names)
    (egs.home / "boxes.yaml").write_text(made)
    for wait_s in (0.1, 0.4, 0.8):  # it reads, it asks, it may have its answer
        applying = egs.start("apply", "-f", "boxes.yaml")
        time.sleep(wait_s)
        _kill(applying)
        assert len(_there(hub, names)) in {0, len(names)}, "all of them, or none"
    with hub.stopped_until_asked() as wait_for_request:
        applying = egs.start("apply", "-f", "boxes.yaml")
        wait_for_request(applying)
        _kill(applying)

    for _ in range(2):
        egs.run("apply", "-f", "boxes.yaml")
    assert egs.run("apply", "-f", "boxes.yaml").count("unchanged") == len(names)
    assert sorted(_there(hub, names)) == names
    hub.end_all()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _there(hub: Hub, names: list[str]) -> list[str]:
    return [gpr["name"] for gpr in hub.ada.get("/gprs/?ended=false&page_size=50")["results"] if gpr["name"] in names]


def _lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if not line.startswith("No mistake")}


def _ran(egs: Egs, command: list[str]) -> str:
    """Runs it with `egs` on the path, as where its wheel is installed."""
    bin_ = egs.home / "bin"
    bin_.mkdir(exist_ok=True)
    script = bin_ / "egs"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m egs_client "$@"\n')
    script.chmod(0o755)
    environment = egs.environment()
    environment["PATH"] = f"{bin_}:{environment['PATH']}"
    done = subprocess.run(command, env=environment, cwd=egs.home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "A change.")
