"""Describes jobs of GPRs: what the agent runs in an open box, how it goes there, and what it prints."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from protocol.scalars import Id, Number, Word

LOGS_PATH = "/agent/v1/logs"
WORKLOADS_SEEN_MAX = 200  # in one message
LOG_CHUNK_MAX_CHARS = 64 * 1024
NAME_MAX_CHARS = 50  # of the objects; pods add an index and a suffix to it
NOTEBOOK_PORT = 8888
NOTEBOOK_HOME = "/home/jovyan"  # where images of JupyterLab have it


class WorkloadKind(StrEnum):
    JOB = "Job"
    JOB_SET = "JobSet"
    PYTORCH_JOB = "PyTorchJob"
    MPI_JOB = "MPIJob"
    NOTEBOOK = "Notebook"  # a Job of one pod that serves JupyterLab
    MANIFEST = "Manifest"  # objects of the user's own


FINISHING = frozenset({"Job", "JobSet", "PyTorchJob", "MPIJob"})


class JobWorkload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It is made when the box of this run is open, and deleted when that box closes."""

    id: Id  # of the job
    gpr_id: Id
    run: int
    slice: Id
    namespace: Word  # "": the workspace has none in this cluster
    name: Word  # of its objects, another one in each run
    nodes: int
    kind: str = WorkloadKind.JOB
    image: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()  # of the namespace, as environment
    volumes: dict[str, str] = {}  # by name of the PersistentVolumeClaim: where it is mounted
    pull_secret: str = ""
    user_id: int = 1000
    retries: int = 0
    checkpoint: tuple[str, ...] = ()  # a command that runs in each pod before it is ended
    rdma: bool = False
    objects: tuple[dict[str, Any], ...] = ()  # of a manifest
    token: str = ""  # of a notebook


class WorkloadPhase(StrEnum):
    REFUSED = "REFUSED"  # the cluster takes no such object; it is tried again
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class WorkloadSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: Id
    run: int
    phase: WorkloadPhase
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""  # a sentence for people; "" when it runs or succeeded
    pods_running: Number = 0
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""  # where it runs
    url: Annotated[str, msgspec.Meta(max_length=300)] = ""  # of a notebook behind the cluster's ingress


class LogAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody reads the output of this pod now."""

    id: Id  # of the job
    run: int
    rank: Number


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """The hub stores it only if `since` is as far as it has read; the answer says how far that is."""

    session_epoch: int
    id: Id
    run: int
    rank: Number
    since: Annotated[str, msgspec.Meta(max_length=40)] = ""  # the time of the last line before, as the cluster writes it; "": the beginning
    until: Annotated[str, msgspec.Meta(max_length=40)] = ""
    text: Annotated[str, msgspec.Meta(max_length=LOG_CHUNK_MAX_CHARS)] = ""


class LogReply(msgspec.Struct, frozen=True, kw_only=True):
    until: str
