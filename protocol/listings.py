"""Lists that the hub tells an agent whole, unless the agent has just this one: one exchange for all of them.

The agent says the digest of the list that it has, the hub the digest of the list as it is now; the list itself comes along where the two
differ. Both sides work by what is declared here, so a further list takes its three fields in the messages and one line. Fields keep their
names and defaults: a side that is one version older leaves them out, and is understood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from protocol.assignments import Assignment
from protocol.cluster_requests import AutoTemplate, ClusterRequestState
from protocol.life_marks import LifeMark
from protocol.sync import SyncReply, SyncRequest
from protocol.workspaces import Workspace


class Listed(Protocol):
    """An item of a list that is told by its digest."""

    @property
    def id(self) -> str: ...


def set_digest(listed: Sequence[Listed]) -> str:
    """SHA-256 over the set in order of id, so that both sides can compare what they hold."""
    ordered = sorted(listed, key=lambda item: item.id)
    return hashlib.sha256(msgspec.json.encode(ordered, order="deterministic")).hexdigest()


Item = TypeVar("Item", bound=Listed)


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """Fields of SyncReply: `name`, the items, and `digest`, theirs. `have`: of SyncRequest, the digest that the agent has.

    `is_numbered`: a change of the list raises the cluster's generation, so the hub reads it only for an agent that knows an older one.
    `ends_with_hub`: an older hub, which knows of no such list, ends what a newer one told before it; else the agent keeps that.
    """

    name: str
    digest: str
    have: str
    is_numbered: bool = False
    ends_with_hub: bool = False

    def tell(self, asked: SyncRequest, generation: int, read: Callable[[], Sequence[Item]]) -> dict[str, Any]:
        """The hub's side: both fields of its answer. An agent that has None does not want the list now."""
        have: str | None = getattr(asked, self.have)
        if have is None or (self.is_numbered and have and asked.known_generation == generation):
            return {self.digest: have or "", self.name: None}
        items = tuple(read())
        digest = set_digest(items)
        return {self.digest: digest, self.name: None if digest == have else items}


# The desired set. The agent keeps it in its state and not in a HeardList, for it must outlive the process.
ASSIGNMENTS: Final[Listing[Assignment]] = Listing("assignments", digest="digest", have="have_digest")
WORKSPACES: Final[Listing[Workspace]] = Listing("workspaces", digest="workspaces_digest", have="have_workspaces", is_numbered=True)
CLUSTER_REQUESTS: Final[Listing[ClusterRequestState]] = Listing("claims", digest="claims_digest", have="have_claims")
LIFE: Final[Listing[LifeMark]] = Listing("life", digest="life_digest", have="have_life")
TEMPLATES: Final[Listing[AutoTemplate]] = Listing(
    "templates", digest="templates_digest", have="have_templates", is_numbered=True, ends_with_hub=True
)


@dataclass(slots=True)
class HeardList(Generic[Item]):
    """The agent's side: the list as the hub last told it. It is not written down: an agent that starts again asks for it."""

    listing: Listing[Item]
    digest: str = ""
    told: tuple[Item, ...] | None = None  # None: the hub has not told it

    @property
    def items(self) -> tuple[Item, ...]:
        return self.told or ()

    def hear(self, asked: SyncRequest, reply: SyncReply) -> bool:
        """Take in an answer that counts. True where the list is another one now."""
        if getattr(asked, self.listing.have) is None:
            return False
        digest: str = getattr(reply, self.listing.digest)
        told: tuple[Item, ...] | None = getattr(reply, self.listing.name)
        if told is None and (digest or self.told is None or not self.listing.ends_with_hub):
            return False
        self.digest, self.told = digest, told
        return True
