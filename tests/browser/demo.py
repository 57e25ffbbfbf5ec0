"""A demo with its simulated fleet for tests of pages: people, workspaces, and GPRs that run, wait and need approval."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.processes import START_S, Api, Running, demo_tokens, free_port, wait_for
from tests.migrated import copy_to_file


@contextmanager
def running_demo(folder: Path) -> Iterator[dict[str, str]]:
    """Its address and tokens, once its fleet is there."""
    copy_to_file(folder / "egs.sqlite3")
    env = {**os.environ, "EGS_VAR_DIR": str(folder)}
    process = Running([sys.executable, "manage.py", "demo", "--port", str(free_port())], env=env, log=folder / "demo.log")
    process.start()
    try:
        yield wait_for("demo.json", lambda: demo_tokens(folder), within_s=START_S)
    finally:
        process.stop()


def four_gprs(api: Api) -> None:
    """Of one workspace, which runs one at a time: `runs` runs, `first` and `second` wait, `long` needs approval."""
    ask = {"slice": "vision", "shape": "H100-80GB", "nodes": 2, "duration_s": 3600}
    for name, more in {"runs": {}, "first": {}, "second": {}, "long": {"duration_s": 8 * 86_400}}.items():
        api.post("/gprs/", {**ask, "name": name, **more})
    wait_for("ACTIVE", lambda: gpr_named(api, "runs")["state"] == "ACTIVE", within_s=START_S)


def gpr_named(api: Api, name: str) -> Any:
    return next(found for found in api.get("/gprs/")["results"] if found["name"] == name)
