"""Writes a Kubernetes Job that fills a box: a pod on each node, with all GPUs that the box has there."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from protocol import cluster_names

NAME_MAX_CHARS = 50  # pods get a number behind it, and 63 characters in all
CPUS_A_GPU, MEMORY_GIB_A_GPU = 2, 8  # what any node has beside each of its GPUs
IMAGE = "nvcr.io/nvidia/pytorch:25.10-py3"


@dataclass(frozen=True, slots=True)
class ExampleJob:
    name: str
    namespace: str
    node_count: int
    gpus_per_node: int
    is_part: bool  # of each node: then a pod has to ask for CPU and memory
    grace_s: int  # from SIGTERM to the end by force

    @property
    def manifest(self) -> str:
        return "\n".join([*self._service(), *self._job()]) + "\n"

    def _service(self) -> list[str]:
        """Gives pods names, by which they find each other."""
        if self.node_count == 1:
            return []
        selector = f"  selector: {{{cluster_names.JOB_OF_POD}: {_text(self.name)}}}"
        spec = ["spec:", "  clusterIP: None", "  publishNotReadyAddresses: true", selector]
        return ["apiVersion: v1", "kind: Service", *self._metadata(), *spec, "---"]

    def _job(self) -> list[str]:
        several = [f"  completions: {self.node_count}", f"  parallelism: {self.node_count}", "  completionMode: Indexed"]
        return [
            "apiVersion: batch/v1",
            "kind: Job",
            *self._metadata(),
            "spec:",
            *(several if self.node_count > 1 else []),
            "  backoffLimit: 0",
            "  podFailurePolicy:",
            "    rules:  # an evicted pod did not fail: a new one waits for the rest of the time",
            "      - {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}",
            "  template:",
            "    spec:",
            *([f"      subdomain: {_text(self.name)}"] if self.node_count > 1 else []),
            "      restartPolicy: Never",
            f"      terminationGracePeriodSeconds: {self.grace_s}  # from SIGTERM to the end",
            f"      schedulingGates: [{{name: {cluster_names.GATE}}}]  # EGS lifts it when the box is open",
            "      securityContext:",
            "        runAsNonRoot: true",
            "        runAsUser: 1000",
            "        seccompProfile: {type: RuntimeDefault}",
            "      containers:",
            "        - name: main",
            f"          image: {IMAGE}  # yours",
            '          command: [sh, -c, "nvidia-smi -L; cat /etc/egs/ends-at"]  # yours, as:',
            f'          # command: [sh, -c, "{self._torchrun}"]',
            "          resources:",
            *self._requests(),
            f"            limits: {{{cluster_names.GPU}: {self.gpus_per_node}}}",
            "          securityContext:",
            "            allowPrivilegeEscalation: false",
            "            capabilities: {drop: [ALL]}",
            "          volumeMounts:",
            "            - {name: box, mountPath: /etc/egs}  # ends-at: when the box ends",
            "            - {name: shm, mountPath: /dev/shm}",
            "      volumes:",
            "        - name: box",
            "          downwardAPI:",
            f"            items: [{{path: ends-at, fieldRef: {{fieldPath: \"metadata.annotations['{cluster_names.ENDS_AT}']\"}}}}]",
            "        - {name: shm, emptyDir: {medium: Memory}}",
        ]

    def _metadata(self) -> list[str]:
        return ["metadata:", f"  name: {_text(self.name)}", f"  namespace: {_text(self.namespace)}"]

    @property
    def _torchrun(self) -> str:
        gpus = f"--nproc-per-node={self.gpus_per_node}"
        if self.node_count == 1:
            return f"torchrun --standalone {gpus} train.py"
        place = f"--node-rank=$JOB_COMPLETION_INDEX --master-addr={self.name}-0.{self.name}"
        return f"torchrun --nnodes={self.node_count} {gpus} {place} train.py"

    def _requests(self) -> list[str]:
        if not self.is_part:
            return []
        cpus, memory_gib = CPUS_A_GPU * self.gpus_per_node, MEMORY_GIB_A_GPU * self.gpus_per_node
        return [f"            requests: {{cpu: {cpus}, memory: {memory_gib}Gi}}  # more, where your part of the node has it"]


def _text(name: str) -> str:
    """Quoted where YAML would read something else, as of `123` or `no`."""
    return name if yaml.safe_load(name) == name else f'"{name}"'


def job_name(name: str) -> str:
    """Returns a name that Jobs, Services and labels may have."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (plain if plain[0].isalpha() else f"job-{plain}")[:NAME_MAX_CHARS].strip("-")
