"""The planner moves gangs up that have waited long when boxes end early, so that smaller boxes do not take every node before them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.engine import plan
from planner.offers import offers
from planner.snapshot import Node, Place, PlanPolicy, PolicyName, Pool, Quota, Request, Snapshot, Supply, Window
from tests.planner.build import placements, pool, request, running, slots, stand, starts, waiting

# Two nodes; one is busy until 500, as it was booked. The other has just been given back, with half a day still booked.
BUSY = running("r", "p1", end=500)
SUPPLY = Supply("supply-s", 100, 30, frozenset())


def gang(id: str = "g", *, promised_at: int, start: int = 1000) -> Request:
    return replace(waiting(id, start, "p0", "p1", length=400), promised_at_s=promised_at)


def world(*queue: Request, now: int = 300, has_freed: bool = True, policy: PlanPolicy | None = None) -> Snapshot:
    return Snapshot(now, (pool(2),), (BUSY,), queue, policy or PlanPolicy(), has_freed=has_freed)


def test_a_gang_that_has_waited_for_its_share_is_moved_up_to_where_there_is_room() -> None:
    """It has waited three hundred of a thousand promised seconds."""
    made = plan(world(gang(promised_at=0)))

    assert slots(made) == {"g": 500}


def test_its_promise_becomes_no_later_and_is_not_called_moved() -> None:
    told = placements(plan(world(gang(promised_at=0))))["g"]

    assert told.promise_s == 1000
    assert told.moved is None


def test_a_gang_that_has_not_waited_so_long_stays() -> None:
    assert slots(plan(world(gang(promised_at=1)))) == {"g": 1000}


def test_where_a_gang_must_not_start_before_a_time_its_wait_begins_then() -> None:
    asked = replace(gang(promised_at=0), earliest_start_s=200)

    assert slots(plan(world(asked))) == {"g": 1000}
    assert slots(plan(world(asked, now=440))) == {"g": 500}


def test_while_no_box_ends_early_nothing_moves_so_a_frozen_queue_starts_as_it_was_told() -> None:
    assert slots(plan(world(gang(promised_at=0), has_freed=False))) == {"g": 1000}


def test_boxes_on_one_node_are_not_moved_up() -> None:
    """They find room by themselves, as soon as a node is free for long enough."""
    other = running("q", "p0", end=5000)
    one = replace(waiting("o", 1000, "p1"), promised_at_s=0)

    made = plan(replace(world(one), running=(BUSY, other)))

    assert (slots(made), starts(made)) == ({"o": 1000}, {"o": 500})


def test_nobody_is_moved_up_before_somebody_of_higher_priority_who_waits() -> None:
    higher = replace(waiting("h", 1400, "p0", "p1", length=3000), priority=201)

    assert slots(plan(world(gang(promised_at=0), higher)))["g"] == 1000


def test_a_booking_of_higher_priority_waits_for_its_time_and_for_nobody() -> None:
    booked = replace(waiting("h", 9000, "p0", length=100), priority=201, is_fixed=True, earliest_start_s=9000)

    assert slots(plan(world(gang(promised_at=0), booked)))["g"] == 500


def test_one_of_higher_priority_who_waits_for_other_nodes_is_in_nobody_s_way() -> None:
    higher = replace(waiting("h", 1400, length=3000), pools=("q",), node_count=1, slot=stand(1400, "q0", pool="q"), priority=201)
    full = running("f", "q0", end=1400)

    made = plan(replace(world(gang(promised_at=0), higher), pools=(pool(2), pool(1, id="q")), running=(BUSY, full)))

    assert slots(made) == {"g": 500, "h": 1400}


@pytest.mark.parametrize(("slice_", "project"), [("slice of g", "y"), ("slice of h", "x")], ids=["workspace", "project"])
def test_unless_both_count_for_one_limit(slice_: str, project: str) -> None:
    """A workspace has one box at a time; the project may have no more than the gang's GPUs."""
    higher = replace(waiting("h", 1400, length=3000), pools=("q",), node_count=1, slot=stand(1400, "q0", pool="q"), priority=201)
    higher = replace(higher, slice=slice_, project=project)
    quota, alike = Quota("x", "shape-p", guaranteed=0, most=16), replace(pool(1, id="q"), shape="shape-p")

    made = plan(replace(world(gang(promised_at=0), higher), pools=(pool(2), alike), quotas=(quota,)))

    assert slots(made)["g"] == 1000


