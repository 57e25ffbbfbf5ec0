"""Parses the agent's command line."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.references import is_image, is_object_name
from worker_agent import VERSION
from worker_agent.boxes.state import StateLost
from worker_agent.clock import SystemClock
from worker_agent.cluster.base import ClusterDriver, ClusterError, Note
from worker_agent.cluster.fleet import FleetError, read_fleet
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import FileStore, MemoryStore
from worker_agent.health import Health, serve
from worker_agent.hub.pods import PodSource
from worker_agent.hub.requests import Requests, SimulatedRequests
from worker_agent.hub.transport import Http, NoTrust, trust_in
from worker_agent.hub.workloads import SimulatedWorkloads, WorkloadDriver
from worker_agent.hub.workspaces import SimulatedTenancy, TenancyDriver
from worker_agent.log import Log, configure
from worker_agent.metrics import LEADING, SYNC_AGE_S
from worker_agent.process import EXIT_OK, Process
from worker_agent.telemetry.lane import TelemetrySource
from worker_agent.telemetry.simulated import SimulatedTelemetry
from worker_agent.telemetry.simulated_pods import SimulatedPods

if TYPE_CHECKING:
    from worker_agent.kube.api.lease import Leadership

EXIT_BROKEN, EXIT_USAGE, EXIT_DEPOSED = 1, 2, 5
END_WITHIN_S = 10.0
CHECK_IMAGE = "python:3.13-slim"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _simulate(options, stop) if options.simulate else _work(options, stop)
    except FleetError as error:
        return _complain(str(error), EXIT_USAGE)
    except (ClusterError, StateLost, OSError) as error:
        return _complain(str(error), EXIT_BROKEN)


def _simulate(options: argparse.Namespace, stop: threading.Event) -> int:
    clock = SystemClock()
    log, health = Log(clock), Health({"hub": lambda: "the agent starts"})
    store = FileStore(options.state_dir) if options.state_dir else MemoryStore()
    fleet = read_fleet(options.simulate)
    cluster = SimulatedCluster(fleet=fleet, store=store, clock=clock)
    serve(health, host=options.health_host, port=options.health_port, note=log)
    telemetry = SimulatedTelemetry(seed=cluster.uid(), xids=cluster.xids)
    workloads, pods = SimulatedWorkloads(job_s=fleet.job_s), SimulatedPods(telemetry)
    return _run(options, cluster, SimulatedTenancy(), SimulatedRequests(), workloads, telemetry, pods, clock, log, health, stop)


def _work(options: argparse.Namespace, stop: threading.Event) -> int:
    """The watches start before this replica has the lease, so that it can then begin at once."""
    # Imported here, so that an agent of a simulated cluster does not load them.
    from worker_agent.kube.api import devices
    from worker_agent.kube.api.client import Api, access_by_kubeconfig, access_in_cluster
    from worker_agent.kube.api.lease import Leadership
    from worker_agent.kube.api.settings import read_settings
    from worker_agent.kube.checks.steps import Checks
    from worker_agent.kube.driver import KubernetesCluster
    from worker_agent.kube.jobs.driver import KubernetesWorkloads
    from worker_agent.kube.nodes.told_events import NodeEvents
    from worker_agent.kube.pods.reporting import PodReporter
    from worker_agent.kube.requests.sync import KubernetesRequests
    from worker_agent.kube.tenancy.workspaces import KubernetesTenancy
    from worker_agent.telemetry.discovery import ExporterTelemetry

    clock = SystemClock()
    log = Log(clock)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    access = access_by_kubeconfig(options.kubeconfig) if options.kubeconfig else access_in_cluster(host, port)
    api = Api(access)
    leadership = Leadership(api, identity=f"{socket.gethostname()}-{secrets.token_hex(4)}", note=log)
    checks = Checks(api, image=options.check_image, runtime_class=options.check_runtime_class, pull_secret=options.check_pull_secret)
    cluster = KubernetesCluster(api, check=checks.run, note=log)
    health = Health({"watches": cluster.why_watches_lag})
    serve(health, host=options.health_host, port=options.health_port, note=log)
    cluster.start(stop)
    try:
        if not leadership.acquire(stop):
            return EXIT_OK
        threading.Thread(target=_keep, args=(leadership, stop, lambda: cluster.idle_s), name="egs-lease", daemon=True).start()
        settings = read_settings(api, note=log)
        devices.use(settings.devices)
        checks.repairs.driver_pods = settings.driver_pods
        tenancy = KubernetesTenancy(api=api, server=access.url, ca=access.ca, note=log, limits=settings.quota)
        requests = KubernetesRequests(
            api=api,
            bound=lambda name: tenancy.bound_to(name, cluster.namespace_uid(name)),
            pods=cluster.pods,
            nodes=cluster.nodes,
            why=cluster.why_it_waits,
            note=log,
        )
        workloads = KubernetesWorkloads(
            api=api,
            bound=lambda name: tenancy.bound_to(name, cluster.namespace_uid(name)),
            pods=cluster.pods,
            nodes=cluster.nodes,
            why=cluster.why_it_waits,
            note=log,
            ingress=settings.ingress,
        )
        events = NodeEvents(api=api, nodes=cluster.nodes, note=log)
        telemetry = ExporterTelemetry(
            api=api, words=settings.exporters, pods=cluster.pods, workspace_of=cluster.workspace_of, warnings=events.told, note=log
        )
        pods = PodReporter(
            api=api, pods=cluster.pods, workspace_of=cluster.workspace_of, why=cluster.why_it_waits, devices=telemetry.devices, note=log
        )
        cluster.waited_for, cluster.unasked = requests.waited_for, requests.unasked
        events.start()
        try:
            code = _run(options, cluster, tenancy, requests, workloads, telemetry, pods, clock, log, health, stop)
        finally:
            telemetry.close()
            events.stop()
            requests.stop()
    finally:
        cluster.stop()
        leadership.give_up()  # last, because the next replica begins at once
        api.close()
    return _complain("another replica took over", EXIT_DEPOSED) if leadership.is_lost else code


def _keep(leadership: Leadership, stop: threading.Event, idle_s: Callable[[], float]) -> None:
    """A process that lost its lease because it hangs ignores a request to stop, so this ends it."""
    leadership.keep(stop, idle_s)
    if leadership.is_lost:
        time.sleep(END_WITHIN_S)
        os._exit(EXIT_DEPOSED)


def _run(
    options: argparse.Namespace,
    cluster: ClusterDriver,
    tenancy: TenancyDriver,
    requests: Requests,
    workloads: WorkloadDriver,
    telemetry: TelemetrySource,
    pods: PodSource,
    clock: SystemClock,
    log: Log,
    health: Health,
    stop: threading.Event,
) -> int:
    _read_token(options.join_token_file)  # reports an unreadable file before anything begins
    process = Process(
        cluster=cluster,
        tenancy=tenancy,
        requests=requests,
        workloads=workloads,
        telemetry=telemetry,
        pods=pods,
        connect=lambda: Http(options.hub, trust=options.hub_ca),
        join_token=_token_reader(options.join_token_file, log),
        clock=clock,
        log=log,
        stop=stop,
    )
    health.checks["hub"], health.idle_s = process.why_not_ready, lambda: process.idle_s
    SYNC_AGE_S.set_function(lambda: process.sync_age_s)
    LEADING.set(1)
    return process.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker_agent", description="The EGS agent of one worker cluster.")
    parser.add_argument("--hub", required=True, help="URL of the hub")
    text = "PEM file of the authorities that may have signed the hub's certificate, in place of those that everybody trusts"
    _add(parser, "--hub-ca", _trust, None, text)
    text = "needed once; may be gone after that. A new one in it is found by itself"
    parser.add_argument("--join-token-file", required=True, type=Path, help=text)
    cluster = parser.add_mutually_exclusive_group(required=True)
    cluster.add_argument("--kubeconfig", type=Path, help="work on this Kubernetes cluster")
    cluster.add_argument("--in-cluster", action="store_true", help="work on the Kubernetes cluster it runs in")
    cluster.add_argument("--simulate", type=Path, metavar="FLEET.yaml", help="work on a simulated cluster")
    _add_check_options(parser)
    text = "address of /healthz, /readyz and /metrics, which answer without login (%(default)s)"
    _add(parser, "--health-host", str, "127.0.0.1", text)
    _add(parser, "--health-port", int, "8081", "port of these; 0: any that is free (%(default)s)")
    parser.add_argument("--state-dir", type=Path, help="where a simulated cluster is kept; without it, in memory")
    parser.add_argument("--version", action="version", version=VERSION)
    return parser


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--check-image", _image, CHECK_IMAGE, "of the checks where the hub names none: with Python 3 (%(default)s)")
    _add(parser, "--check-runtime-class", _object_name, "", "of the pods of checks that look at GPUs, where the hub names none")
    text = "a Secret in egs-system by which images of checks are pulled, where the hub names none"
    _add(parser, "--check-pull-secret", _object_name, "", text)


def _add(parser: argparse.ArgumentParser, option: str, type_: Callable[[str], object], default: str | None, text: str) -> None:
    """Add an option that an environment variable can set too."""
    variable = "EGS_" + option.removeprefix("--").upper().replace("-", "_")
    parser.add_argument(option, type=type_, default=os.environ.get(variable) or default, help=f"{text}; also by {variable}")


def _trust(file: str) -> ssl.SSLContext:
    try:
        return trust_in(Path(file))
    except NoTrust as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _image(text: str) -> str:
    if not is_image(text):
        raise argparse.ArgumentTypeError(f"{text} is no reference of an image, as registry.example/team/egs-agent:1.0")
    return text


def _object_name(text: str) -> str:
    if text and not is_object_name(text):
        raise argparse.ArgumentTypeError(f"{text} is no name of an object: a-z, 0-9, - and dots")
    return text


def _read_token(path: Path) -> str:
    """An agent that has its credential needs no file."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def _token_reader(path: Path, log: Note) -> Callable[[], str]:
    """The reader treats an unreadable file as empty and logs each error once."""
    told = ""

    def read() -> str:
        nonlocal told
        try:
            token, why = _read_token(path), ""
        except (OSError, UnicodeDecodeError) as error:
            token, why = "", str(error)
        if why and why != told:
            log("join_token_unreadable", {"why": why})
        told = why
        return token

    return read


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"egs-agent: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
