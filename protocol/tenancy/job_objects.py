"""Builds the objects of a job. Controllers make its pods, so that they meet the same admission policies as all pods of the workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from protocol.cluster_names import ENDS_AT, GATE, GPU, INDEX_OF_POD, JOB, JOB_BOX, JOB_OF_POD, JOB_SET_OF_POD, TRAINING_OF_POD, box_of
from protocol.tenancy.notebooks import NO_INGRESS, IngressWay, as_notebook, notebook_parts
from protocol.tenancy.workloads import FINISHING, JobWorkload, WorkloadKind

Object = dict[str, Any]

RANK: Final = f"metadata.annotations['{INDEX_OF_POD}']"
NUMBER: Final = "metadata.labels['training.kubeflow.org/replica-index']"  # among the workers of a training job
PORT: Final = 29500  # of the rendezvous
PYTORCH, MAIN = "pytorch", "main"  # names of containers; the operator of PyTorchJobs wants its own
JOB_SET_PART: Final = "node"
MPI_USER_HOME: Final = "/home/mpiuser"
# An eviction or a lost node is no failure of the job.
IGNORES_DISRUPTION: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
VERSIONS: Final = {
    WorkloadKind.JOB: "batch/v1",
    WorkloadKind.JOB_SET: "jobset.x-k8s.io/v1alpha2",
    WorkloadKind.PYTORCH_JOB: "kubeflow.org/v1",
    WorkloadKind.MPI_JOB: "kubeflow.org/v2beta1",
}


@dataclass(frozen=True, slots=True)
class BoxFacts:
    """Holds the facts about the job's box that its objects need."""

    gpus_per_node: int
    grace_s: int  # between the eviction at the end of the box and its end by force
    rdma: str = ""  # the device that each pod gets, too
    ingress: IngressWay = NO_INGRESS


def objects_of(work: JobWorkload, box: BoxFacts) -> list[Object]:
    """Returns objects in the order in which the agent makes them."""
    match work.kind:
        case WorkloadKind.JOB:
            made = [*_service(work), _object(work, _job_spec(work, box, retries=work.retries * work.nodes))]
        case WorkloadKind.JOB_SET:
            made = [_object(work, _job_set(work, box))]
        case WorkloadKind.PYTORCH_JOB:
            made = [_object(work, _pytorch_job(work, box))]
        case WorkloadKind.MPI_JOB:
            made = [_object(work, _mpi_job(work, box))]
        case WorkloadKind.NOTEBOOK:
            spec = _job_spec(work, box, retries=work.retries)
            as_notebook(spec["template"]["spec"], work)
            made = [_object(work, spec), *notebook_parts(work, box.ingress)]
        case _:
            made = [dict(each) for each in work.objects]
    return [_marked(each, work) for each in made]


def main_of(objects: list[Object]) -> Object | None:
    """Returns the object that says how the job ends."""
    return next((each for each in objects if each["kind"] in FINISHING), None)


def owner_label(kind: str) -> str:
    """Returns the label by which the operator of this kind marks all pods of one object, with the object's name as its value."""
    return {
        WorkloadKind.JOB_SET: JOB_SET_OF_POD,
        WorkloadKind.PYTORCH_JOB: TRAINING_OF_POD,
        WorkloadKind.MPI_JOB: TRAINING_OF_POD,
    }.get(WorkloadKind(kind), JOB_OF_POD)


def pod_selector(kind: str, name: str, rank: int) -> str:
    """Selects the pod of this rank where a label says it, or else all pods of the object."""
    of = f"{owner_label(kind)}={name}"
    return f"{of},{INDEX_OF_POD}={rank}" if kind == WorkloadKind.JOB_SET else of


def _marked(made: Object, work: JobWorkload) -> Object:
    metadata = made.get("metadata", {})
    labels = {**metadata.get("labels", {}), JOB: work.id, JOB_BOX: box_of(work.gpr_id, work.run)}
    return {**made, "metadata": {**metadata, "namespace": work.namespace, "labels": labels}}


def _object(work: JobWorkload, spec: Object) -> Object:
    kind = WorkloadKind.JOB if work.kind == WorkloadKind.NOTEBOOK else WorkloadKind(work.kind)
    return {"apiVersion": VERSIONS[kind], "kind": kind.value, "metadata": {"name": work.name}, "spec": spec}


