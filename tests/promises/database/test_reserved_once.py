"""I1: a GPU is reserved for one box at any instant. I2: it is held by one box, whatever the books say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import Conflict
from gpr.models import Gpr
from inventory.models import Gpu, Reservation, ReservationState, ReservedGpu
from protocol.assignments import Phase
from tests.builders import HOUR, NOW, agent_says, hold, make_cluster, make_gpr, make_slice, nodes_of
from tests.effort import examples
from tests.promises.database.books import book, is_refused, moment, undone

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

PLANNED, HELD, RELEASED = ReservationState.PLANNED, ReservationState.HELD, ReservationState.RELEASED
LIVE = {PLANNED, HELD}


def a_world(*, nodes: int = 1, gpus: int = 2) -> tuple[list[Gpu], list[Gpr]]:
    cluster = make_cluster(nodes=nodes, gpus=gpus)
    gprs = [make_gpr(make_slice(cluster)) for _ in range(2)]
    return list(Gpu.objects.select_related("node").filter(node__cluster=cluster)), gprs


@pytest.mark.parametrize("first", [PLANNED, HELD])
@pytest.mark.parametrize(
    ("start", "end"),
    [(20, 40), (0, 40), (0, 21), (39, 60), (25, 30), (0, 60), (21, 39)],
    ids=["the same", "begins before", "laps in", "laps out", "within", "around", "just within"],
)
def test_an_overlapping_reservation_of_a_gpu_is_refused(start: int, end: int, first: ReservationState) -> None:
    (gpu, _), (mine, other) = a_world()
    book(gpu, mine, moment(20), moment(40), first)

    assert is_refused(lambda: book(gpu, other, moment(start), moment(end), PLANNED))


@pytest.mark.parametrize(("start", "end"), [(0, 20), (40, 60), (0, 1), (41, 42)])
def test_back_to_back_is_allowed(start: int, end: int) -> None:
    (gpu, _), (mine, other) = a_world()
    book(gpu, mine, moment(20), moment(40))

    book(gpu, other, moment(start), moment(end), PLANNED)


def test_another_gpu_of_the_same_node_may_be_reserved_meanwhile() -> None:
    (one, two), (mine, other) = a_world()
    book(one, mine, moment(0), moment(40))

    book(two, other, moment(0), moment(40))


def test_what_was_released_is_in_nobodys_way() -> None:
    (gpu, _), (mine, other) = a_world()
    book(gpu, mine, moment(0), moment(40), RELEASED)

    book(gpu, other, moment(0), moment(40))


def test_a_window_cannot_be_moved_over_another() -> None:
    (gpu, _), (mine, other) = a_world()
    book(gpu, mine, moment(0), moment(20))
    later = book(gpu, other, moment(20), moment(40), PLANNED)
    row = ReservedGpu.objects.filter(pk=later.pk)

    assert is_refused(lambda: row.update(starts_at=moment(19)))
    assert not is_refused(lambda: row.update(starts_at=moment(21)))
    assert is_refused(lambda: ReservedGpu.objects.filter(gpu=gpu, state=HELD).update(ends_at=moment(22)))


def test_what_was_released_cannot_be_taken_back_over_another() -> None:
    (gpu, _), (mine, other) = a_world()
    old = book(gpu, mine, moment(0), moment(40), RELEASED)
    book(gpu, other, moment(10), moment(20), PLANNED)

    assert is_refused(lambda: ReservedGpu.objects.filter(pk=old.pk).update(state=PLANNED))


def test_a_second_hold_is_refused_although_the_books_do_not_overlap() -> None:
    """The exit is late: whoever holds it, holds it."""
    (gpu, _), (mine, other) = a_world()
    first = book(gpu, mine, moment(0), moment(20))

    assert is_refused(lambda: book(gpu, other, moment(20), moment(40)))
    planned = book(gpu, other, moment(20), moment(40), PLANNED)
    assert is_refused(lambda: ReservedGpu.objects.filter(pk=planned.pk).update(state=HELD))

    ReservedGpu.objects.filter(pk=first.pk).update(state=RELEASED)
    assert not is_refused(lambda: ReservedGpu.objects.filter(pk=planned.pk).update(state=HELD))


def test_a_window_must_begin_before_it_ends() -> None:
    (gpu, _), (mine, _) = a_world()

    assert is_refused(lambda: book(gpu, mine, moment(5), moment(5), PLANNED))
    assert is_refused(lambda: book(gpu, mine, moment(6), moment(5), PLANNED))


def test_a_reservation_is_released_when_it_says_when_and_only_then() -> None:
    (gpu, _), (mine, _) = a_world()
    row = Reservation.objects.filter(pk=book(gpu, mine, moment(0), moment(9)).reservation_id)

    assert is_refused(lambda: row.update(state=RELEASED))
    assert is_refused(lambda: row.update(released_at=NOW))
    assert not is_refused(lambda: row.update(state=RELEASED, released_at=NOW))


def test_a_nodes_epoch_is_used_once() -> None:
    (gpu, other_gpu), (mine, other) = a_world()
    first = book(gpu, mine, moment(0), moment(9)).reservation
    second = book(other_gpu, other, moment(0), moment(9)).reservation

    assert is_refused(lambda: Reservation.objects.filter(pk=second.pk).update(epoch=first.epoch))


@dataclass(slots=True)
class Row:
    """A reservation as the naive book-keeper has it."""

    gpu: int
    start: int
    end: int
    state: ReservationState

    def allows(self, other: Row) -> bool:
        if self.gpu != other.gpu or not {self.state, other.state} <= LIVE:
            return True
        overlaps = any(self.start <= half < self.end for half in range(other.start, other.end))
        return not overlaps and not self.state == other.state == HELD


windows = st.tuples(st.integers(0, 14), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
states = st.sampled_from([PLANNED, PLANNED, HELD, RELEASED])
steps = st.one_of(
    st.tuples(st.just("book"), st.integers(0, 1), windows, states),
    st.tuples(st.just("move"), st.integers(0, 30), windows, st.none()),
    st.tuples(st.just("become"), st.integers(0, 30), st.just((0, 0)), states),
)


@given(plan=st.lists(steps, min_size=2, max_size=14))
@settings(examples(120), derandomize=True)
def test_the_database_refuses_exactly_what_a_naive_book_keeper_would(
    plan: list[tuple[str, int, tuple[int, int], ReservationState | None]],
) -> None:
    with undone():
        gpus, (gpr, _) = a_world()
        kept: list[tuple[ReservedGpu, Row]] = []
        for verb, number, (start, end), state in plan:
            if verb == "book" and state is not None:
                new, old = Row(number, start, end, state), None
            elif kept:
                old = kept[number % len(kept)]
                before = old[1]
                new = (
                    Row(before.gpu, start, end, before.state)
                    if verb == "move"
                    else Row(before.gpu, before.start, before.end, state or HELD)
                )
            else:
                continue
            is_fine = all(new.allows(row) for entry in kept if entry is not old for row in [entry[1]])
            row = _write(gpus, gpr, new, old[0] if old else None)
            assert (row is not None) == is_fine, f"{new} beside {[entry[1] for entry in kept if entry is not old]}"
            if row is not None:
                kept = [entry for entry in kept if entry is not old] + [(row, new)]


def _write(gpus: list[Gpu], gpr: Gpr, new: Row, old: ReservedGpu | None) -> ReservedGpu | None:
    """Returns None when the database refuses it."""
    try:
        with transaction.atomic():
            if old is None:
                return book(gpus[new.gpu], gpr, moment(new.start), moment(new.end), new.state)
            ReservedGpu.objects.filter(pk=old.pk).update(starts_at=moment(new.start), ends_at=moment(new.end), state=new.state)
            return old
    except IntegrityError:
        return None


# -- the service before the wall -----------------------------------------------------------------------------------------


def test_a_hold_takes_all_of_its_nodes_or_nothing() -> None:
    cluster = make_cluster(nodes=2)
    one, two = nodes_of(cluster)
    mine, other = (make_gpr(make_slice(cluster)) for _ in range(2))
    hold(mine, two)

    with pytest.raises(Conflict):
        hold(other, one, two)

    assert not other.reservations.exists()
    one.refresh_from_db()
    assert one.epoch == 0


def test_a_hold_never_takes_what_another_has_booked_for_later() -> None:
    cluster = make_cluster(nodes=1, gpus=1)
    (node,) = nodes_of(cluster)
    mine, other = (make_gpr(make_slice(cluster)) for _ in range(2))
    gpu = Gpu.objects.select_related("node").get(node=node)
    book(gpu, other, NOW + HOUR / 2, NOW + HOUR, PLANNED)

    with pytest.raises(Conflict):
        hold(mine, node)

    hold(mine, node, ends_at=NOW + HOUR / 2)


@pytest.mark.parametrize("sick", [{"cordoned_at": NOW}, {"is_ready": False}, {"gone_at": NOW}], ids=["cordoned", "not ready", "gone"])
def test_a_hold_takes_no_node_that_cannot_be_used(sick: dict[str, object]) -> None:
    cluster = make_cluster(nodes=2)
    one, two = nodes_of(cluster)
    type(two).objects.filter(pk=two.pk).update(**sick)

    with pytest.raises(Conflict):
        hold(make_gpr(make_slice(cluster)), one, two)


def test_a_hold_takes_no_gpu_that_is_sick_or_gone() -> None:
    cluster = make_cluster(nodes=1, gpus=3)
    (node,) = nodes_of(cluster)
    sick, gone, well = Gpu.objects.filter(node=node).order_by("index")
    Gpu.objects.filter(pk=sick.pk).update(is_healthy=False)
    Gpu.objects.filter(pk=gone.pk).update(gone_at=NOW)
    gpr = make_gpr(make_slice(cluster))

    with pytest.raises(Conflict):
        hold(gpr, node, gpus_per_node=2)
    (reservation,) = hold(gpr, node, gpus_per_node=1)

    assert [reserved.gpu for reserved in reservation.gpus.all()] == [well]


def test_a_hold_does_not_begin_before_the_release_of_what_it_takes() -> None:
    """A plan is made, a node is released, the plan is carried out: the books must not show two holders of that moment."""
    cluster = make_cluster(nodes=1)
    (node,) = nodes_of(cluster)
    mine, other = (make_gpr(make_slice(cluster)) for _ in range(2))
    (row,) = hold(mine, node)
    agent_says(row, Phase.RELEASED, now=NOW + HOUR / 4)

    with pytest.raises(Conflict):
        hold(other, node, starts_at=NOW + HOUR / 4 - timedelta(microseconds=1))

    hold(other, node, starts_at=NOW + HOUR / 4)


def test_parts_of_a_node_go_to_several_until_none_is_left() -> None:
    cluster = make_cluster(nodes=1, gpus=4)
    (node,) = nodes_of(cluster)
    one, two, three = (make_gpr(make_slice(cluster)) for _ in range(3))

    hold(one, node, gpus_per_node=3)
    hold(two, node, gpus_per_node=1)

    with pytest.raises(Conflict):
        hold(three, node, gpus_per_node=1)
    assert ReservedGpu.objects.filter(state=HELD).values("gpu").distinct().count() == 4
