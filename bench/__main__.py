"""`python -m bench [NAME…] [--traces DIR] [--json OUT] [--record]` runs benchmarks, prints a table and writes the figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Figure, NotRun, table
from bench.hub import goals, hub, live, observability, planner_speed, queue_large, queue_page, speed, telemetry, terminal
from bench.kubernetes import kube_agent, kube_box, kube_fill, kube_view
from bench.packing import fragmentation
from bench.peers import kueue, slurm
from bench.replays import queue_drawn, queue_quality, queue_trials, vc_quotas
from bench.results import record

BENCHES: dict[str, Callable[[Path | None], list[Figure]]] = {
    "queue-quality": queue_quality.run,
    "queue-drawn": queue_drawn.run,
    "queue-trials": queue_trials.run,
    "fragmentation": fragmentation.run,
    "planner-speed": planner_speed.run,
    "slurm": slurm.run,
    "kueue": kueue.run,
    "speed": speed.run,
    "vc-quotas": vc_quotas.run,
    "goals": goals.run,
    "hub": hub.run,
    "kube-view": kube_view.run,
    "kube-agent": kube_agent.run,
    "kube-box": kube_box.run,
    "kube-fill": kube_fill.run,
    "boxes": speed.run_boxes,
    "queue-page": queue_page.run,
    "queue-large": queue_large.run,
    "live": live.run,
    "telemetry": telemetry.run,
    "observability": observability.run,
    "terminal": terminal.run,
}
# They take long: only by name.
BY_NAME: dict[str, Callable[[Path | None], list[Figure]]] = {
    "planner-large": planner_speed.run_large,
    "kueue-large-scale": kueue.run_large_scale,
    "kube-fill-all": kube_fill.run_all_nodes,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; all these, if none is given; and {', '.join(BY_NAME)}"
    )
    parser.add_argument("--traces", type=Path, default=os.environ.get("EGS_TRACES"), help="folder with philly_*.csv, nodes_*.csv and openb")
    parser.add_argument("--json", type=Path, default=Path("var/bench.json"))
    parser.add_argument("--record", action="store_true", help="put the figures into bench/results.json and the table of bench/README.md")
    options = parser.parse_args(arguments)
    benches = BENCHES | BY_NAME
    unknown = set(options.names) - set(benches)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")

    figures: list[Figure] = []
    for name in options.names or BENCHES:
        try:
            figures += benches[name](options.traces)
        except NotRun as why:
            sys.stdout.write(f"{name}: not run: {why}\n")
    sys.stdout.write(table(figures))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "cpus": os.cpu_count()}
    options.json.write_text(json.dumps({"machine": machine, "figures": [figure.as_dict() for figure in figures]}, indent=2) + "\n")
    if options.record:
        record(figures, today=datetime.now(UTC).date())
    return 0


if __name__ == "__main__":
    sys.exit(main())
