"""The main job from outside, on real processes: what a newcomer does in the first minute. No browser is in it, but the one demo is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.support.demo import Demo
from tests.e2e.processes import START_S, Api, wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile


def test_within_a_minute_of_the_demo_a_request_is_estimated_provisioned_watched_and_released(demo: Demo) -> None:
    api = demo.user
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


def quotas(api: Api) -> list[dict[str, Any]]:
    return [row for row in api.get("/quotas/")["results"] if row["name"].endswith(" A100-80GB")]


def test_who_follows_the_readme_sees_gpus_borrowed_and_taken_back(demo: Demo) -> None:
    user, admin = demo.user, demo.admin
    assert (len(quotas(user)), len(quotas(admin))) == (2, 5)
    ask = {"shape": "A100-80GB", "nodes": 2}

    greedy = user.post("/gprs/", {**ask, "name": "greedy", "slice": "vision", "nodes": 4, "duration_s": 3600})["id"]
    wait_for("ACTIVE", lambda: user.get(f"/gprs/{greedy}/")["state"] == "ACTIVE", within_s=START_S)
    assert user.get(f"/gprs/{greedy}/")["borrows"]
    held = {row["name"]: (row["held_gpus"], row["borrowed_gpus"]) for row in quotas(user)}
    assert held == {"perception A100-80GB": (32, 16), "vision A100-80GB": (32, 24)}

    entitled = admin.post("/gprs/", {**ask, "name": "entitled", "slice": "language", "duration_s": 600})["id"]

    def victims() -> list[str]:
        """Other tests have evictions of their own."""
        evictions = admin.get("/evictions/")["results"]
        return [victim["gpr"] for eviction in evictions if eviction["gpr"] == "entitled" for victim in eviction["victims"]]

    assert wait_for("the eviction", victims, within_s=START_S) == ["greedy"]
    wait_for("ACTIVE", lambda: admin.get(f"/gprs/{entitled}/")["state"] == "ACTIVE", within_s=START_S)
    assert not admin.get(f"/gprs/{entitled}/")["borrows"]
    assert user.get(f"/gprs/{greedy}/")["state"] == "QUEUED"
    assert user.raw("DELETE", f"/gprs/{greedy}/").is_success
    admin.post(f"/gprs/{entitled}/release/")


@pytest.mark.soak  # quickly: tests/lifecycle/boxes/test_swaps.py and tests/agent/boxes/test_spares.py
def test_a_node_whose_gpu_falls_sick_is_replaced_while_its_gpr_runs_on_to_its_end(demo: Demo) -> None:
    """The demo's script makes the first A10 node sick that a box has had for a minute."""
    api = demo.user
    path = f"/gprs/{api.post('/gprs/', {'name': 'lasts', 'slice': 'vision', 'shape': 'A10-24GB', 'nodes': 2, 'duration_s': 600})['id']}/"
    before = wait_for("ACTIVE", lambda: (g := api.get(path))["state"] == "ACTIVE" and g, within_s=START_S)

    def swapped() -> Any:
        gpr = api.get(path)
        (*_, last) = gpr["replacements"] or [{"outcome": ""}]
        return last["outcome"] == "replaced" and len(gpr["nodes_assigned"]) == 2 and gpr

    after = wait_for("the replacement", swapped, within_s=60 + START_S)

    (told,) = after["replacements"]
    assert re.fullmatch(r"GPU \d has memory rows that could not be remapped\.", told["why"])
    names = {node["node"] for node in before["nodes_assigned"]}
    assert {node["node"] for node in after["nodes_assigned"]} == names - {told["node"]} | {told["spare"]}
    assert (after["state"], after["ends_at"], after["active_at"]) == ("ACTIVE", before["ends_at"], before["active_at"])
    assert {"gpr.node_failing", "gpr.spare_entering", "gpr.node_replaced"} <= {event["kind"] for event in api.events_of(before["id"])}
    api.post(f"{path}release/")