def _service(work: JobWorkload) -> list[Object]:
    """The pods find each other by its name. It has no address of its own."""
    if work.nodes == 1:
        return []
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_OF_POD: work.name}}
    return [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": work.name}, "spec": spec}]


def _job_spec(work: JobWorkload, box: BoxFacts, *, retries: int, host: str = "") -> Object:
    first = host or (f"{work.name}-0.{work.name}" if work.nodes > 1 else "localhost")
    pod = _pod(work, box, env=_rendezvous(work, box, first))
    if work.nodes > 1 and not host:
        pod["subdomain"] = work.name
    return {
        "completionMode": "Indexed",
        "completions": work.nodes,
        "parallelism": work.nodes,
        "backoffLimit": retries,
        "podFailurePolicy": IGNORES_DISRUPTION,
        "template": {"spec": pod},
    }


def _job_set(work: JobWorkload, box: BoxFacts) -> Object:
    spec = _job_spec(work, box, retries=0, host=f"{work.name}-{JOB_SET_PART}-0-0.{work.name}")
    return {
        "network": {"enableDNSHostnames": True, "subdomain": work.name},
        "failurePolicy": {"maxRestarts": work.retries},
        "replicatedJobs": [{"name": JOB_SET_PART, "replicas": 1, "template": {"spec": spec}}],
    }


def _pytorch_job(work: JobWorkload, box: BoxFacts) -> Object:
    """All pods are workers. Beside a master the operator gives workers a container that Pod Security `restricted` refuses, and the job
    would end with its master.
    """
    first = f"{work.name}-worker-0" if work.nodes > 1 else "localhost"
    pod = _pod(work, box, container=PYTORCH, env=_rendezvous(work, box, first, rank=NUMBER))
    worker = {"replicas": work.nodes, "restartPolicy": "OnFailure" if work.retries else "Never", "template": {"spec": pod}}
    # With a limit of 0 the operator would delete the pod that failed, too, and nobody could say why.
    limit = {"backoffLimit": work.retries} if work.retries else {}
    return {
        "nprocPerNode": str(box.gpus_per_node),
        "runPolicy": {"cleanPodPolicy": "Running", **limit},
        "pytorchReplicaSpecs": {"Worker": worker},
    }


def _mpi_job(work: JobWorkload, box: BoxFacts) -> Object:
    """The launcher has no GPU, so it waits at no gate. The paths are those of images that run without root."""
    worker = _pod(work, box, command=["/usr/sbin/sshd", "-De", "-f", f"{MPI_USER_HOME}/.sshd_config"])
    launcher = _pod(work, replace(box, gpus_per_node=0, rdma=""))
    return {
        "slotsPerWorker": box.gpus_per_node,
        "sshAuthMountPath": f"{MPI_USER_HOME}/.ssh",
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": work.retries},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": launcher}},
            "Worker": {"replicas": work.nodes, "template": {"spec": worker}},
        },
    }


def _rendezvous(work: JobWorkload, box: BoxFacts, first: str, *, rank: str = RANK) -> list[Object]:
    """Sets the variables for torchrun, which reads PET_*, and for programs that read the plain names. `rank`: the field of each pod that
    has its rank.
    """
    nodes, gpus = str(work.nodes), str(box.gpus_per_node)
    words = {"MASTER_ADDR": first, "MASTER_PORT": str(PORT), "NNODES": nodes, "NPROC_PER_NODE": gpus}
    words |= {f"PET_{name}": value for name, value in words.items()}
    return [
        *({"name": name, "value": value} for name, value in words.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": rank}}} for name in ("NODE_RANK", "PET_NODE_RANK")),
    ]


def _pod(
    work: JobWorkload,
    box: BoxFacts,
    *,
    env: list[Object] | None = None,
    container: str = MAIN,
    command: list[str] | None = None,
) -> Object:
    devices = {GPU: str(box.gpus_per_node), **({box.rdma: "1"} if box.rdma else {})}
    limits = {name: amount for name, amount in devices.items() if amount != "0"}
    volumes = {f"claim-{place}": (claim, path) for place, (claim, path) in enumerate(sorted(work.volumes.items()))}
    main: Object = {
        "name": container,
        "image": work.image,
        "env": [
            *({"name": name, "value": value} for name, value in sorted(work.env.items())),
            *(env or []),
            {"name": "EGS_ENDS_AT", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{ENDS_AT}']"}}},
        ],
        "envFrom": [{"secretRef": {"name": name}} for name in work.secrets],
        "resources": {"limits": limits},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # the pod's own
            {"name": "egs", "mountPath": "/etc/egs", "readOnly": True},
            *({"name": name, "mountPath": path} for name, (_, path) in volumes.items()),
        ],
    }
    if words := command or list(work.command):
        main["command"] = words
    if work.checkpoint:
        main["lifecycle"] = {"preStop": {"exec": {"command": list(work.checkpoint)}}}
    ends_at = {"path": "ends-at", "fieldRef": {"fieldPath": f"metadata.annotations['{ENDS_AT}']"}}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(1, box.grace_s),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": work.user_id,
            "runAsGroup": work.user_id,
            "fsGroup": work.user_id,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [main],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "egs", "downwardAPI": {"items": [ends_at]}},
            *({"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, (claim, _) in volumes.items()),
        ],
        **({"schedulingGates": [{"name": GATE}]} if limits else {}),  # not every Kubernetes has a policy that adds it
        **({"imagePullSecrets": [{"name": work.pull_secret}]} if work.pull_secret else {}),
    }
