"""Describes pods of workspaces that hold GPUs or ask for them. Their lane may lose a message: what is not answered is sent again.

The agent hides what looks like a secret in arguments and variables before it sends them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from protocol.scalars import Count, Id, Moment, NodeName, Word

PODS_PATH: Final = "/agent/v1/pods"
EVERY_S: Final = 3.0  # between looks of an agent
PODS_MAX: Final = 500  # in one message
PODS_TOLD_MAX: Final = 20_000  # of a cluster; the agent leaves out what is beyond it
OWNERS_MAX, GPUS_MAX, RESOURCES_MAX, ARGUMENTS_MAX, VARIABLES_MAX = 8, 64, 20, 40, 12
NAME_MAX_CHARS: Final = 253
TEXT_MAX_CHARS: Final = 300  # of an argument, an image and a reason

Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX_CHARS)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX_CHARS)]
Label = Annotated[str, msgspec.Meta(max_length=256)]


class Hold(StrEnum):
    """Names the cause that keeps a pod from running."""

    NONE = ""
    GATE = "gate"  # it waits for a box
    SCHEDULER = "scheduler"  # it was let in, and no node takes it yet
    IMAGE = "image"
    CONTAINER = "container"  # its containers are made, or fail


class PodOwner(msgspec.Struct, frozen=True, kw_only=True):
    api: Label
    kind: Label
    name: Label
    uid: Label


class PodSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    uid: Id
    namespace: Id
    name: Name
    # The nearest first; the last one is the workload. None: the pod itself is.
    owners: Annotated[tuple[PodOwner, ...], msgspec.Meta(max_length=OWNERS_MAX)] = ()
    phase: Word = ""  # as in Kubernetes
    hold: Word = Hold.NONE
    why: Text = ""  # the hold as a sentence, without names of other workspaces' things
    gpr_id: Annotated[str, msgspec.Meta(max_length=63)] = ""
    node: NodeName | None = None
    gpu_count: Count = 0
    gpus: Annotated[tuple[Id, ...], msgspec.Meta(max_length=GPUS_MAX)] = ()  # as in the inventory; fewer than it has: not known
    requests: Annotated[dict[Label, Label], msgspec.Meta(max_length=RESOURCES_MAX)] = {}
    image: Text = ""
    arguments: Annotated[tuple[Text, ...], msgspec.Meta(max_length=ARGUMENTS_MAX)] = ()  # command and arguments
    variables: Annotated[dict[Label, Label], msgspec.Meta(max_length=VARIABLES_MAX)] = {}  # a few that say how work is divided
    model: Label = ""
    role: Label = ""  # as worker or launcher
    rank: Count | None = None
    restarts: Count = 0
    created_s: Moment | None = None
    started_s: Moment | None = None


class PodsRequest(msgspec.Struct, frozen=True, kw_only=True):
    session_epoch: int
    pods: Annotated[tuple[PodSeen, ...], msgspec.Meta(max_length=PODS_MAX)] = ()  # new ones and changed ones
    gone: Annotated[tuple[Id, ...], msgspec.Meta(max_length=PODS_TOLD_MAX)] = ()
    there: Annotated[tuple[Id, ...], msgspec.Meta(max_length=PODS_TOLD_MAX)] | None = None  # all uids; None: not said in this message


class PodsReply(msgspec.Struct, frozen=True, kw_only=True):
    refused: int = 0  # pods of namespaces that are bound to no workspace
    again: bool = False  # the hub does not know all that are there: the agent sends all anew
