"""Acts of the processes of a race. Imported by the children only, after they have set Django up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from accounts.idempotency import create_once, in_one
from accounts.models import User
from core.clock import db_now
from core.errors import Conflict, EgsError, IllegalTransition, StaleState
from gpr.allocation.allocator import tick
from gpr.lifecycle import gpr_transition
from gpr.models import PROVISIONED, Gpr, GprState
from gpr.requests.editing import gpr_cancel
from gpr.requests.services import gpr_submit
from inventory.models import AgentSession, Cluster, Node, Reservation, ReservationState
from inventory.services.agents import AgentIdentity, BadAgentToken, WrongCluster, agent_register
from inventory.services.events import events_store
from inventory.services.inventory import inventory_store
from inventory.services.nodes import node_cordon, node_uncordon
from inventory.services.reservations import (
    BoxWindow,
    reservation_force_release,
    reservations_hold,
    reservations_set_windows,
    reservations_want_absent,
)
from inventory.services.sync import sync_receive, sync_reply
from protocol.agents.events import EventsRequest, Outcome, StepEvent
from protocol.agents.registration import RegisterRequest
from protocol.agents.sync import SyncRequest
from protocol.assignments import Observed, Phase
from slices.models import Membership, Role, Slice
from slices.namespaces.services import namespace_bind, namespace_unbind
from slices.services import member_set, project_create
from tests.builders import agent_says, node_view, spec
from tests.promises.races.processes import Race

SECOND = timedelta(seconds=1)


def clock() -> datetime:
    """All racers run on one machine; asking the database each time would only make them slower."""
    return datetime.now(UTC)


def hold_some(rng: random.Random, gprs: Sequence[Gpr], nodes: Sequence[UUID]) -> list[Reservation]:
    """Holds whole nodes and parts, one to three of them, named in any order."""
    now, gpr, picked = clock(), rng.choice(gprs), rng.sample(list(nodes), rng.choice([1, 1, 2, 3]))
    gpr.gpus_per_node = rng.choice([None, None, 1, 1, 2, 3])
    ends_at = now + rng.randint(1, 600) * SECOND
    terms = {"slice_id": gpr.slice_id, "gang_count": len(picked), "starts_at": now, "ends_at": ends_at, "enter_by_at": ends_at}
    rows = [Reservation(gpr=gpr, node_id=node_id, duration_s=60, **terms) for node_id in picked]
    reservations_hold(rows)
    return rows


def hold_and_release(race: Race, tries: int) -> None:
    rng = random.Random(race.number)
    gprs, nodes = list(Gpr.objects.all()), list(Node.objects.values_list("pk", flat=True))
    mine: list[Reservation] = []
    for _ in range(tries):
        mine += race.tally.attempt(lambda: hold_some(rng, gprs, nodes), expected=(Conflict,)) or ()
        if mine and rng.random() < 0.15:
            agent_says(mine.pop(rng.randrange(len(mine))), Phase.RELEASED, now=clock())


def provision(race: Race, tries: int) -> None:
    """Each process has a GPR in each slice, and tries to be the one that is provisioned."""
    rng = random.Random(race.number)
    mine = list(Gpr.objects.filter(name=f"of process {race.number}"))
    for _ in range(tries):
        gpr = rng.choice(mine)
        gpr.refresh_from_db()
        began = race.tally.attempt(lambda gpr=gpr: _move(gpr, GprState.PROVISIONING), expected=(Conflict,))
        if began:
            if Gpr.objects.filter(slice_id=gpr.slice_id, state__in=PROVISIONED).count() != 1:
                race.tally.unexpected.append("a slice has two")
            _move(gpr, GprState.EXITING)
            _move(gpr, GprState.QUEUED)


def move_the_same(race: Race, rounds: int) -> None:
    """All processes move one GPR: one of them does."""
    for number in range(rounds):
        gpr = Gpr.objects.get(name=f"round {number}")
        race.meet()
        race.tally.attempt(lambda gpr=gpr: _move(gpr, GprState.CANCELED), expected=(StaleState, IllegalTransition))


def _move(gpr: Gpr, to: GprState) -> bool:
    gpr_transition(gpr=gpr, to=to, now=db_now(), message="Moved.")
    return True


def create_with_one_key(race: Race, rounds: int, same_name: bool) -> None:
    user = User.objects.get()
    for number in range(rounds):
        race.meet()
        name = f"project {number}" if same_name else f"project {number} of {race.number}"
        found = race.tally.attempt(
            lambda name=name, number=number: create_once(
                user=user,
                route="projects",
                key=f"key {number}",
                digest="same",
                now=db_now(),
                create=in_one(lambda: project_create(name=name, actor=user, now=db_now()).pk),
            )
        )
        race.tally.notes.append((number, found))


def join_with(race: Race, tokens: Sequence[Sequence[str]], installs: Sequence[str], uid: str) -> None:
    """In each round each process joins with its own token of that round."""
    for number, given in enumerate(tokens):
        message = RegisterRequest(
            join_token=given[race.number % len(given)],
            cluster_uid=f"{uid} {number}",
            install_id=installs[race.number % len(installs)],
            agent_version="1",
        )
        race.meet()
        race.tally.attempt(lambda message=message: agent_register(message=message, now=db_now()), expected=(BadAgentToken, WrongCluster))


def demote(race: Race, rounds: int) -> None:
    """Everybody is an owner, and everybody demotes himself."""
    for number in range(rounds):
        slice_ = Slice.objects.get(name=f"slice {number}")
        user = User.objects.get(name=f"user {race.number}")
        race.meet()
        race.tally.attempt(
            lambda slice_=slice_, user=user: member_set(slice_=slice_, user=user, role=Role.VIEWER, actor=None, now=db_now()),
            expected=(Conflict,),
        )
        race.meet()
        if not Membership.objects.filter(slice=slice_, role=Role.OWNER).exists():
            race.tally.unexpected.append(f"{slice_} has no owner")


# -- everything at once ------------------------------------------------------------------------------------------------


def allocate(race: Race, tries: int) -> None:
    rng = random.Random(race.number)
    gprs, nodes = list(Gpr.objects.all()), list(Node.objects.values_list("pk", flat=True))
    for _ in range(tries):
        race.tally.attempt(lambda: hold_some(rng, gprs, nodes), expected=(Conflict,))


def act_as_agent(race: Race, tries: int, cluster_id: UUID) -> None:
    """Sync and report as the agent of one cluster does: phases up to the release, failed steps, the inventory."""
    rng = random.Random(race.number)
    agent = AgentIdentity(Cluster.objects.get(pk=cluster_id), 1)
    epoch = sync_receive(agent=agent, message=SyncRequest(session_epoch=0, boot_id=f"boot {race.number}"), now=db_now())
    seq = 0
    for _ in range(tries):
        rows = list(Reservation.objects.filter(cluster_id=cluster_id, state=ReservationState.HELD))
        race.tally.attempt(lambda rows=rows: _sync(agent, epoch, rows, rng))
        events: list[StepEvent] = []
        for row in rng.sample(rows, min(len(rows), 3)):
            seq += 1
            events.append(_failed_step(row, seq, rng))
        race.tally.attempt(
            lambda events=events: events_store(agent=agent, message=EventsRequest(session_epoch=epoch, events=tuple(events)), now=db_now())
        )


def _sync(agent: AgentIdentity, epoch: int, rows: Sequence[Reservation], rng: random.Random) -> None:
    now = db_now()
    observed = tuple(
        Observed(assignment_id=str(row.pk), epoch=row.epoch, phase=rng.choice([*Phase, Phase.RELEASED, Phase.RELEASED])) for row in rows
    )
    message = SyncRequest(session_epoch=epoch, boot_id=AgentSession.objects.get(pk=agent.cluster.pk).boot_id, observed=observed)
    sync_receive(agent=agent, message=message, now=now)
    sync_reply(agent=agent, message=message, session_epoch=epoch, received_at=now, now=now)


def _failed_step(row: Reservation, seq: int, rng: random.Random) -> StepEvent:
    return StepEvent(
        seq=seq,
        assignment_id=str(row.pk),
        epoch=row.epoch,
        step="node_ready",
        attempt=rng.randint(1, 1_000_000),
        outcome=Outcome.FAILED,
        started_s=0,
        ended_s=1,
    )


def see_inventory(race: Race, tries: int, cluster_id: UUID) -> None:
    cluster = Cluster.objects.get(pk=cluster_id)
    names = sorted(Node.objects.filter(cluster=cluster).values_list("name", flat=True))
    for number in range(tries):
        seen = [node_view(name, ready=(number + index) % 5 != 0) for index, name in enumerate(names)]
        race.tally.attempt(lambda seen=seen: inventory_store(cluster=cluster, nodes=seen, now=db_now()))


def end_and_extend(race: Race, tries: int) -> None:
    rng = random.Random(race.number)
    gprs = list(Gpr.objects.values_list("pk", flat=True))
    for _ in range(tries):
        gpr_id, now = rng.choice(gprs), db_now()
        works: list[Callable[[], object]] = [
            lambda gpr_id=gpr_id: reservations_want_absent(gpr_ids=[gpr_id]),
            lambda gpr_id=gpr_id, now=now: reservations_set_windows([BoxWindow(gpr_id, now + 600 * SECOND, now + 700 * SECOND)]),
        ]
        race.tally.attempt(rng.choice(works), expected=(Conflict,))


def administer(race: Race, tries: int) -> None:
    rng, admin = random.Random(race.number), User.objects.order_by("name")[0]
    nodes, slices, clusters = list(Node.objects.all()), list(Slice.objects.all()), list(Cluster.objects.all())
    for number in range(tries):
        node, slice_, cluster = rng.choice(nodes), rng.choice(slices), rng.choice(clusters)
        race.tally.attempt(lambda node=node: node_cordon(node=node, actor=admin, why="a look", now=db_now()), expected=(Conflict,))
        bound = race.tally.attempt(
            lambda slice_=slice_, cluster=cluster, number=number: namespace_bind(
                slice_=slice_, cluster=cluster, name=f"ns-{race.number}-{number}", actor=admin, now=db_now()
            ),
            expected=(Conflict,),
        )
        race.tally.attempt(lambda node=node: node_uncordon(node=node, actor=admin, now=db_now()), expected=(Conflict,))
        row = Reservation.objects.filter(state=ReservationState.HELD).order_by("?").first()
        if row is not None:
            race.tally.attempt(
                lambda row=row: reservation_force_release(reservation=row, actor=admin, why="it hangs", now=db_now()), expected=(Conflict,)
            )
        if bound:
            race.tally.attempt(lambda bound=bound: namespace_unbind(namespace=bound, actor=admin, now=db_now()), expected=(Conflict,))


# -- the queue ---------------------------------------------------------------------------------------------------------


def submit(race: Race, tries: int) -> None:
    rng, user = random.Random(race.number), User.objects.order_by("name")[0]
    slices = list(Slice.objects.order_by("name"))
    for number in range(tries):
        ask = spec(
            rng.choice(slices),
            name=f"{race.number}/{number}",
            nodes=rng.choice([1, 1, 2]),
            gpus_per_node=rng.choice([None, 1, 2]),
            duration_s=rng.randint(60, 7200),
            priority=rng.choice([50, 101, 150]),
        )
        gpr: Any = race.tally.attempt(lambda ask=ask: gpr_submit(actor=user, spec=ask, now=db_now()))
        if gpr is not None and rng.random() < 0.15:
            race.tally.attempt(lambda gpr=gpr: gpr_cancel(gpr=gpr, actor=user, now=db_now()), expected=(StaleState, IllegalTransition))


def keep_ticking(race: Race, tries: int) -> None:
    for _ in range(tries):
        AgentSession.objects.update(last_sync_at=db_now())
        report = race.tally.attempt(tick, expected=(EgsError,))
        if report is None:
            race.tally.count("another works")
        else:
            race.tally.count("started", len(report.started))
            race.tally.unexpected += [why for why in report.skipped.values() if why == "internal error"]
