"""Makes pods of a simulated cluster that fit its readings: each box runs one workload of the kind that its GPUs look like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from protocol.assignments import Desired
from protocol.cluster_names import GPU
from protocol.pods import Hold, PodOwner, PodSeen
from protocol.tenancy.workspaces import Workspace
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState
from worker_agent.telemetry.simulated import SimulatedTelemetry, WorkKind

MODELS: Final = {
    WorkKind.TRAINING: ("llama-3.1-70b", "qwen3-32b", "mixtral-8x22b"),
    WorkKind.FINE_TUNING: ("llama-3.1-8b", "whisper-large-v3", "gemma-3-12b"),
    WorkKind.INFERENCE: ("qwen3-32b", "llama-3.1-8b", "bge-m3"),
    WorkKind.FORGOTTEN: ("",),
}
IMAGES: Final = {
    WorkKind.TRAINING: "nvcr.io/nvidia/nemo:26.09",
    WorkKind.FINE_TUNING: "registry.example/ml/finetune:2.4",
    WorkKind.INFERENCE: "docker.io/vllm/vllm-openai:v0.14.0",
    WorkKind.FORGOTTEN: "quay.io/jupyter/pytorch-notebook:cuda12",
}
NOTEBOOK: Final = ("start-notebook.py", "--IdentityProvider.token=(hidden)")


@dataclass(frozen=True, slots=True)
class SimulatedBox:
    record: GpuRecord  # of any of its GPUs
    gpus: Mapping[str, tuple[str, ...]]  # by node, in order


class SimulatedPods:
    def __init__(self, telemetry: SimulatedTelemetry) -> None:
        self._telemetry = telemetry

    def look(self, nodes: Mapping[str, NodeState], workspaces: Sequence[Workspace]) -> Iterator[PodSeen]:
        spaces = {
            each.id: next((binding.namespace for binding in each.bindings if binding.desired == Desired.PRESENT), "") for each in workspaces
        }
        for box in _boxes(nodes):
            if namespace := spaces.get(box.record.slice, ""):
                yield from self.pods_of(box, namespace)

    def pods_of(self, box: SimulatedBox, namespace: str) -> Iterator[PodSeen]:
        record, kind = box.record, self._telemetry.kind_of(box.record)
        models = MODELS[kind]
        model = models[int(self._telemetry.luck(record.gpr_id, "model") * len(models))]
        name = (
            f"{model.replace('.', '-') or 'notebook'}-{record.gpr_id[:5]}" if kind is not WorkKind.FORGOTTEN else f"lab-{record.gpr_id[:5]}"
        )
        owners, ranks = _owners(kind, name, f"{record.gpr_id}.{record.run}"), count()
        for node, gpus in box.gpus.items():
            for own in [(gpu,) for gpu in gpus] if kind is WorkKind.INFERENCE else [gpus]:
                rank = next(ranks)
                yield self._pod(box, namespace, name, owners, node, own, rank, kind=kind, model=model)

    def _pod(
        self,
        box: SimulatedBox,
        namespace: str,
        name: str,
        owners: tuple[PodOwner, ...],
        node: str,
        gpus: tuple[str, ...],
        rank: int,
        *,
        kind: WorkKind,
        model: str,
    ) -> PodSeen:
        record = box.record
        is_open, is_waiting = record.phase is GpuPhase.OPEN, record.phase is GpuPhase.ISOLATED
        return PodSeen(
            uid=str(uuid5(NAMESPACE_OID, f"{record.gpr_id}/{record.run}/{rank}")),
            namespace=namespace,
            name=f"{name}-{rank}",
            owners=owners,
            phase="Pending" if is_waiting else "Running" if is_open else "Terminating",
            hold=Hold.GATE if is_waiting else Hold.NONE,
            why="Waits until the checks of its box have passed." if is_waiting else "",
            gpr_id="" if is_waiting else record.gpr_id,
            node=None if is_waiting else node,
            gpu_count=len(gpus),
            gpus=() if is_waiting else gpus,
            requests={"cpu": str(12 * len(gpus)), "memory": f"{120 * len(gpus)}Gi", GPU: str(len(gpus))},
            image=IMAGES[kind],
            arguments=_arguments(kind, model, len(box.gpus), len(gpus)),
            variables={"WORLD_SIZE": str(sum(map(len, box.gpus.values())))} if kind is WorkKind.TRAINING else {},
            model=model,
            role="predictor" if kind is WorkKind.INFERENCE else "" if kind is WorkKind.FORGOTTEN else "worker",
            rank=rank,
            created_s=record.active_s,
            started_s=record.active_s if not is_waiting else None,
        )


def _boxes(nodes: Mapping[str, NodeState]) -> Iterator[SimulatedBox]:
    found: dict[tuple[str, int, GpuPhase], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    record_of: dict[tuple[str, int, GpuPhase], GpuRecord] = {}
    for name in sorted(nodes):
        for gpu in nodes[name].view.gpus:
            record = nodes[name].records.get(gpu.uuid)
            if record is not None and record.phase is not GpuPhase.FREE:
                key = (record.gpr_id, record.run, GpuPhase(record.phase))
                record_of.setdefault(key, record)
                found[key][name].append(gpu.uuid)
    for key, by_node in found.items():
        yield SimulatedBox(record_of[key], {name: tuple(gpus) for name, gpus in by_node.items()})


def _owners(kind: WorkKind, name: str, of: str) -> tuple[PodOwner, ...]:
    chain = {
        WorkKind.TRAINING: (("batch/v1", "Job", f"{name}-worker"), ("jobset.x-k8s.io/v1alpha2", "JobSet", name)),
        WorkKind.FINE_TUNING: (("kubeflow.org/v1", "PyTorchJob", name),),
        WorkKind.INFERENCE: (
            ("apps/v1", "ReplicaSet", f"{name}-predictor-7c9"),
            ("apps/v1", "Deployment", f"{name}-predictor"),
            ("serving.kserve.io/v1beta1", "InferenceService", name),
        ),
        WorkKind.FORGOTTEN: (("apps/v1", "StatefulSet", name),),
    }[kind]
    return tuple(PodOwner(api=api, kind=each, name=named, uid=str(uuid5(NAMESPACE_OID, f"{each}/{of}"))) for api, each, named in chain)


def _arguments(kind: WorkKind, model: str, node_count: int, gpu_count: int) -> tuple[str, ...]:
    match kind:
        case WorkKind.TRAINING:
            of_nodes = ("--nnodes", str(node_count), "--nproc-per-node", str(gpu_count))
            return ("torchrun", *of_nodes, "pretrain.py", "--model", model, "--tensor-parallel-size", str(gpu_count))
        case WorkKind.FINE_TUNING:
            return ("accelerate", "launch", "finetune.py", "--model", model, "--lora-rank", "64", "--wandb-api-key", "(hidden)")
        case WorkKind.INFERENCE:
            return ("--model", model, "--max-model-len", "32768", "--tensor-parallel-size", "1")
        case _:
            return NOTEBOOK
