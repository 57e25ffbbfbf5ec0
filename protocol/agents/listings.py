"""The hub sends a list only if its digest differs from the agent's.

Names and defaults of the fields never change, because a side that is one version older leaves unknown fields out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from protocol.agents.sync import SyncReply, SyncRequest
from protocol.assignments import Assignment
from protocol.tenancy.cluster_requests import AutoTemplate, ClusterRequestState
from protocol.tenancy.life_marks import LifeMark
from protocol.tenancy.workloads import JobWorkload
from protocol.tenancy.workspaces import Workspace


class Listed(Protocol):
    @property
    def id(self) -> str: ...


def set_digest(listed: Sequence[Listed]) -> str:
    """The digest is the SHA-256 of the items in order of id."""
    ordered = sorted(listed, key=lambda item: item.id)
    return hashlib.sha256(msgspec.json.encode(ordered, order="deterministic")).hexdigest()


Item = TypeVar("Item", bound=Listed)


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    name: str  # in SyncReply: the items
    digest: str  # in SyncReply: the digest of the items
    have: str  # in SyncRequest: the digest that the agent has
    # A change of the list raises the cluster's generation, so the hub reads the list only for an agent with an older generation.
    is_numbered: bool = False
    # An older hub does not know this list. True: the agent drops the list when it talks to such a hub; False: it keeps the list.
    ends_with_hub: bool = False

    def tell(self, asked: SyncRequest, generation: int, read: Callable[[], Sequence[Item]]) -> dict[str, Any]:
        """Return both fields of the hub's answer. An agent that sends None does not want the list now."""
        have: str | None = getattr(asked, self.have)
        if have is None or (self.is_numbered and have and asked.known_generation == generation):
            return {self.digest: have or "", self.name: None}
        items = tuple(read())
        digest = set_digest(items)
        return {self.digest: digest, self.name: None if digest == have else items}


# The desired set. The agent keeps it in its state instead of a ReceivedList, because it must outlive the process.
ASSIGNMENTS: Final[Listing[Assignment]] = Listing("assignments", digest="digest", have="have_digest")
WORKSPACES: Final[Listing[Workspace]] = Listing("workspaces", digest="workspaces_digest", have="have_workspaces", is_numbered=True)
CLUSTER_REQUESTS: Final[Listing[ClusterRequestState]] = Listing("claims", digest="claims_digest", have="have_claims")
LIFE: Final[Listing[LifeMark]] = Listing("life", digest="life_digest", have="have_life")
TEMPLATES: Final[Listing[AutoTemplate]] = Listing(
    "templates", digest="templates_digest", have="have_templates", is_numbered=True, ends_with_hub=True
)
WORKLOADS: Final[Listing[JobWorkload]] = Listing(
    "workloads", digest="workloads_digest", have="have_workloads", is_numbered=True, ends_with_hub=True
)


@dataclass(slots=True)
class ReceivedList(Generic[Item]):
    """The copy is in memory only."""

    listing: Listing[Item]
    digest: str = ""
    told: tuple[Item, ...] | None = None  # None: the hub has not sent it yet

    @property
    def items(self) -> tuple[Item, ...]:
        return self.told or ()

    def hear(self, asked: SyncRequest, reply: SyncReply) -> bool:
        """Return whether the list changed."""
        if getattr(asked, self.listing.have) is None:
            return False
        digest: str = getattr(reply, self.listing.digest)
        told: tuple[Item, ...] | None = getattr(reply, self.listing.name)
        if told is None and (digest or self.told is None or not self.listing.ends_with_hub):
            return False
        self.digest, self.told = digest, told
        return True
