"""The agent's command line."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from worker_agent import VERSION
from worker_agent.clock import SystemClock
from worker_agent.cluster.base import ClusterError
from worker_agent.cluster.fleet import FleetError, read_fleet
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import FileStore, MemoryStore
from worker_agent.log import Log, configure
from worker_agent.process import Process
from worker_agent.state import StateLost
from worker_agent.transport import Http

EXIT_BROKEN, EXIT_USAGE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    configure()
    if options.simulate is None:
        return _complain("the Kubernetes driver is not part of this version", EXIT_USAGE)
    clock = SystemClock()
    try:
        store = FileStore(options.state_dir) if options.state_dir else MemoryStore()
        process = Process(
            cluster=SimulatedCluster(fleet=read_fleet(options.simulate), store=store, clock=clock),
            connect=lambda: Http(options.hub),
            join_token=_read_token(options.join_token_file),
            clock=clock,
            log=Log(clock),
        )
    except FleetError as error:
        return _complain(str(error), EXIT_USAGE)
    except (ClusterError, StateLost, OSError) as error:
        return _complain(str(error), EXIT_BROKEN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    return process.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker_agent", description="The EGS agent of one worker cluster.")
    parser.add_argument("--hub", required=True, help="URL of the hub")
    parser.add_argument("--join-token-file", required=True, type=Path, help="needed once; may be gone after that")
    cluster = parser.add_mutually_exclusive_group(required=True)
    cluster.add_argument("--kubeconfig", type=Path, help="work on this Kubernetes cluster")
    cluster.add_argument("--in-cluster", action="store_true", help="work on the Kubernetes cluster it runs in")
    cluster.add_argument("--simulate", type=Path, metavar="FLEET.yaml", help="work on a simulated cluster")
    parser.add_argument("--state-dir", type=Path, help="where a simulated cluster is kept; without it, in memory")
    parser.add_argument("--version", action="version", version=VERSION)
    return parser


def _read_token(path: Path) -> str:
    """An agent that has its credential needs none, so the file may be gone."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"egs-agent: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
