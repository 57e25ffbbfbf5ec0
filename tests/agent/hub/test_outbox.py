"""The outbox stays bounded however long the hub is away, and sends no more in a message than the hub takes."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from protocol.agents.events import AgentEvent, EventsRequest, InventoryEvent, Outcome, StepEvent
from protocol.agents.transport import BODY_MAX_BYTES
from protocol.nodes.checks import CheckResult, Verdict
from protocol.nodes.inventory import NodeView
from tests.builders import node_view
from worker_agent.hub.outbox import EventOutbox

CHANGES = 60


def step(number: int, *, log: str = "", results: int = 0) -> StepEvent:
    measured = tuple(CheckResult(check=f"check-{result}", verdict=Verdict.PASS, text="x" * 200) for result in range(results))
    return StepEvent(
        seq=0,
        assignment_id=f"a{number}",
        epoch=1,
        step="isolate",
        attempt=1,
        outcome=Outcome.OK,
        started_s=1.0,
        ended_s=2.0,
        log=log,
        results=measured,
    )


def cluster(changes: int, *, nodes: int = 2) -> tuple[NodeView, ...]:
    return tuple(node_view(f"n{number}", gpus=8, rack=f"r{changes}") for number in range(nodes))


def open_outbox() -> EventOutbox:
    outbox = EventOutbox()
    outbox.open_session(7, 0.0)
    return outbox


def inventories(events: tuple[AgentEvent, ...]) -> list[str]:
    """The racks that tell one from another."""
    return [event.nodes[0].rack for event in events if isinstance(event, InventoryEvent)]


def told(outbox: EventOutbox) -> list[AgentEvent]:
    """All that a hub hears that stores whatever it is sent."""
    heard: list[AgentEvent] = []
    while pending := outbox.pending():
        heard += pending
        outbox.acknowledge(pending[-1].seq)
    return heard


def test_before_the_first_session_only_the_last_of_many_inventories_waits() -> None:
    outbox = EventOutbox()
    for changes in range(CHANGES):
        outbox.see_inventory(cluster(changes), float(changes))
    outbox.open_session(7, float(CHANGES))
    outbox.see_inventory(cluster(CHANGES), float(CHANGES))
    assert inventories(tuple(told(outbox))) == [f"r{CHANGES}"]


def test_while_the_hub_is_away_an_inventory_takes_the_place_of_the_one_before() -> None:
    outbox = open_outbox()
    for changes in range(CHANGES):
        outbox.see_inventory(cluster(changes), float(changes))
        outbox.pending()  # sent, and not answered
    heard = told(outbox)
    assert inventories(tuple(heard)) == ["r0", f"r{CHANGES - 1}"]
    assert [event.seq for event in heard] == [1, 2]


def test_what_may_have_been_stored_keeps_its_number_and_its_words() -> None:
    outbox = open_outbox()
    outbox.add_steps([step(1)])
    outbox.see_inventory(cluster(0), 0.0)
    sent = outbox.pending()
    outbox.add_steps([step(2)])
    outbox.see_inventory(cluster(1), 1.0)
    assert outbox.pending() == sent
    outbox.acknowledge(1)  # the answer to the rest was lost
    assert outbox.pending() == sent[1:]


def test_steps_are_told_in_their_order_whatever_the_inventory_does() -> None:
    outbox, numbers = open_outbox(), count(1)
    for changes in range(5):
        outbox.add_steps([step(next(numbers)), step(next(numbers))])
        outbox.see_inventory(cluster(changes), float(changes))
    heard = told(outbox)
    assert [event.assignment_id for event in heard if isinstance(event, StepEvent)] == [f"a{number}" for number in range(1, 11)]
    assert [event.seq for event in heard] == list(range(1, 12))
    assert inventories(tuple(heard)) == ["r4"]


@pytest.mark.parametrize(("log", "results"), [("", 0), ("\x00" * 4_000, 0), ("x" * 4_000, 300)])
def test_no_message_is_larger_than_the_hub_takes(log: str, results: int) -> None:
    outbox = open_outbox()
    outbox.add_steps([step(number, log=log, results=results) for number in range(500)])
    outbox.see_inventory(cluster(0, nodes=1_000), 0.0)
    heard_count = 0
    while pending := outbox.pending():
        assert len(msgspec.json.encode(EventsRequest(session_epoch=7, events=pending))) <= BODY_MAX_BYTES
        heard_count += len(pending)
        outbox.acknowledge(pending[-1].seq)
    assert heard_count == 501


def test_an_inventory_that_is_large_alone_goes_alone() -> None:
    outbox = open_outbox()
    outbox.see_inventory(cluster(0, nodes=6_000), 0.0)
    outbox.add_steps([step(1)])
    assert [type(event) for event in outbox.pending()] == [InventoryEvent]
    assert len(told(outbox)) == 2
