"""One sync after another: sessions, the whole desired set, and which of the agent's words count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from gpr.models import Gpr
from inventory.models import AgentSession, Cluster, Node, Reservation, ReservationState
from inventory.services.agents import AgentIdentity
from inventory.services.clusters import cluster_resume
from inventory.services.reservations import reservation_force_release, reservations_want_absent
from inventory.services.sync import sync_reply
from journal.models import Event
from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncRequest
from protocol.agents.transport import Code
from protocol.assignments import LEASE_TTL_S, Phase
from tests.builders import HOUR, NOW, generation_of, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.inventory.agent import Agent, seen

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("c1", nodes=2, is_heard=False)


def held(cluster: Cluster, index: int = 0) -> Reservation:
    (row,) = hold(make_gpr(make_slice(cluster)), nodes_of(cluster)[index])
    return row


def now_of(row: Reservation) -> Reservation:
    return Reservation.objects.get(pk=row.pk)


def everything() -> list[object]:
    return [list(model.objects.order_by("pk").values()) for model in (Reservation, Node, Gpr)] + [
        list(Cluster.objects.order_by("pk").values("pk", "generation", "rewound_at"))
    ]


# -- sessions ------------------------------------------------------------------------------------------------------------


def test_a_new_session_supersedes_the_old_one(agent: Agent) -> None:
    newer = Agent(agent.cluster, agent.credential, boot="boot-2")
    newer.sync()

    reply = agent.try_sync()

    assert (reply.status, reply.code) == (409, Code.SUPERSEDED)
    assert newer.sync().session_epoch == 2


def test_a_superseded_session_is_not_heard(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    Agent(cluster, agent.credential, boot="boot-2").sync(at=NOW)
    before = everything(), AgentSession.objects.values().get()

    agent.try_sync(seen(row, Phase.RELEASED), at=NOW + SECOND, known_generation=99)

    assert (everything(), AgentSession.objects.values().get()) == before


def test_the_same_boot_asking_for_a_session_again_has_lost_our_answer(agent: Agent) -> None:
    assert agent.sync(session_epoch=0).session_epoch == 1


@pytest.mark.parametrize(("epoch", "boot"), [(1, "boot-2"), (2, "boot-1"), (7, "boot-1"), (-1, "boot-1")])
def test_only_the_process_that_began_the_session_may_speak_in_it(epoch: int, boot: str, agent: Agent) -> None:
    assert agent.try_sync(session_epoch=epoch, boot_id=boot).code == Code.SUPERSEDED


@pytest.mark.both_databases
@pytest.mark.parametrize("changes", [{"known_generation": 2**63 - 1}, {"known_generation": -1}, {"boot_id": ""}, {"boot_id": "b" * 64}])
def test_a_sync_that_claims_what_cannot_be_is_refused(changes: dict[str, Any], agent: Agent) -> None:
    before = AgentSession.objects.values().get()

    assert agent.try_sync(**changes).status == 400

    assert AgentSession.objects.values().get() == before


def test_a_sync_is_a_heartbeat(agent: Agent) -> None:
    agent.sync(at=NOW + HOUR, clock_offset_s=0.25, agent_version="1.1", known_generation=0)

    session = AgentSession.objects.get()
    assert (session.last_sync_at, session.clock_offset_s, session.agent_version) == (NOW + HOUR, 0.25, "1.1")


# -- what it is told -----------------------------------------------------------------------------------------------------


@pytest.mark.both_databases
def test_the_agent_is_told_the_whole_set_of_its_own_cluster(agent: Agent, cluster: Cluster) -> None:
    foreign = make_cluster("c2", nodes=1)
    held(foreign)
    rows = [held(cluster, 0), held(cluster, 1)]

    reply = agent.sync()

    assert reply.assignments is not None
    assert {a.id for a in reply.assignments} == {str(row.pk) for row in rows}
    assert (reply.count, reply.digest, reply.generation) == (2, set_digest(reply.assignments), generation_of(cluster))
    assert reply.lease_ttl_s == LEASE_TTL_S


@pytest.mark.both_databases
def test_an_assignment_says_what_to_do_where(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    reservations_want_absent(gpr_ids=[row.gpr_id])

    (told,) = agent.sync().assignments or ()

    assert (told.node, told.node_uid, told.epoch, told.desired) == ("c1-n0", "uid-c1-n0", 1, "ABSENT")
    assert told.gpus == tuple(f"GPU-c1-n0-{index}" for index in range(4))
    assert (told.not_before_s, told.not_after_s, told.duration_s) == (NOW.timestamp(), None, 3600)
    assert (told.gang_count, told.entry_steps, told.exit_steps, told.run) == (1, ("node_ready",), ("drain",), 1)


def test_the_set_is_left_out_when_the_agent_has_just_this_one(agent: Agent, cluster: Cluster) -> None:
    held(cluster)
    told = agent.sync()

    again = agent.sync(known_generation=told.generation, have_digest=told.digest)
    assert again.assignments is None
    assert (again.count, again.digest) == (1, told.digest)

    assert agent.sync(known_generation=told.generation, have_digest="other").assignments is not None


def test_a_parked_sync_is_answered_with_the_times_of_both_ends(agent: Agent, cluster: Cluster) -> None:
    message = SyncRequest(session_epoch=1, boot_id="boot-1")

    reply = sync_reply(agent=AgentIdentity(cluster, 1), message=message, session_epoch=1, received_at=NOW, now=NOW + 20 * SECOND)

    assert (reply.received_s, reply.sent_s) == (NOW.timestamp(), NOW.timestamp() + 20)


def test_the_agent_is_told_how_long_before_an_end_pods_are_warned(agent: Agent) -> None:
    with override_settings(EGS_END_WARNING_S=120):
        assert agent.sync().warn_before_s == 120


def test_what_is_released_is_told_no_more(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    agent.sync(seen(row, Phase.RELEASED))

    assert agent.sync().assignments == ()


# -- what counts of what it says -----------------------------------------------------------------------------------------


@pytest.mark.both_databases
def test_observations_move_a_reservation_forward_to_its_release(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    at = NOW

    for phase in (Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE, Phase.EXITING, Phase.RELEASED):
        at += SECOND
        moment = {Phase.ACTIVE: "active_s", Phase.EXITING: "exit_began_s"}.get(phase)
        agent.sync(seen(row, phase, **({moment: at.timestamp()} if moment else {})), at=at)
        assert now_of(row).phase == phase

    done = now_of(row)
    assert (done.state, done.released_at) == (ReservationState.RELEASED, at)
    assert (done.active_at, done.exit_began_at) == (NOW + 3 * SECOND, NOW + 4 * SECOND)


@pytest.mark.parametrize("late", [Phase.PENDING, Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE, Phase.FAILED])
def test_a_late_observation_takes_nothing_back(late: Phase, agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    agent.sync(seen(row, Phase.EXITING))
    before = everything()

    agent.sync(seen(row, late, active_s=NOW.timestamp(), failure="late"))

    assert everything() == before


@pytest.mark.parametrize("epoch", [0, 2, -1])
def test_another_epochs_word_has_no_effect(epoch: int, agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    before = everything()

    for phase in Phase:
        agent.sync(seen(row, phase, epoch=epoch))
        assert everything() == before, phase


@pytest.mark.parametrize("phase", [Phase.ACTIVE, Phase.RELEASED])
def test_another_clusters_word_has_no_effect(phase: Phase, agent: Agent) -> None:
    foreign = make_cluster("c2", nodes=1)
    row = held(foreign)
    before = everything()

    reply = agent.sync(seen(row, phase))

    assert everything() == before
    assert reply.assignments == ()


@pytest.mark.both_databases
@pytest.mark.parametrize("unknown", ["", "no uuid", "00000000-0000-0000-0000-000000000000", "x" * 5000])
def test_a_word_about_something_unknown_has_no_effect(unknown: str, agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    before = everything()

    agent.sync(seen(row, Phase.RELEASED, assignment_id=unknown))

    assert everything() == before


def test_a_word_after_the_release_has_no_effect(agent: Agent, cluster: Cluster) -> None:
    """This holds also when the node is another's by now."""
    row = held(cluster)
    agent.sync(seen(row, Phase.RELEASED))
    held(cluster)
    before = everything()

    agent.sync(seen(row, Phase.RELEASED))
    agent.sync(seen(row, Phase.ACTIVE))

    assert everything() == before


