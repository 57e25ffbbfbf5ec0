"""Several processes at once on PostgreSQL: whoever comes second is told so, and nothing is given twice.

Nothing here proves anything on SQLite, where Django ignores row locks and one writer works at a time.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection

from accounts.models import IdempotentCreation
from gpr.models import Gpr, GprState
from inventory.models import AgentCredential, Cluster, Gpu, JoinToken, Node, ReservationState
from inventory.services.clusters import join_token_issue
from journal.models import Event
from slices.models import Membership, Project, Role
from tests.builders import NOW, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.effort import repeats
from tests.promises.database.books import book
from tests.promises.races.processes import Tally, summed, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]

PROCESSES = 8
RACERS = "tests.promises.races.racers"

# Written down apart from the constraint: two rows of a GPU that share an instant. What was released counts too, until when it was.
OVERLAPS = """
SELECT count(*) FROM inventory_reservedgpu a JOIN inventory_reservedgpu b ON a.gpu_id = b.gpu_id AND a.id < b.id
WHERE a.starts_at < b.ends_at AND b.starts_at < a.ends_at
"""
HELD_TWICE = """
SELECT count(*) FROM (SELECT gpu_id FROM inventory_reservedgpu WHERE state = 'HELD' GROUP BY gpu_id HAVING count(*) > 1) twice
"""
EPOCHS_TWICE = """
SELECT count(*) FROM (SELECT node_id, epoch FROM inventory_reservation GROUP BY node_id, epoch HAVING count(*) > 1) twice
"""


def count_of(sql: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return int(cursor.fetchone()[0])


def all_at_once(name: str, *arguments: object, processes: int = PROCESSES) -> Tally:
    tally = summed(together(*[(f"{RACERS}:{name}", arguments)] * processes))
    assert tally.unexpected == []
    return tally


def show(name: str, tally: Tally) -> None:
    sys.stdout.write(f"\n{name}: {tally.try_count} tries, {tally.outcomes}, p99 {tally.p99_ms():.1f} ms\n")


def a_park(*, clusters: int = 1, nodes: int = 4, slices: int = 12) -> list[Cluster]:
    park = [make_cluster(nodes=nodes) for _ in range(clusters)]
    for _ in range(slices):
        make_gpr(make_slice(*park))
    return park


def test_eight_processes_hold_the_same_few_nodes_and_no_gpu_is_given_twice() -> None:
    (cluster,) = a_park()
    gpu = Gpu.objects.select_related("node").filter(node=nodes_of(cluster)[0])[0]
    far = NOW + timedelta(days=3000)
    book(gpu, make_gpr(make_slice(cluster)), far, far + timedelta(hours=1), ReservationState.PLANNED)

    tries = repeats(1250)
    tally = all_at_once("hold_and_release", tries)

    show("hold", tally)
    assert tally.try_count == tries * PROCESSES
    assert set(tally.outcomes) == {"done", "Conflict"}
    assert min(tally.outcomes.values()) > tally.try_count // 100  # how often each comes depends on the machine
    assert count_of(OVERLAPS) == 0
    assert count_of(HELD_TWICE) == count_of(EPOCHS_TWICE) == 0


def test_a_slice_has_one_provisioned_gpr_whoever_tries() -> None:
    cluster = make_cluster()
    slices = [make_slice(cluster) for _ in range(3)]
    for number in range(PROCESSES):
        for slice_ in slices:
            make_gpr(slice_, name=f"of process {number}")

    tries = repeats(150)
    tally = all_at_once("provision", tries)

    show("provision", tally)
    assert tally.try_count == tries * PROCESSES
    assert set(tally.outcomes) == {"done", "Conflict"}
    assert min(tally.outcomes.values()) > tally.try_count // 100
    # Each that went, went three steps and left an Event of each.
    assert Event.objects.filter(kind="gpr.transition").count() == 3 * tally.outcomes["done"]


def test_of_many_who_move_the_same_gpr_one_does_and_leaves_one_event() -> None:
    slice_, rounds = make_slice(make_cluster()), repeats(60)
    for number in range(rounds):
        make_gpr(slice_, name=f"round {number}")

    tally = all_at_once("move_the_same", rounds)

    show("move the same", tally)
    assert tally.outcomes["done"] == rounds
    assert tally.try_count == rounds * PROCESSES
    assert Event.objects.filter(kind="gpr.transition").count() == rounds


@pytest.mark.parametrize("same_name", [False, True], ids=["each its own", "all the same name"])
def test_one_key_makes_one_object_whoever_is_first(same_name: bool) -> None:
    make_user()
    rounds = repeats(50)

    tally = all_at_once("create_with_one_key", rounds, same_name)

    show("one key", tally)
    assert tally.outcomes == {"done": rounds * PROCESSES}
    found: dict[int, Counter[object]] = {}
    for number, (object_id, is_old) in tally.notes:
        found.setdefault(number, Counter()).update([object_id, is_old])
    assert all(len(answers) == 3 and answers[False] == 1 for answers in found.values()), found
    assert Project.objects.count() == IdempotentCreation.objects.count() == rounds
    assert Event.objects.filter(kind="project.created").count() == Event.objects.exclude(kind="user.created").count() == rounds


def tokens(clusters: list[Cluster]) -> list[str]:
    return [join_token_issue(cluster=cluster, actor=None, now=NOW)[1] for cluster in clusters]


def live_tokens(rounds: int, per_round: int) -> list[list[str]]:
    given = [tokens([make_cluster(is_heard=False) for _ in range(per_round)]) for _ in range(rounds)]
    JoinToken.objects.update(created_at=NOW, expires_at=NOW + timedelta(days=36500))
    return given


def test_one_token_lets_one_of_many_installs_in() -> None:
    rounds = repeats(20)
    installs = [f"install {number}" for number in range(PROCESSES)]

    tally = all_at_once("join_with", live_tokens(rounds, 1), installs, "uid")

    show("join", tally)
    assert tally.outcomes == {"done": rounds, "BadAgentToken": rounds * (PROCESSES - 1)}
    assert AgentCredential.objects.filter(revoked_at=None).count() == rounds


def test_one_install_that_asks_many_times_at_once_has_one_live_credential() -> None:
    rounds = repeats(20)

    tally = all_at_once("join_with", live_tokens(rounds, 1), ["the same"], "uid")

    show("join again", tally)
    assert tally.outcomes == {"done": rounds * PROCESSES}
    assert AgentCredential.objects.filter(revoked_at=None).count() == rounds
    assert Cluster.objects.exclude(uid="").count() == rounds


def test_of_many_records_one_becomes_the_cluster_that_joins_them_all() -> None:
    rounds = repeats(20)

    tally = all_at_once("join_with", live_tokens(rounds, PROCESSES), ["the same"], "one uid")

    show("join many records", tally)
    assert tally.outcomes == {"done": rounds, "WrongCluster": rounds * (PROCESSES - 1)}
    assert Cluster.objects.exclude(uid="").count() == rounds


def test_a_slice_keeps_an_owner_though_all_step_down_at_once() -> None:
    rounds = repeats(40)
    users = [make_user(f"user {number}") for number in range(PROCESSES)]
    for number in range(rounds):
        slice_ = make_slice(name=f"slice {number}")
        Membership.objects.bulk_create(Membership(slice=slice_, user=user, role=Role.OWNER) for user in users)

    tally = all_at_once("demote", rounds)

    show("demote", tally)
    assert tally.outcomes == {"done": rounds * (PROCESSES - 1), "Conflict": rounds}


def test_all_services_at_once_wait_for_nobody_in_a_circle() -> None:
    one, two = a_park(clusters=2, nodes=3, slices=6)
    tries = repeats(100)
    workers = [
        (f"{RACERS}:allocate", (tries * 2,)),
        (f"{RACERS}:allocate", (tries * 2,)),
        (f"{RACERS}:act_as_agent", (tries, one.pk)),
        (f"{RACERS}:act_as_agent", (tries, two.pk)),
        (f"{RACERS}:see_inventory", (tries, one.pk)),
        (f"{RACERS}:end_and_extend", (tries * 2,)),
        (f"{RACERS}:end_and_extend", (tries * 2,)),
        (f"{RACERS}:administer", (tries,)),
    ]
    before = {cluster.pk: cluster.generation for cluster in (one, two)}

    tally = summed(together(*workers))

    show("all services", tally)
    assert tally.unexpected == []
    assert tally.try_count >= 4 * 2 * tries + 2 * 2 * tries + tries + 4 * tries
    assert count_of(HELD_TWICE) == count_of(EPOCHS_TWICE) == 0
    for cluster in Cluster.objects.all():
        assert cluster.generation > before[cluster.pk]
    for node in Node.objects.all():
        assert node.epoch >= max(node.reservations.values_list("epoch", flat=True), default=0)


def test_many_ticks_at_once_start_everything_once() -> None:
    from tests.promises.feasible import faults

    cluster, user = make_cluster(nodes=4), make_user(is_admin=True)
    for _ in range(6):
        make_slice(cluster, owner=user)
    summed(together((f"{RACERS}:submit", (20,))))

    tally = all_at_once("keep_ticking", repeats(25))

    show("ticks", tally)
    assert tally.outcomes["another works"] > 0
    started = Event.objects.filter(kind="gpr.transition", new=GprState.PROVISIONING).values_list("gpr_id", flat=True)
    assert len(started) == len(set(started)) == tally.outcomes["started"] > 0
    assert set(Gpr.objects.filter(pk__in=started).values_list("run", flat=True)) == {1}
    assert faults() == []


def test_after_a_storm_of_submits_and_ticks_the_stored_plan_can_be_kept() -> None:
    from tests.promises.feasible import faults

    cluster, user = make_cluster(nodes=5), make_user(is_admin=True)
    for _ in range(10):
        make_slice(cluster, owner=user)
    tries = repeats(25)

    tallies = together(*[(f"{RACERS}:submit", (tries,))] * 6, *[(f"{RACERS}:keep_ticking", (repeats(60),))] * 2)

    submits, ticks = summed(tallies[:6]), summed(tallies[6:])
    show("submits", submits)
    show("ticks", ticks)
    assert submits.unexpected == ticks.unexpected == []
    assert submits.try_count >= 6 * tries
    assert Gpr.objects.count() == 6 * tries
    assert ticks.outcomes["started"] > 0
    assert faults() == []
    waiting = Gpr.objects.filter(state=GprState.QUEUED)
    assert waiting.count() > 2 * tries
    assert not waiting.filter(promise=None).exists()
    # Nobody was late, failed or changed: no promise had a reason to move.
    assert not Event.objects.filter(kind="promise.moved").exists()
