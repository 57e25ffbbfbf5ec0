"""Runs the steps of entry, exit and repair but for the drain: what each measures, and how.

A Job only measures (jobs.py); protocol/nodes/check_limits.py and the hub's policy judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from protocol.cluster_names import POD_GPR, box_of, node_path
from protocol.nodes.check_limits import expect, is_good, sentence, skipped
from protocol.nodes.checks import CheckResult
from protocol.nodes.steps import EntryStep, ExitStep, RepairStep, step_name
from worker_agent.boxes.gangs import why_alone
from worker_agent.cluster.base import ClusterError, StepCall, StepProgress, StepStatus
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import Node, Pod, PodList
from worker_agent.kube.checks import readings, verdicts
from worker_agent.kube.checks.gang_verdicts import gang_network, in_one
from worker_agent.kube.checks.jobs import VOLUME, CheckJob, CheckJobOutcome, CheckJobs
from worker_agent.kube.checks.volumes import Volumes
from worker_agent.kube.nodes import hardware
from worker_agent.kube.nodes.repairs import Repairs
from worker_agent.kube.pods.runs import pods_to_drain

PROBE, NCCL_PROBE = (Path(__file__).with_name("probes").joinpath(name).read_text() for name in ("probe.py", "nccl.sh"))
GPUS_BACK_S: Final = 600.0  # how long after the close a node may offer none of the box's GPUs: its device plugin may be restarting
SHORT_S, GPU_S, VOLUME_S, NCCL_S = 60, 120, 300, 300
PEERS_MAX: Final = 3
DNS_PODS: Final = "/api/v1/namespaces/kube-system/pods"
DNS_SEEN_S: Final = 60.0
DNS_LABEL: Final = "k8s-app=kube-dns"
# Thresholds are known for an all-reduce of 16 GiB; GPUs with less memory than NCCL_LARGE_GPU_GIB use 1 GiB.
NCCL_BYTES, NCCL_SMALL_BYTES, NCCL_LARGE_GPU_GIB = 16 << 30, 1 << 30, 64
NCCL_FIRST_BYTES: Final = 16
NCCL_TOOLS: Final = ("all_reduce_perf", "env", "mktemp", "tr")  # what nccl.sh runs
SHARED_MEMORY_MIB: Final = 1024  # NCCL's buffers between processes on a node
# The first GIDs of a RoCE port are two of its link and two of each IPv4 address.
RDMA_FILES: Final = [f"/sys/class/infiniband/*/ports/*/{name}" for name in ("state", "phys_state", "rate", "gids/[0-3]")]
KERNEL_LOG: Final = ""  # the probe asks the kernel itself
# Each node of a box asks so many others, and keeps trying for GANG_TRY_S while their pods may still be starting.
GANG_FAN_OUT, GANG_PORT, GANG_TRY_S, GANG_S = 2, 29400, 90, 180


class Checks:
    def __init__(
        self, api: Api, *, image: str, runtime_class: str = "", pull_secret: str = "", mono: Callable[[], float] = time.monotonic
    ) -> None:
        # Defaults for what the policy of the hub leaves open. The probe image needs Python 3.
        self._api, self._image, self._mono, self._jobs = api, image, mono, CheckJobs(api, mono=mono)
        self._runtime_class, self._pull_secret = runtime_class, pull_secret
        self._volume_looks = Volumes(api, mono=mono)
        self.repairs = Repairs(api, mono=mono)
        self._dns_pods: tuple[Pod, ...] = ()
        self._dns_seen_mono = float("-inf")

    def run(self, call: StepCall) -> StepProgress:
        """Polls one attempt once. Raises ClusterError."""
        match call.step:
            case RepairStep.RESTART_DRIVER | RepairStep.RESET_GPUS | RepairStep.REBOOT_NODE:
                return self.repairs.run(call)
            case EntryStep.NODE_READY:
                why = "; ".join(call.node.why_unready)
                return _result_of([expect("node_ready", float(call.node.view.ready), 1, is_least=True, text=why)])
            case EntryStep.GPU_COUNT:
                return self._probe(call, {"commands": {"gpus": _smi()}}, verdicts.gpu_count, deadline_s=GPU_S, gpus=_gpus(call))
            case EntryStep.GPU_HEALTH:
                plan = {"commands": {"gpus": _smi(), "rows": _smi_rows()}, "xids": KERNEL_LOG}
                return self._probe(call, plan, verdicts.gpu_health, deadline_s=GPU_S, gpus=_gpus(call), capabilities=("SYSLOG",))
            case EntryStep.STORAGE:
                plan = {"volume": VOLUME}
                return self._probe(call, plan, verdicts.storage, deadline_s=VOLUME_S, volume=call.assignment.checks.storage_class)
            case EntryStep.NETWORK | ExitStep.EXIT_NETWORK:
                return self._network(call)
            case EntryStep.RDMA:
                return self._rdma(call)
            case EntryStep.NCCL | ExitStep.EXIT_NCCL:
                return self._nccl(call)
            case EntryStep.GANG_NETWORK:
                return self._gang_network(call)
            case ExitStep.GPU_IDLE:
                return self._gpu_idle(call)
            case ExitStep.VOLUMES:
                return self._volumes(call)
            case _:
                return self._clean(call)

    # -- by a Job ------------------------------------------------------------------------------------------------------

    def _probe(
        self,
        call: StepCall,
        plan: Mapping[str, object],
        read: Callable[[StepCall, verdicts.ProbeOutput, Pod | None], verdicts.Results],
        *,
        deadline_s: int,
        gpus: int = 0,
        capabilities: tuple[str, ...] = (),
        volume: str | None = None,
    ) -> StepProgress:
        work = self._work(call, self._probe_image(call), _command(plan), deadline_s, gpus=gpus, capabilities=capabilities, volume=volume)

        def results(ended: CheckJobOutcome) -> verdicts.Results:
            document = verdicts.document(ended.output)
            if gpus:
                self._remember(call, verdicts.gpus_seen(document))
            return read(call, document, ended.pod)

        return self._measure(work, results)

    def _remember(self, call: StepCall, seen: Sequence[readings.SmiReading]) -> None:
        view = call.node.view
        if not {gpu.uuid for gpu in seen} <= {gpu.hardware_uuid for gpu in view.gpus}:
            with suppress(ClusterError):  # the next check tries again
                hardware.store_uuids(self._api, view.name, seen, len(view.gpus))

    def _probe_image(self, call: StepCall) -> str:
        return call.assignment.checks.images.get("probe", self._image)

    def _work(
        self,
        call: StepCall,
        image: str,
        command: tuple[str, ...],
        deadline_s: int,
        *,
        gpus: int = 0,
        capabilities: tuple[str, ...] = (),
        volume: str | None = None,
        shared_memory_mib: int = 0,
        tools: tuple[str, ...] = (),
    ) -> CheckJob:
        return CheckJob(
            owner=call.assignment.id,
            epoch=call.assignment.epoch,
            step=call.step,
            attempt=call.attempt,
            nodes=(call.node.view.name,),
            image=image,
            command=command,
            deadline_s=deadline_s,
            gpus=gpus,
            capabilities=capabilities,
            volume=volume,
            shared_memory_mib=shared_memory_mib,
            tools=tools,
            runtime_class=(call.assignment.checks.runtime_class or self._runtime_class) if gpus else "",
            pull_secret=self._pull_secret_of(call),
        )

    def _pull_secret_of(self, call: StepCall) -> str:
        return call.assignment.checks.pull_secret or self._pull_secret

    def _measure(self, work: CheckJob, read: Callable[[CheckJobOutcome], verdicts.Results]) -> StepProgress:
        ended = self._jobs.poll(work)
        if ended is None:
            return StepProgress(status=StepStatus.RUNNING)
        if ended.why:
            why = f"{step_name(work.step)} could not be measured on node {work.nodes[0]}: {ended.why}"
            return _failed(why, blames_node=ended.blames_node)
        try:
            return _result_of(read(ended))
        except verdicts.Unreadable as error:
            return _failed(f"{step_name(work.step)} could not be measured on node {work.nodes[0]}: {error}")

    def _gpu_idle(self, call: StepCall) -> StepProgress:
        # The Job asks only for GPUs that are there: otherwise it would wait for one that dropped out.
        there, wanted = verdicts.gpus_there(call), _gpus(call)
        if there:
            plan = {"commands": {"gpus": _smi(), "processes": _smi_processes()}}
            return self._probe(call, plan, verdicts.gpu_idle, deadline_s=GPU_S, gpus=there)
        if call.since_closed_s < GPUS_BACK_S:
            return _failed(f"node {call.node.view.name} offers none of the {wanted} GPUs of the box: is its device plugin at work?")
        return _result_of([*verdicts.missing(call), skipped("gpu_memory_used", "no GPU is there to be asked")])

    def _network(self, call: StepCall) -> StepProgress:
        addresses = [f"{verdicts.NAME}:443", *self._peers(call)]
        return self._probe(call, {"names": [verdicts.NAME], "addresses": addresses}, verdicts.network, deadline_s=SHORT_S)

    def _peers(self, call: StepCall) -> list[str]:
        """Returns pods of the cluster's DNS on other nodes."""
        if self._mono() - self._dns_seen_mono > DNS_SEEN_S:
            self._dns_pods = self._api.get(DNS_PODS, PodList, labelSelector=DNS_LABEL).items
            self._dns_seen_mono = self._mono()
        others = (pod.status for pod in self._dns_pods if pod.spec.nodeName != call.node.view.name)
        ips = sorted(status.podIP for status in others if status.podIP and status.phase == "Running")
        return [f"[{ip}]:53" if ":" in ip else f"{ip}:53" for ip in ips[:PEERS_MAX]]

    def _rdma(self, call: StepCall) -> StepProgress:
        if not call.node.view.rdma:
            return _result_of([skipped("rdma_links", "the node has no RDMA")])
        return self._probe(call, {"files": RDMA_FILES}, verdicts.rdma, deadline_s=SHORT_S)

    def _nccl(self, call: StepCall) -> StepProgress:
        image = call.assignment.checks.images.get("nccl", "")
        if not image or _gpus(call) < 2:
            return _result_of([skipped("nccl_bandwidth", "one GPU has no other to talk to" if image else "no image for NCCL is set")])
        if call.step == ExitStep.EXIT_NCCL and 0 < verdicts.gpus_there(call) < _gpus(call):
            return _failed(f"{verdicts.gpus_there(call)} of {_gpus(call)} GPUs are left: NCCL is not measured over these")
        if not call.node.view.gpus:
            why = "; ".join(call.node.why_unready) or "it shows no GPUs"
            return _failed(f"{step_name(call.step)} could not be measured on node {call.node.view.name}: {why}", blames_node=False)
        memory_gib = min(gpu.memory_gib for gpu in call.node.view.gpus)
        size = NCCL_BYTES if memory_gib >= NCCL_LARGE_GPU_GIB else NCCL_SMALL_BYTES
        command = ("sh", "-c", NCCL_PROBE, "nccl", str(_gpus(call)), str(size), str(size // NCCL_FIRST_BYTES))
        work = self._work(call, image, command, NCCL_S, gpus=_gpus(call), shared_memory_mib=SHARED_MEMORY_MIB, tools=NCCL_TOOLS)
        return self._measure(work, lambda ended: verdicts.nccl(call, ended.output))

    def _gang_network(self, call: StepCall) -> StepProgress:
        """One Job serves all nodes of the box; each reads its own part."""
        if len(call.gang) < 2:
            return _result_of([skipped("gang_latency", why_alone(call.assignment))])
        ended = self._jobs.poll(self._gang_work(call))
        if ended is None:
            return StepProgress(status=StepStatus.RUNNING)
        try:
            found = gang_network(call, ended.gang, fan_out=GANG_FAN_OUT)
            return msgspec.structs.replace(_result_of(found), results=tuple(in_one(found)))
        except verdicts.Unreadable as error:
            why = "; ".join(each for each in (ended.why, str(error)) if each)
            return _failed(f"{step_name(call.step)} could not be measured between {len(call.gang)} nodes: {why}", blames_node=False)

    def _gang_work(self, call: StepCall) -> CheckJob:
        # All nodes of the box that enter together share it. A spare has one of its own.
        box = call.assignment.id if call.at_work else box_of(call.assignment.gpr_id, call.assignment.run)
        work = CheckJob(
            owner=f"{box}.{call.attempt}",
            epoch=0,
            step=call.step,
            attempt=call.attempt,
            nodes=call.gang,
            image=self._probe_image(call),
            command=(),
            deadline_s=GANG_S,
            is_guest=bool(call.at_work),
            pull_secret=self._pull_secret_of(call),
        )
        gang = {"hosts": work.hosts, "count": len(work.nodes), "fan_out": GANG_FAN_OUT, "port": GANG_PORT, "within_s": GANG_TRY_S}
        return msgspec.structs.replace(work, command=_command({"gang": gang, "files": RDMA_FILES}))

    # -- by the API ----------------------------------------------------------------------------------------------------

    def _volumes(self, call: StepCall) -> StepProgress:
        try:
            found = self._volume_looks.poll(call)
        except ClusterError as error:
            return _failed(f"which volumes are attached to node {call.node.view.name} cannot be seen: {error}", blames_node=False)
        return StepProgress(status=StepStatus.RUNNING) if found is None else _result_of(found)

    def _clean(self, call: StepCall) -> StepProgress:
        if call.assignment.is_repair:
            self.repairs.withdraw(call)
        name, gpr_id = call.node.view.name, call.assignment.gpr_id
        node = self._api.get(node_path(name), Node)
        pods = self._api.get("/api/v1/pods", PodList, labelSelector=f"{POD_GPR}={gpr_id}", fieldSelector=f"spec.nodeName={name}").items
        left = sorted(pod.label for pod in pods_to_drain(pods, call))
        marks = verdicts.marks_left(node, call)
        return _result_of(
            [expect("pods_left", len(left), 0, text=", ".join(left)), expect("marks_left", len(marks), 0, text=", ".join(marks))]
        )


def _result_of(results: Sequence[CheckResult]) -> StepProgress:
    found = tuple(results)
    lines = [f"{result.verdict} {f'{result.gpu} ' if result.gpu else ''}{sentence(result)}" for result in found]
    return StepProgress(status=StepStatus.OK if is_good(found) else StepStatus.FAILED, log="\n".join(lines), results=found)


def _failed(log: str, *, blames_node: bool = True) -> StepProgress:
    return StepProgress(status=StepStatus.FAILED, log=log, blames_node=blames_node)


def _command(plan: Mapping[str, object]) -> tuple[str, ...]:
    return ("python3", "-c", PROBE, msgspec.json.encode(plan).decode())


def _smi() -> list[list[str]]:
    old = [readings.OLD_NAMES.get(field, field) for field in readings.GPU_FIELDS]
    return [["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"] for fields in (readings.GPU_FIELDS, old)]


def _smi_rows() -> list[list[str]]:
    return [["nvidia-smi", f"--query-remapped-rows={','.join(readings.ROW_FIELDS)}", "--format=csv,noheader,nounits"]]


def _smi_processes() -> list[list[str]]:
    return [["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]]


def _gpus(call: StepCall) -> int:
    return len(call.assignment.gpus)