def test_an_agent_is_told_of_a_forced_release_until_it_has_let_go(agent: Agent, cluster: Cluster) -> None:
    """Otherwise a living agent would keep the slice on the node until its window ends."""
    row = held(cluster)
    agent.sync(seen(row, Phase.ACTIVE, active_s=NOW.timestamp()))
    reservation_force_release(reservation=row, actor=make_user(is_admin=True), why="it burnt", now=NOW)
    freed, generation = now_of(row), generation_of(cluster)

    (told,) = agent.sync(seen(row, Phase.ACTIVE)).assignments or ()
    (still,) = agent.sync(seen(row, Phase.EXITING, failure="pods refuse to go")).assignments or ()
    last = agent.sync(seen(row, Phase.RELEASED))

    assert (told.id, told.desired, still.id, last.assignments) == (str(row.pk), "ABSENT", str(row.pk), ())
    assert last.generation == generation + 1
    after = now_of(row)
    assert (freed.state, freed.phase, after.phase) == (ReservationState.RELEASED, Phase.ACTIVE, Phase.RELEASED)
    books = ("state", "released_at", "ends_at", "failure", "active_at")
    assert [getattr(after, name) for name in books] == [getattr(freed, name) for name in books]


def test_why_an_agent_does_not_go_on_is_kept_and_forgotten_when_it_does(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)

    agent.sync(seen(row, Phase.PENDING, failure="the clocks of hub and agent differ by 9 s"))
    assert now_of(row).failure == "the clocks of hub and agent differ by 9 s"
    agent.sync(seen(row, Phase.PENDING, failure="still held by another"))
    assert now_of(row).failure == "still held by another"
    agent.sync(seen(row, Phase.ENTERING))
    agent.sync(seen(row, Phase.PENDING, failure="late words"))

    assert (now_of(row).phase, now_of(row).failure) == (Phase.ENTERING, "")