def test_one_of_higher_priority_that_starts_as_soon_as_it_may_is_in_nobody_s_way() -> None:
    """Its slot is its own; sooner it will not start."""
    later = replace(waiting("h", 9000, "p0", length=100), priority=201, earliest_start_s=9000)

    assert slots(plan(world(gang(promised_at=0), later)))["g"] == 500


def test_nor_before_one_that_has_just_come() -> None:
    """One that the failure of its box's node threw off waits like this."""
    higher = request("h", count=2, length=400, priority=201)

    assert slots(plan(world(gang(promised_at=0), higher))) == {"g": 1000, "h": 500}


def test_nor_before_one_that_has_just_been_edited_and_gets_its_place_anew() -> None:
    edited = request("h", count=2, length=400, priority=201, promise=600)

    told = placements(plan(world(gang(promised_at=0), edited)))

    assert (told["h"].slot, told["h"].moved) == (stand(600, "p0", "p1"), None)
    assert told["g"].slot == stand(1000, "p0", "p1")


def test_one_that_can_never_start_is_in_nobody_s_way() -> None:
    never = replace(request("h", count=3, length=400, priority=201), pools=("p", "q"))

    made = plan(replace(world(gang(promised_at=0), never), pools=(pool(2), pool(2, id="q"))))

    assert slots(made) == {"g": 500, "h": None}


def test_nor_before_one_that_an_administrator_put_first() -> None:
    first = replace(waiting("x", 1400, "p0", length=700), place=Place(share=-1000, key=0))

    assert starts(plan(world(gang(promised_at=0), first))) == {"g": 1000, "x": 300}


def test_one_that_an_administrator_put_behind_is_in_nobody_s_way() -> None:
    behind = replace(waiting("x", 1400, "p0", length=700), place=Place(share=1000, key=0))

    assert slots(plan(world(gang(promised_at=0), behind)))["g"] == 500


def test_of_two_projects_that_with_less_of_its_share_goes_first() -> None:
    over = replace(gang("over", promised_at=0, start=1000), share=900, rank=1)
    under = replace(gang("under", promised_at=0, start=1400), share=-500, rank=5)

    assert slots(plan(world(over, under, now=440))) == {"under": 500, "over": 900}


def test_nodes_that_were_ordered_for_it_are_not_given_up_for_a_moment() -> None:
    ordered = Pool("s", "cluster-p", "shape-p", tuple(Node(f"s{i}", 8, (Window(0, 100, order=f"s{i}"),)) for i in range(2)), SUPPLY)
    asked = replace(request("g", count=2, pools=("p", "s"), promise=100, slot=stand(100, "s0", "s1", pool="s")), orders=("s",))
    busy = (running("a", "p0", end=99), running("b", "p1", end=99))

    made = plan(Snapshot(50, (pool(2), ordered), busy, (asked,), has_freed=True))

    assert placements(made)["g"].slot == asked.slot


def test_where_an_administrator_put_a_gang_it_stays() -> None:
    """Otherwise one that was moved down would be up again at the next early end."""
    assert slots(plan(world(replace(gang(promised_at=0), place=Place(share=0, key=9))))) == {"g": 1000}


def test_of_several_gangs_who_was_queued_first_goes_first() -> None:
    """The other has less work, and its turn before."""
    first = replace(gang("first", promised_at=0, start=1000), rank=1, length_s=450)
    second = replace(gang("second", promised_at=0, start=1450), rank=2)

    assert slots(plan(world(second, first, now=440))) == {"first": 500, "second": 950}


def test_no_other_slot_moves_and_none_is_run_over() -> None:
    """There is room for the gang from 500 to 850 only: it stays."""
    between = replace(waiting("b", 850, "p1", length=150), earliest_start_s=850)

    assert slots(plan(world(gang(promised_at=0), between))) == {"b": 850, "g": 1000}


def test_a_box_that_asks_what_it_would_get_sees_the_gang_where_it_will_be() -> None:
    """It would last until 700 and so reach into the gang's new slot."""
    (offer,) = offers(world(gang(promised_at=0)), request("new", count=1, length=400))

    assert offer.start_s == 900


def test_conservative_backfill_moves_everybody_up_as_ever() -> None:
    made = plan(world(gang(promised_at=299), has_freed=False, policy=PlanPolicy(name=PolicyName.CONSERVATIVE)))

    assert slots(made) == {"g": 500}
