"""If an agent lost outcomes of steps, people read how many are missing: no incomplete list looks complete."""

from __future__ import annotations

from datetime import timedelta

import pytest

from inventory.models import Cluster
from journal.models import Event, Severity
from tests.builders import NOW
from tests.inventory.agent import Agent

pytestmark = pytest.mark.django_db


def told() -> list[Event]:
    return list(Event.objects.filter(kind="cluster.steps_lost"))


def test_administrators_read_how_many_steps_are_missing(agent: Agent, cluster: Cluster) -> None:
    agent.sync(steps_lost=12)

    (event,) = told()
    assert event.message == (
        "The results of up to 12 steps on nodes of c1 are lost: its agent could not keep more while it had no word from the hub. "
        "It did report how far each box is."
    )
    assert (event.severity, event.cluster_id, event.data) == (Severity.WARNING, cluster.pk, {"count": 12})


@pytest.mark.parametrize(("count", "words"), [(1, "up to 1 step on"), (12_000, "up to 12,000 steps on")])
def test_the_number_is_written_as_on_the_pages(agent: Agent, count: int, words: str) -> None:
    agent.sync(steps_lost=count)

    assert words in told()[0].message


def test_an_agent_that_lost_the_answer_and_says_it_again_is_heard_once(agent: Agent) -> None:
    agent.sync(steps_lost=12)
    agent.sync(steps_lost=12, at=NOW + timedelta(seconds=10))

    assert len(told()) == 1


def test_nothing_is_said_where_nothing_is_missing(agent: Agent) -> None:
    agent.sync()

    assert told() == []
