"""The main job from outside, on real processes: what a newcomer does in the first minute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import ROOT, START_S, Api, Running, demo_tokens, free_port, wait_for
from tests.migrated import copy_to_file

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile


# As in the README, without the minutes of patience.
AT_ONCE = {"EGS_EVICTION_LEAST_RUN_S": "0", "EGS_EVICTION_NOTICE_S": "3", "EGS_EVICTION_GAIN_S": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the demo that all tests here share. Each test ends the requests that it made."""
    path = tmp_path_factory.mktemp("demo")
    copy_to_file(path / "egs.sqlite3")
    env = {**os.environ, "EGS_VAR_DIR": str(path), **AT_ONCE}
    process = Running([sys.executable, "manage.py", "demo", "--port", str(free_port())], env=env, log=path / "demo.log")
    process.start()
    yield path
    process.stop()


@pytest.fixture(scope="module")
def demo(folder: Path) -> dict[str, str]:
    """Its address and tokens, once it is ready."""
    return wait_for("demo.json", lambda: demo_tokens(folder), within_s=START_S)


def test_within_a_minute_of_the_demo_a_request_is_estimated_provisioned_watched_and_released(demo: dict[str, str]) -> None:
    api = Api(demo["url"], demo["user_token"])
    ask = {"name": "first", "slice": "vision", "shape": "H100-80GB", "nodes": 2, "duration_s": 600}

    offers = api.post("/gprs/estimate/", ask)["offers"]
    assert {offer["cluster"] for offer in offers} == {"aurora", "borealis"}, "both have joined when it says that it is ready"
    assert offers[0]["wait_s"] == 0

    gpr = api.post("/gprs/", ask)
    assert gpr["state"] in {"QUEUED", "PROVISIONING"}
    path = f"/gprs/{gpr['id']}/"
    active = wait_for("ACTIVE", lambda: (g := api.get(path))["state"] == "ACTIVE" and g, within_s=START_S)
    assert len(active["nodes_assigned"]) == 2
    assert 0 < active["time_left_s"] <= 600

    api.post(f"{path}release/")
    ended = wait_for("the end", lambda: (g := api.get(path))["state"] == "RELEASED" and g, within_s=START_S)
    assert ended["end_reason"] == "EARLY_RELEASE"
    moves = [event["new"] for event in api.events_of(gpr["id"]) if event["kind"] == "gpr.transition"]
    assert moves == ["PROVISIONING", "ACTIVE", "EXITING", "RELEASED"]
    steps = api.get(f"{path}steps/")["results"]
    assert {"node_ready", "gpu_health", "drain", "release"} <= {step["step"] for step in steps}
    assert all(step["log"] for step in steps)
    api.close()


def test_who_follows_the_readme_sees_gpus_borrowed_and_taken_back(demo: dict[str, str]) -> None:
    user, admin = (Api(demo["url"], demo[name]) for name in ("user_token", "admin_token"))
    assert len(user.get("/quotas/")["results"]) == 2
    assert len(admin.get("/quotas/")["results"]) == 5
    ask = {"shape": "A100-80GB", "nodes": 2}

    greedy = user.post("/gprs/", {**ask, "name": "greedy", "slice": "vision", "nodes": 4, "duration_s": 3600})["id"]
    wait_for("ACTIVE", lambda: user.get(f"/gprs/{greedy}/")["state"] == "ACTIVE", within_s=START_S)
    assert user.get(f"/gprs/{greedy}/")["borrows"]
    held = {row["name"]: (row["held_gpus"], row["borrowed_gpus"]) for row in user.get("/quotas/")["results"]}
    assert held == {"perception A100-80GB": (32, 16), "vision A100-80GB": (32, 24)}

    entitled = admin.post("/gprs/", {**ask, "name": "entitled", "slice": "language", "duration_s": 600})["id"]
    (eviction,) = wait_for("the eviction", lambda: admin.get("/evictions/")["results"], within_s=START_S)
    assert (eviction["gpr"], [victim["gpr"] for victim in eviction["victims"]]) == ("entitled", ["greedy"])
    wait_for("ACTIVE", lambda: admin.get(f"/gprs/{entitled}/")["state"] == "ACTIVE", within_s=START_S)
    assert not admin.get(f"/gprs/{entitled}/")["borrows"]
    assert user.get(f"/gprs/{greedy}/")["state"] == "QUEUED"
    assert user.raw("DELETE", f"/gprs/{greedy}/").is_success
    admin.post(f"/gprs/{entitled}/release/")
    for api in (user, admin):
        api.close()


@pytest.mark.soak  # quickly: tests/lifecycle/boxes/test_swaps.py and tests/agent/boxes/test_spares.py
def test_a_node_whose_gpu_falls_sick_is_replaced_while_its_gpr_runs_on_to_its_end(demo: dict[str, str]) -> None:
    """By the demo's script the first A10 node that a box has had for a minute."""
    api = Api(demo["url"], demo["user_token"])
    path = f"/gprs/{api.post('/gprs/', {'name': 'lasts', 'slice': 'vision', 'shape': 'A10-24GB', 'nodes': 2, 'duration_s': 600})['id']}/"
    before = wait_for("ACTIVE", lambda: (g := api.get(path))["state"] == "ACTIVE" and g, within_s=START_S)

    def swapped() -> Any:
        """With the sick node gone from it, drained."""
        gpr = api.get(path)
        (*_, last) = gpr["replacements"] or [{"outcome": ""}]
        return last["outcome"] == "replaced" and len(gpr["nodes_assigned"]) == 2 and gpr

    after = wait_for("the replacement", swapped, within_s=60 + START_S)

    (told,) = after["replacements"]
    assert told["why"] == "1 GPU of it is sick or gone."
    names = {node["node"] for node in before["nodes_assigned"]}
    assert {node["node"] for node in after["nodes_assigned"]} == names - {told["node"]} | {told["spare"]}
    assert (after["state"], after["ends_at"], after["active_at"]) == ("ACTIVE", before["ends_at"], before["active_at"])
    assert {"gpr.node_failing", "gpr.spare_entering", "gpr.node_replaced"} <= {event["kind"] for event in api.events_of(before["id"])}
    api.post(f"{path}release/")
    api.close()


def test_a_second_demo_does_not_take_the_place_of_the_first(demo: dict[str, str], folder: Path) -> None:
    """They would share the database and the simulated clusters, whose agents supersede each other."""
    env = {**os.environ, "EGS_VAR_DIR": str(folder)}
    command = [sys.executable, "manage.py", "demo", "--port", str(free_port())]

    second = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False)

    assert second.returncode == 1
    assert "Another demo runs" in second.stderr
    assert demo_tokens(folder) == demo
