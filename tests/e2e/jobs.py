"""The main job, as the tests of several stages run it."""

from __future__ import annotations

import itertools
from typing import Any

from tests.e2e.processes import START_S, Api, wait_for

ENDED = {"COMPLETED", "RELEASED", "EVICTED", "FAILED", "CANCELED", "REJECTED"}
WHOLE_LIFE = ["PROVISIONING", "ACTIVE", "EXITING", "COMPLETED"]


def make_tenants(api: Api, *names: str) -> None:
    api.post("/projects/", {"name": "p"})
    for name in names:
        api.post("/slices/", {"name": name, "project": "p", "clusters": ["c1"]})


def ask_for(api: Api, slice_: str, *, duration_s: int, nodes: int = 1, **more: Any) -> str:
    """File a GPR and return its id."""
    ask = {"name": f"job-{slice_}", "slice": slice_, "shape": "H100-80GB", "nodes": nodes, "duration_s": duration_s, **more}
    return str(api.post("/gprs/", ask)["id"])


def state_of(api: Api, gpr_id: str) -> str:
    """ "" while the hub is away."""
    gpr = api.try_get(f"/gprs/{gpr_id}/")
    return str(gpr["state"]) if gpr else ""


def wait_until(api: Api, gpr_id: str, *states: str, within_s: float = START_S) -> None:
    wait_for(f"one of {states}", lambda: state_of(api, gpr_id) in states, within_s=within_s)


def lived_its_whole_life_once(api: Api, gpr_id: str) -> None:
    """Each move happened, and happened once."""
    moves = [event["new"] for event in api.events_of(gpr_id) if event["kind"] == "gpr.transition"]
    assert moves == WHOLE_LIFE


def nothing_was_held_twice(api: Api) -> None:
    """Checks by the schedule alone that windows of one GPU never overlap."""
    windows: dict[str, list[tuple[str, str]]] = {}
    for row in api.get("/schedule/?page_size=500")["results"]:
        for gpu in row["gpus"]:
            windows.setdefault(gpu, []).append((row["starts_at"], row["ends_at"]))
    assert windows
    for spans in windows.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def reservations_of(api: Api, gpr_id: str) -> list[dict[str, Any]]:
    return [row for row in api.get("/schedule/?page_size=500")["results"] if row["gpr_id"] == gpr_id]
