"""Validates what a job is to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any, Final

from core.errors import InvalidInput
from gpr.jobs.manifest_text import TOLD
from gpr.models.jobs import RETRIES_MAX, USER_ID_DEFAULT
from protocol.manifests.workloads import faults_told
from protocol.references import is_image, is_object_name
from protocol.tenancy.workloads import WorkloadKind

WORDS_MAX, WORD_MAX_CHARS, ENV_MAX, VOLUMES_MAX = 200, 16_384, 200, 20
WORDS_MAX_CHARS = 65_536  # of a command, and of all variables
USER_ID_MAX = 2**31 - 1
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII)
# These say where the pods of the job find each other; see protocol/tenancy/job_objects.py.
_RENDEZVOUS: Final = frozenset({"MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "NPROC_PER_NODE"})
OWN_VARIABLES: Final = _RENDEZVOUS | {f"PET_{name}" for name in _RENDEZVOUS} | {"EGS_ENDS_AT"}
OWN_PATHS: Final = ("/dev/shm", "/etc/egs")  # noqa: S108  # paths in the job's own pods
IMAGE_MUST: Final = "Must be a reference of an image, without spaces, as registry.example/team/train:1.0."
NAME_MUST: Final = "Must be a name of Kubernetes: a-z, 0-9, - and dots."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    kind: str = WorkloadKind.JOB.value
    image: str = ""
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    volumes: dict[str, str] = field(default_factory=dict)
    pull_secret: str = ""
    user_id: int = USER_ID_DEFAULT
    retries: int = 0
    checkpoint: list[str] = field(default_factory=list)
    objects_wanted: list[dict[str, Any]] = field(default_factory=list)
    namespace: str = ""
    releases_box: bool = True


FIELDS: Final = tuple(JobSpec.__dataclass_fields__)
# A manifest says these itself.
SAID_BY_MANIFEST: Final = ("image", "command", "env", "secrets", "volumes", "pull_secret", "user_id", "retries", "checkpoint")


def job_check(spec: JobSpec) -> None:
    """Raises InvalidInput with all faults."""
    errors: dict[str, list[str]] = {}
    for name, text in _faults(spec):
        errors.setdefault("manifest" if name == "objects_wanted" else name, []).append(text)
    if errors:
        raise InvalidInput(errors)


def _faults(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if spec.kind == WorkloadKind.MANIFEST:
        for fault in faults_told(spec.objects_wanted)[:TOLD]:
            yield "objects_wanted", fault
        unsaid = JobSpec()
        for name in SAID_BY_MANIFEST:
            if getattr(spec, name) != getattr(unsaid, name):
                yield name, "The manifest says this itself: leave it out."
    else:
        if spec.objects_wanted:
            yield "objects_wanted", f"Only a job of kind {WorkloadKind.MANIFEST} has one."
        if not is_image(spec.image):
            yield "image", IMAGE_MUST
        yield from _container_faults(spec)
    if not 0 <= spec.retries <= RETRIES_MAX:
        yield "retries", f"Must be from 0 to {RETRIES_MAX}."
    if not 1 <= spec.user_id <= USER_ID_MAX:
        yield "user_id", f"Must be from 1 to {USER_ID_MAX}: pods of a workspace do not run as root."
    if spec.namespace and not is_object_name(spec.namespace):
        yield "namespace", NAME_MUST


def _container_faults(spec: JobSpec) -> Iterator[tuple[str, str]]:
    for name in ("command", "checkpoint"):
        words: list[str] = getattr(spec, name)
        if len(words) > WORDS_MAX or any(len(word) > WORD_MAX_CHARS for word in words) or sum(map(len, words)) > WORDS_MAX_CHARS:
            yield name, f"Must have at most {WORDS_MAX} words and {WORDS_MAX_CHARS} characters."
        if any("\x00" in word for word in words) or (words and not words[0].strip()):
            yield name, "Must begin with a program, and hold no NUL characters."
    if len(spec.env) > ENV_MAX or sum(len(name) + len(value) for name, value in spec.env.items()) > WORDS_MAX_CHARS:
        yield "env", f"Must have at most {ENV_MAX} variables and {WORDS_MAX_CHARS} characters."
    for name, value in spec.env.items():
        if not _VARIABLE.match(name) or "\x00" in value:
            yield "env", f"{name[:60]} is no name of a variable, or its value holds NUL characters."
        elif name in OWN_VARIABLES:
            yield "env", f"EGS sets {name} itself."
    for field_name, names in (("secrets", spec.secrets), ("volumes", list(spec.volumes)), ("pull_secret", [spec.pull_secret or "none"])):
        if len(names) > VOLUMES_MAX:
            yield field_name, f"Must be at most {VOLUMES_MAX}."
        if not all(map(is_object_name, names)):
            yield field_name, NAME_MUST
    paths = [path.rstrip("/") for path in spec.volumes.values()]
    for path in paths:
        if not _may_be_mounted_at(path):
            yield "volumes", f"{path[:60]} is no path where it can be mounted, as /data."
    if len(set(paths)) < len(paths):
        yield "volumes", "Two of them have the same path."


def _may_be_mounted_at(path: str) -> bool:
    """A path with "..", "//" or the like would hide which place it means."""
    is_plain = path.startswith("/") and path == normpath(path) and path.isprintable() and ":" not in path
    return is_plain and len(path) <= 500 and path not in OWN_PATHS