@pytest.mark.both_databases
def test_a_reason_too_long_for_its_column_is_news_once(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    agent.sync(seen(row, Phase.PENDING, failure="x" * 500))
    before = everything()

    with CaptureQueriesContext(connection) as queries:
        agent.sync(seen(row, Phase.PENDING, failure="x" * 500))

    assert everything() == before
    assert not [query for query in queries if (query["sql"] or "").startswith('UPDATE "inventory_reservation"')]


def test_the_same_word_twice_counts_once(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)

    agent.sync(seen(row, Phase.RELEASED), seen(row, Phase.RELEASED), at=NOW + SECOND)
    once = everything()
    agent.sync(seen(row, Phase.RELEASED), at=NOW + 2 * SECOND)

    assert everything() == once


@pytest.mark.both_databases
def test_several_reservations_are_released_in_one_word(agent: Agent, cluster: Cluster) -> None:
    rows = [held(cluster, 0), held(cluster, 1)]

    agent.sync(*(seen(row, Phase.RELEASED) for row in rows))

    assert not Reservation.objects.filter(state=ReservationState.HELD).exists()


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("claimed", "taken"),
    [(-HOUR, timedelta(0)), (timedelta(0), timedelta(0)), (3 * SECOND, 3 * SECOND), (HOUR, 5 * SECOND)],
    ids=["before its start", "at its start", "as it was", "in the future"],
)
def test_the_agents_clock_is_held_within_what_can_be(claimed: timedelta, taken: timedelta, agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)

    agent.sync(seen(row, Phase.ACTIVE, active_s=(NOW + claimed).timestamp()), at=NOW + 5 * SECOND)

    assert now_of(row).active_at == NOW + taken


def test_an_old_generation_tells_of_an_old_state_and_undoes_nothing(agent: Agent, cluster: Cluster) -> None:
    row = held(cluster)
    reservations_want_absent(gpr_ids=[row.gpr_id])

    reply = agent.sync(seen(row, Phase.ENTERING), known_generation=1)

    (told,) = reply.assignments or ()
    assert (told.desired, reply.generation) == ("ABSENT", 2)


# -- rewind --------------------------------------------------------------------------------------------------------------


def rewound(agent: Agent, known: int = 9) -> None:
    assert agent.last is not None
    agent.sync(known_hub_id=agent.last.hub_id, known_generation=known)


def test_an_agent_that_knows_more_than_this_database_shows_that_it_was_turned_back(agent: Agent, cluster: Cluster) -> None:
    rewound(agent)
    rewound(agent)

    cluster.refresh_from_db()
    assert cluster.rewound_at == NOW
    assert Event.objects.filter(kind="cluster.rewound", cluster_id=cluster.pk).count() == 1


@pytest.mark.parametrize("hub", ["", "another hub"])
def test_an_agent_that_comes_from_another_hub_shows_nothing(hub: str, agent: Agent, cluster: Cluster) -> None:
    agent.sync(known_hub_id=hub, known_generation=9)

    cluster.refresh_from_db()
    assert cluster.rewound_at is None


@pytest.mark.both_databases
def test_a_resumed_cluster_goes_on_above_all_that_its_agent_has_seen(agent: Agent, cluster: Cluster) -> None:
    rewound(agent, known=9)
    rewound(agent, known=12)

    cluster_resume(cluster=cluster, actor=make_user(is_admin=True), now=NOW)

    assert agent.sync(known_generation=12).generation == 13
    cluster.refresh_from_db()
    assert cluster.rewound_at is None
    agent.sync(known_hub_id=agent.last.hub_id if agent.last else "", known_generation=13)
    cluster.refresh_from_db()
    assert cluster.rewound_at is None


def test_a_cluster_that_was_not_rewound_cannot_be_resumed(cluster: Cluster) -> None:
    with pytest.raises(Exception, match="nothing to resume"):
        cluster_resume(cluster=cluster, actor=make_user(is_admin=True), now=NOW)
