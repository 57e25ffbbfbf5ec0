"""deploy/kube: what it starts is what is pinned, stands alone, starts once, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT, is_alive, wait_for
from tests.kube.api import outage
from tests.kube.cluster import SOON_S, Cluster, KubeError, clusters, deploy_kube, started

# Its main thread ends and another goes on, as those of the API server do for some milliseconds after it is killed.
LASTING = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[600]).start()
ctypes.CDLL(None).pthread_exit(None)
"""
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Makes a checkout of its own with what builds the programs and with an empty folder `path`."""
    for name in ("deploy", "path"):
        (tmp_path / name).mkdir()
    for name in ("deploy/kube", "deploy/processes", "requirements", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def processes_of(cluster: Cluster) -> set[int]:
    return {int(file.read_text().split()[0]) for file in cluster.kubeconfig.parent.glob("*.pid")}


def make(cluster: Cluster, name: str) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})


def test_the_api_server_is_of_the_version_that_is_pinned(cluster: Cluster) -> None:
    older = os.environ.get("EGS_KUBE_VERSION")
    server = f"tests/kube/v{older}" if older else "tests/kube"
    pinned = [re.search(r"k8s\.io/kubernetes (v\S+)", (ROOT / module / "go.mod").read_text()) for module in ("tests/kube", server)]

    told = json.loads(cluster.kubectl("version", "--output", "json"))

    assert [told[side]["gitVersion"] for side in ("clientVersion", "serverVersion")] == [found and found[1] for found in pinned]


def test_two_clusters_know_nothing_of_each_other(cluster: Cluster, locked: Cluster) -> None:
    make(cluster, "mine")

    assert locked.get("configmap", "mine") is None
    assert len(processes_of(cluster) | processes_of(locked)) == 2 * 5
    # Nor does the administrator of one pass for anybody in the other.
    server = locked.kubectl("config", "view", "--output", "jsonpath={.clusters[0].cluster.server}")
    with pytest.raises(KubeError, match=r"Unauthorized|must be logged in|certificate"):
        cluster.kubectl("--server", server, "--insecure-skip-tls-verify", "get", "configmaps")


def test_the_api_server_serves_the_admission_policies_that_isolation_needs(cluster: Cluster) -> None:
    assert cluster.has("validatingadmissionpolicies.admissionregistration.k8s.io")
    of_older = {"1.30": "", "1.31": "", "1.32": "", "1.33": "", "1.34": "v1beta1", "1.35": "v1beta1"}
    assert cluster.mutating_version == of_older.get(os.environ.get("EGS_KUBE_VERSION", ""), "v1")


def test_starting_one_that_runs_changes_nothing(locked: Cluster) -> None:
    make(locked, "kept")
    before = processes_of(locked)

    assert started("locked", folder=locked.folder.parent) == [locked]

    assert processes_of(locked) == before
    assert locked.get("configmap", "kept") is not None


def test_a_process_has_ended_only_once_its_last_thread_has(tmp_path: Path) -> None:
    """Its ports are taken until then: a process that is started in its place would end at once."""
    outage.processes(tmp_path, "start", "lasting", sys.executable, "-c", LASTING)
    number = int((tmp_path / "lasting.pid").read_text().split()[0])
    try:
        wait_for("the end of its main thread", lambda: "State:\tZ" in Path(f"/proc/{number}/status").read_text(), within_s=SOON_S)

        assert outage.processes(tmp_path, "pid_of", "lasting").split() == [str(number)]
        assert is_alive(number)
    finally:
        outage.processes(tmp_path, "stop", "KILL", "lasting")
    assert not is_alive(number)


@pytest.mark.soak  # quickly: test_mirror.py and test_exits.py, where a process of one is killed and started; each run ends its own
def test_one_that_lost_a_process_begins_anew_and_ending_all_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "kube"
    with clusters("one", folder=folder) as (one,):
        make(one, "lost")
        before = processes_of(one)
        os.kill(int((one.folder / "etcd.pid").read_text().split()[0]), signal.SIGKILL)

        (anew,) = started("one", folder=folder)

        assert not any(is_alive(process) for process in before)
        assert anew.get("configmap", "lost") is None
        running = processes_of(anew)
        assert all(is_alive(process) for process in running)

        deploy_kube("down", folder=folder)

        assert not any(is_alive(process) for process in running)
        assert not folder.exists()


def test_without_go_it_says_what_to_do(checkout: Path) -> None:
    path = checkout / "path"
    for name in ("bash", "dirname", "sed", "sha256sum", "cut", "flock"):
        (path / name).symlink_to(shutil.which(name) or name)

    with pytest.raises(KubeError, match=r"MISSING: Go.* Install Go 1\.26.*KUBEBUILDER_ASSETS"):
        deploy_kube("build", root=checkout, settings={"PATH": str(path), "KUBEBUILDER_ASSETS": ""})


def test_two_builds_at_once_build_each_program_once(checkout: Path) -> None:
    """A Go runs that only notes what it is asked for, and takes its time."""
    go, noted = checkout / "path/go", checkout / "noted"
    go.write_text(f'#!/bin/sh\n[ "$3" = build ] || exit 0\nshift 9\necho "$1" >>{noted}\nsleep 0.2\ntouch "$1"\nchmod +x "$1"\n')
    go.chmod(0o755)
    settings = {"PATH": f"{go.parent}:{os.environ['PATH']}", "KUBEBUILDER_ASSETS": "", "EGS_KUBE_CACHE": str(checkout / "cache")}

    with ThreadPoolExecutor() as pool:
        builds = [pool.submit(deploy_kube, "build", root=checkout, settings=settings) for _ in range(2)]
    folders = {build.result().strip() for build in builds}

    assert len(folders) == 1
    assert sorted(Path(line).stem for line in noted.read_text().split()) == sorted(PROGRAMS)
    assert sorted(file.name for file in Path(folders.pop()).iterdir()) == sorted(PROGRAMS)


def test_of_an_older_kubernetes_are_only_the_parts_that_differ(checkout: Path) -> None:
    """A Go runs that only notes of which module it is asked for what."""
    go, noted = checkout / "path/go", checkout / "noted"
    note = f'echo "$(basename "$1" .part) $module" >>{noted}'
    go.write_text(f'#!/bin/sh\n[ "$3" = build ] || exit 0\nmodule=$2\nshift 9\n{note}\n>"$1"\nchmod +x "$1"\n')
    go.chmod(0o755)
    settings = {"PATH": f"{go.parent}:{os.environ['PATH']}", "KUBEBUILDER_ASSETS": "", "EGS_KUBE_CACHE": str(checkout / "cache")}

    folders = {deploy_kube("build", root=checkout, settings=settings | {"EGS_KUBE_VERSION": each}).strip() for each in ("", "1.30")}

    assert len(folders) == 2
    told = noted.read_text().splitlines()
    newest, older = (dict(line.split() for line in lines) for lines in (told[: len(PROGRAMS)], told[len(PROGRAMS) :]))
    assert newest == dict.fromkeys(PROGRAMS, "tests/kube")
    assert older == newest | {name: "tests/kube/v1.30" for name in PROGRAMS if name.startswith("kube-")}
    with pytest.raises(KubeError, match=r"MISSING: tests/kube/v1\.2/go\.mod"):
        deploy_kube("build", root=checkout, settings=settings | {"EGS_KUBE_VERSION": "1.2"})


def test_programs_that_are_given_are_used_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    settings = {"KUBEBUILDER_ASSETS": str(tmp_path)}

    assert deploy_kube("build", settings=settings).strip() == str(tmp_path)

    (tmp_path / "kwok").unlink()
    with pytest.raises(KubeError, match="MISSING: kwok in the folder"):
        deploy_kube("build", settings=settings)
