"""Follows one GPR on many nodes of a real API server until it is ACTIVE, until its last pod has a node, and from its end to RELEASED.

It also tells how late the exit of another begins whose window ends while the hub is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, NotRun

NODES, GPUS = 64, 8
WINDOW_S: Final = 10.0
PASS_S: Final = 0.2  # as often as the agent's process makes one


def run(traces: Path | None) -> list[Figure]:
    from tests.kube.cluster import KubeError, clusters

    try:
        with clusters("bench") as (cluster,):
            return _measured(cluster)
    except KubeError as error:
        raise NotRun(str(error)) from error


def _measured(cluster: Any) -> list[Figure]:
    from protocol.assignments import Phase
    from tests.kube.site import Site, ended, install

    install(cluster)
    site = Site(cluster, nodes=NODES)
    site.start()
    site.move_in()
    slice_ = site.make_slice("bench")
    site.deploy(slice_, replicas=NODES, gpus=GPUS)
    site.until("pods wait", lambda: len(site.gated(slice_)) == NODES)
    box = site.box(slice_, nodes=tuple(range(NODES)), entry_steps=(), exit_steps=("drain",))
    began = time.perf_counter()
    site.tell(*box)
    active_s = _until(site, lambda: site.is_in(Phase.ACTIVE, *box), began)
    bound_s = _until(site, lambda: site.placed_count(box[0].gpr_id) == NODES, began)
    began = time.perf_counter()
    site.tell(*ended(*box))
    released_s = _until(site, lambda: site.is_in(Phase.RELEASED, *box), began)
    late_s = _lateness_s(site, slice_)
    site.stop()
    rows = (
        ("allocated to ACTIVE", active_s, "<= 10 s"),
        ("until all pods are bound", bound_s, ""),
        ("from its end to RELEASED", released_s, ""),
        ("from the end of a window, hub away, to the exit", late_s, "<= 2 s"),
    )
    return [Figure("kube-box", f"{NODES} nodes of {GPUS} GPUs: {what}", "s", value, goal=goal) for what, value, goal in rows]


def _lateness_s(site: Any, slice_: str) -> float:
    """Returns how late the last node's exit began, by the agent's own clock."""
    from protocol.assignments import Phase

    box = site.box(slice_, nodes=tuple(range(NODES)), duration_s=WINDOW_S, entry_steps=(), exit_steps=("drain",))
    site.tell(*box)  # the last word from the hub
    _until(site, lambda: site.is_in(Phase.RELEASED, *box), time.perf_counter())
    seen = [site.observed(each) for each in box]
    return float(max(each.exit_began_s - each.active_s for each in seen) - WINDOW_S)


def _until(site: Any, holds: Callable[[], bool], began: float) -> float:
    """Returns the seconds since `began`, pass after pass."""
    while True:
        site.pass_()
        if holds():
            return time.perf_counter() - began
        time.sleep(PASS_S)
