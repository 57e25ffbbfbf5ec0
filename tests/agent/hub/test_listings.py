"""A list that the hub tells whole, unless the agent has just this one: both sides of the exchange, the same for every such list."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.agents.listings import (
    ASSIGNMENTS,
    CLUSTER_REQUESTS,
    LIFE,
    TEMPLATES,
    WORKLOADS,
    WORKSPACES,
    Listing,
    ReceivedList,
    set_digest,
)
from protocol.agents.sync import SyncReply, SyncRequest
from tests.agent.hub.test_messages import MESSAGES

IN_MEMORY: list[Listing[Any]] = [WORKSPACES, CLUSTER_REQUESTS, LIFE, TEMPLATES, WORKLOADS]
EACH = pytest.mark.parametrize("listing", [ASSIGNMENTS, *IN_MEMORY], ids=lambda listing: listing.name)
HEARD = pytest.mark.parametrize("listing", IN_MEMORY, ids=lambda listing: listing.name)
GENERATION = 7
REPLY = msgspec.convert(msgspec.to_builtins(MESSAGES["sync_reply"]), SyncReply)
SILENT = msgspec.structs.replace(
    REPLY,
    **{
        field: empty
        for each in (WORKSPACES, CLUSTER_REQUESTS, LIFE, TEMPLATES, WORKLOADS)
        for field, empty in ((each.name, None), (each.digest, ""))
    },
)


def asking(listing: Listing[Any], have: str | None, *, known_generation: int = GENERATION) -> SyncRequest:
    said: dict[str, Any] = {listing.have: have}
    return SyncRequest(session_epoch=1, boot_id="b", known_generation=known_generation, **said)


def answer(listing: Listing[Any], asked: SyncRequest, items: tuple[Any, ...]) -> SyncReply:
    """Returns what a hub says that has these items now."""
    return msgspec.structs.replace(SILENT, **listing.tell(asked, GENERATION + 1, lambda: items))


def exchange(heard: ReceivedList[Any], items: tuple[Any, ...]) -> bool:
    """A sync with a hub that has these items; true where they are news."""
    asked = asking(heard.listing, heard.digest)
    return heard.hear(asked, answer(heard.listing, asked, items))


def items_of(listing: Listing[Any]) -> tuple[Any, ...]:
    items: tuple[Any, ...] = getattr(REPLY, listing.name)
    assert items
    return items


@EACH
def test_the_list_is_told_with_its_digest_until_the_agent_has_just_this_one(listing: Listing[Any]) -> None:
    items = items_of(listing)
    digest = set_digest(items)

    for have in ("", "another"):
        assert listing.tell(asking(listing, have, known_generation=1), GENERATION, lambda: items) == {
            listing.digest: digest,
            listing.name: items,
        }
    assert listing.tell(asking(listing, digest, known_generation=1), GENERATION, lambda: items) == {
        listing.digest: digest,
        listing.name: None,
    }
    assert listing.tell(asking(listing, digest, known_generation=1), GENERATION, tuple)[listing.name] == (), "it is empty now"


@pytest.mark.parametrize(("listing", "have"), [(WORKSPACES, "d"), (TEMPLATES, "d"), (TEMPLATES, None), (WORKLOADS, None), (LIFE, None)])
def test_what_cannot_have_changed_or_is_not_wanted_is_not_even_read(listing: Listing[Any], have: str | None) -> None:
    def read() -> tuple[Any, ...]:
        raise AssertionError("read for nothing")

    assert listing.tell(asking(listing, have), GENERATION, read) == {listing.digest: have or "", listing.name: None}


@pytest.mark.parametrize("listing", [ASSIGNMENTS, CLUSTER_REQUESTS, LIFE], ids=lambda listing: listing.name)
def test_what_changes_without_the_generation_is_news_all_the_same(listing: Listing[Any]) -> None:
    items = items_of(listing)

    assert listing.tell(asking(listing, "before"), GENERATION, lambda: items) == {listing.digest: set_digest(items), listing.name: items}


@EACH
def test_who_lost_the_list_is_told_it_again_though_nothing_has_changed(listing: Listing[Any]) -> None:
    assert listing.tell(asking(listing, ""), GENERATION, lambda: items_of(listing))[listing.name] == items_of(listing)


@HEARD
def test_the_agent_has_what_it_was_last_told(listing: Listing[Any]) -> None:
    heard, items = ReceivedList(listing), items_of(listing)

    assert exchange(heard, items)
    assert (heard.told, heard.digest) == (items, set_digest(items))
    assert not exchange(heard, items), "the same"
    assert heard.told == items
    assert exchange(heard, ())
    assert heard.told == ()


@HEARD
def test_an_answer_to_who_did_not_ask_changes_nothing(listing: Listing[Any]) -> None:
    heard, items = ReceivedList(listing), items_of(listing)
    exchange(heard, items)

    assert not heard.hear(asking(listing, None), SILENT)
    assert heard.told == items


@HEARD
def test_a_hub_set_back_to_a_version_without_the_list_tells_no_digest_and_leaves_all_but_templates_as_they_are(
    listing: Listing[Any],
) -> None:
    heard, items = ReceivedList(listing), items_of(listing)
    exchange(heard, items)

    assert heard.hear(asking(listing, heard.digest), SILENT) == (listing.ends_with_hub)
    assert heard.items == (() if listing.ends_with_hub else items)
    assert heard.digest == ("" if listing.ends_with_hub else set_digest(items)), "so that a newer hub tells them anew"
