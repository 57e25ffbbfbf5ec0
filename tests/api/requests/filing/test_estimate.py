from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.allocation.live import snapshot_load
from gpr.models import Eviction, Gpr
from journal.models import Event
from planner.snapshot import Quota
from protocol.assignments import Phase
from slices.models import Slice
from tests import factories
from tests.api.conftest import A_STRANGER, Caller, World, assert_problem, faults
from tests.builders import SHAPE

# Each day: tests/planner/test_offers.py, and tests/api/requests/filing/test_create.py
pytestmark = pytest.mark.rotates


def offers(caller: Caller, ask: dict[str, Any]) -> list[dict[str, Any]]:
    response = caller.post("gprs/estimate/", ask)
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["offers"]
    return found


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_an_offer_that_starts_now_says_so_and_nothing_is_written(owner: Caller, ask: dict[str, Any]) -> None:
    events = Event.objects.count()

    (offer,) = offers(owner, ask)

    assert (offer["cluster"], offer["shape"], offer["supply"], offer["wait_s"]) == ("aurora", SHAPE, "nodes", 0)
    assert (offer["p50_s"], offer["p90_s"], offer["alternatives"]) == (0, 0, [])
    assert offer["explanation"]["reason"] == "starts_now"
    assert offer["basis"]
    assert (Gpr.objects.count(), Event.objects.count()) == (0, events)


def test_there_is_one_offer_for_each_cluster_and_shape_soonest_first(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    borealis = factories.cluster("borealis", nodes=1)
    factories.add_nodes(borealis, 1, shape="A100-80GB")
    world.slice.clusters.add(borealis)
    factories.active(world.foreign_slice, world.people.outsider, nodes=2)
    del ask["shape"]

    found = offers(owner, {**ask, "min_gpu_memory_gib": 40})

    assert {(offer["cluster"], offer["shape"]) for offer in found[:2]} == {("borealis", "A100-80GB"), ("borealis", SHAPE)}
    assert [(offer["cluster"], offer["wait_s"] > 0) for offer in found] == [("borealis", False), ("borealis", False), ("aurora", True)]


def test_only_the_clusters_that_were_named_are_offered(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    world.slice.clusters.add(factories.cluster("borealis"))

    assert [offer["cluster"] for offer in offers(owner, {**ask, "clusters": ["borealis"]})] == ["borealis"]


@pytest.mark.daily
def test_what_was_offered_is_what_the_request_then_gets(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    factories.active(world.foreign_slice, world.people.outsider, nodes=2, duration_s=1800)
    (offer,) = offers(owner, {**ask, "nodes": 2})

    gpr = owner.post("gprs/", {**ask, "nodes": 2}).json()

    assert gpr["estimate"]["start_at"] == offer["start_at"]
    assert gpr["promised_start_at"] == offer["promised_start_at"]
    assert gpr["explanation"] == offer["explanation"]
    assert 1800 <= offer["wait_s"] == offer["p50_s"] <= offer["p90_s"]


def test_an_alternative_is_true_when_it_is_taken(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    """One node is free; two would have to wait for the other, unless they are needed for a short time only."""
    factories.active(world.foreign_slice, world.people.outsider, nodes=1, duration_s=4 * 3600)
    (offer,) = offers(owner, {**ask, "nodes": 2})
    assert offer["wait_s"] > 4 * 3600 - 60

    (smaller,) = offer["alternatives"]
    assert (smaller["nodes"], smaller["duration_s"], smaller["wait_s"]) == (1, 3600, 0)

    gpr = owner.post("gprs/", {**ask, "nodes": smaller["nodes"], "duration_s": smaller["duration_s"]}).json()
    assert abs(moment(gpr["estimate"]["start_at"]) - moment(smaller["start_at"])) < timedelta(seconds=5)


def test_other_gpus_and_other_clusters_that_would_start_sooner_are_alternatives(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    """Both nodes are taken; there is a larger shape beside them, a smaller one, and the same in another cluster."""
    factories.active(world.foreign_slice, world.people.outsider, nodes=2, duration_s=7200)
    factories.add_nodes(world.cluster, 1, shape="H200-141GB", memory_gib=141)
    factories.add_nodes(world.cluster, 1, shape="L40-48GB", memory_gib=48)
    world.slice.clusters.add(factories.cluster("borealis"))

    (offer,) = offers(owner, {**ask, "clusters": ["aurora"]})

    found = {(other["cluster"], other["shape"]): other for other in offer["alternatives"] if other["nodes"] == 1}
    assert ("aurora", "L40-48GB") not in found
    assert found["aurora", "H200-141GB"]["differs"] == ["shape"]
    assert found["borealis", "H100-80GB"]["differs"] == ["clusters"]
    for (cluster, shape), other in found.items():
        assert other["wait_s"] == 0
        gpr = owner.post("gprs/", {**ask, "shape": shape, "clusters": [cluster]}).json()
        assert gpr["explanation"]["reason"] == "starts_now"
        owner.delete(f"gprs/{gpr['id']}/")
    assert {("aurora", "H200-141GB"), ("borealis", "H100-80GB")} <= found.keys()


def test_a_shorter_box_that_fits_before_a_promise_is_an_alternative(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    people = world.people
    other = factories.make_slice(world.cluster, owner=people.outsider)
    factories.active(world.foreign_slice, people.outsider, nodes=1, duration_s=3600)
    factories.gpr(other, people.outsider, nodes=2, duration_s=3600)  # from then on, both nodes

    (offer,) = offers(owner, {**ask, "duration_s": 6000})

    (shorter,) = offer["alternatives"]
    assert (shorter["differs"], shorter["nodes"], shorter["wait_s"]) == (["duration_s"], 1, 0)
    assert shorter["duration_s"] in {3300, 3600}  # the longest that people book: in steps of five minutes
    gpr = owner.post("gprs/", {**ask, "duration_s": shorter["duration_s"]}).json()
    assert gpr["explanation"]["reason"] == "starts_now"


def _gets_what_it_was_told(owner: Caller, ask: dict[str, Any], told: dict[str, Any]) -> None:
    """Filed with nothing changed but what differs, it has this start."""
    values = {**told, "clusters": [told["cluster"]]}
    gpr = owner.post("gprs/", {**ask, **{field: values[field] for field in told["differs"]}}).json()

    assert abs(moment(gpr["estimate"]["start_at"]) - moment(told["start_at"])) < timedelta(seconds=5)
    owner.delete(f"gprs/{gpr['id']}/")


def test_the_most_nodes_that_start_at_once_are_an_alternative(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    """Half of them is not the only alternative."""
    factories.add_nodes(world.cluster, 6)
    factories.active(world.foreign_slice, world.people.outsider, nodes=3, duration_s=7200)

    (offer,) = offers(owner, {**ask, "nodes": 8})

    fewer = offer["alternatives"][0]
    assert (fewer["differs"], fewer["nodes"], fewer["duration_s"], fewer["wait_s"]) == (["nodes"], 5, 3600, 0)
    assert fewer["sooner_s"] == offer["wait_s"] > 7000
    _gets_what_it_was_told(owner, {**ask, "nodes": 8}, fewer)


def test_where_nothing_starts_at_once_the_most_that_starts_in_half_the_wait_is_an_alternative(
    owner: Caller, world: World, ask: dict[str, Any]
) -> None:
    factories.add_nodes(world.cluster, 4)
    for nodes, hours in ((2, 1), (2, 2), (2, 8)):
        slice_ = factories.make_slice(world.cluster, owner=world.people.outsider)
        factories.active(slice_, world.people.outsider, nodes=nodes, duration_s=hours * 3600)

    (offer,) = offers(owner, {**ask, "nodes": 6})

    fewer = offer["alternatives"][0]
    assert (fewer["differs"], fewer["nodes"], fewer["wait_s"] // 3600) == (["nodes"], 4, 2)
    _gets_what_it_was_told(owner, {**ask, "nodes": 6}, fewer)


@pytest.mark.parametrize(("evictable_nodes", "alternatives"), [(2, [2]), (1, [])])
def test_where_only_evictions_help_one_size_from_the_middle_is_tried_and_no_other(
    evictable_nodes: int, alternatives: list[int], owner: Caller, world: World, ask: dict[str, Any]
) -> None:
    factories.add_nodes(world.cluster, 2)
    world.slice.may_evict = True
    world.slice.save()
    for nodes, evictable in ((evictable_nodes, True), (4 - evictable_nodes, False)):
        slice_ = factories.make_slice(world.cluster, owner=world.people.outsider)
        factories.active(slice_, world.people.outsider, nodes=nodes, evictable=evictable, priority=50, duration_s=86_400)

    with override_settings(EGS_EVICTION_LEAST_RUN_S=0):
        (offer,) = offers(owner, {**ask, "nodes": 4, "priority": 150, "may_evict": True})

    assert [each["nodes"] for each in offer["alternatives"] if each["differs"] == ["nodes"]] == alternatives


def test_fewer_gpus_of_each_node_are_an_alternative_for_a_part_of_a_node(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    for gpus in (5, 6):
        slice_ = factories.make_slice(world.cluster, owner=world.people.outsider)
        factories.active(slice_, world.people.outsider, gpus_per_node=gpus, duration_s=7200)

    (offer,) = offers(owner, {**ask, "gpus_per_node": 4})

    (fewer,) = offer["alternatives"]
    assert (fewer["differs"], fewer["gpus_per_node"], fewer["nodes"], fewer["wait_s"]) == (["gpus_per_node"], 3, 1, 0)
    _gets_what_it_was_told(owner, {**ask, "gpus_per_node": 4}, fewer)


def test_there_is_no_alternative_to_a_start_that_is_as_soon_as_was_asked(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    later = (db_now() + timedelta(hours=5)).isoformat()

    (offer,) = offers(owner, {**ask, "nodes": 2, "earliest_start_at": later})

    assert offer["wait_s"] > 4 * 3600
    assert offer["alternatives"] == []


def test_a_variant_that_starts_no_sooner_is_not_offered(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    factories.active(world.slice, world.people.owner, duration_s=7200)  # the slice's own GPR: nothing helps

    (offer,) = offers(owner, {**ask, "nodes": 2})

    assert offer["alternatives"] == []
    assert offer["explanation"]["reason"] == "waits_for_slice"


def test_strangers_stay_strangers_in_an_offer(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    canary = factories.active(world.foreign_slice, world.people.outsider, nodes=2, name="canary")

    response = owner.post("gprs/estimate/", ask)

    assert b"canary" not in response.content
    assert str(canary.pk).encode() not in response.content
    (offer,) = response.json()["offers"]
    assert offer["explanation"]["blockers"] == [A_STRANGER]


def test_a_question_needs_no_name_but_all_else_that_a_request_needs(owner: Caller, ask: dict[str, Any]) -> None:
    del ask["name"]
    assert len(offers(owner, ask)) == 1

    for fault in ({"nodes": 0}, {"nodes": True}, {"shape": "H200"}, {"duration_s": "soon"}, {"extra": 1}, {"priority": 301}):
        assert faults(owner.post("gprs/estimate/", {**ask, **fault})) == list(fault)


def test_what_could_never_start_has_no_offer_but_the_most_that_could(owner: Caller, ask: dict[str, Any]) -> None:
    body = assert_problem(owner.post("gprs/estimate/", {**ask, "nodes": 3}), 400, "can_never_start")

    assert body["most_nodes"] == 2


def test_the_rules_that_would_need_approval_are_told_beforehand(owner: Caller, ask: dict[str, Any]) -> None:
    body = owner.post("gprs/estimate/", {**ask, "priority": 250}).json()

    assert body["approval_reasons"] == ["Priority 250; above 200 needs approval."]
    assert len(body["offers"]) == 1


@pytest.mark.parametrize(
    ("persona", "status"), [("owner", 200), ("reader", 200), ("teammate", 403), ("outsider", 404), ("admin", 200), ("anonymous", 401)]
)
def test_who_may_ask(persona: str, status: int, ask: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(persona).post("gprs/estimate/", ask).status_code == status


def test_the_offer_of_a_frozen_queue_is_when_it_starts(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    running = factories.active(world.foreign_slice, world.people.outsider, nodes=2, duration_s=1800)
    (offer,) = offers(owner, ask)
    gpr_id = owner.post("gprs/", ask).json()["id"]
    starts_at = moment(offer["start_at"])

    ends_at = running.ends_at
    assert ends_at is not None
    tick(now=ends_at)  # the booked time is over
    running.refresh_from_db()
    factories.observe(running, Phase.RELEASED, at=starts_at - timedelta(seconds=1))
    world.cluster.agent.last_sync_at = starts_at
    world.cluster.agent.save()
    tick(now=starts_at)

    assert Gpr.objects.get(pk=gpr_id).provisioning_at == starts_at
    assert starts_at > db_now()


@override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=60)
def test_a_start_that_rests_on_evictions_says_so_and_names_nobody(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    factories.active(world.foreign_slice, world.people.outsider, nodes=2, name="canary", priority=50, duration_s=86_400)

    (offer,) = offers(owner, {**ask, "nodes": 2, "priority": 150, "may_evict": True})

    assert (offer["supply"], offer["borrows"]) == ("reclaim", False)
    assert 600 <= offer["wait_s"] < 3600
    assert offer["explanation"]["sentence"].endswith(" It starts after requests of lower priority have made way.")
    assert "canary" not in str(offer)
    assert not Eviction.objects.exists()


@pytest.mark.parametrize("guaranteed", [8, 16])
def test_what_is_beyond_the_guarantee_is_borrowed(
    guaranteed: int, owner: Caller, world: World, ask: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(**kwargs: Any) -> Any:
        made, project_id = snapshot_load(**kwargs), str(world.slice.project_id)
        return replace(made, snapshot=replace(made.snapshot, quotas=(Quota(project_id, SHAPE, guaranteed),)))

    monkeypatch.setattr("gpr.requests.editing.snapshot_load", loaded)
    (offer,) = offers(owner, {**ask, "nodes": 2})

    assert offer["borrows"] == (guaranteed < 16)
    assert ("may be taken back, after notice." in offer["explanation"]["sentence"]) == offer["borrows"]


def _at_home(world: World, *, gain_s: int) -> None:
    """Two nodes at home are busy for an hour; elsewhere all is free."""
    world.slice.clusters.add(factories.cluster("borealis"))
    Slice.objects.filter(pk=world.slice.pk).update(home=world.cluster, burst_gain_s=gain_s)
    factories.active(world.foreign_slice, world.people.outsider, nodes=2, duration_s=3600)


def test_a_workspace_goes_elsewhere_only_where_that_saves_more_than_its_policy_says(
    owner: Caller, world: World, ask: dict[str, Any]
) -> None:
    """The first offer is what it gets if it names no cluster, and the allocator does as the offer says."""
    _at_home(world, gain_s=7200)

    home, away = offers(owner, ask)
    made = owner.post("gprs/", ask).json()
    tick(now=db_now())

    assert [home["cluster"], away["cluster"], away["wait_s"]] == ["aurora", "borealis", 0]
    assert "not in aurora, the home of its workspace" in away["explanation"]["sentence"]
    assert "home" not in home["explanation"]["sentence"]
    after = owner.get(f"gprs/{made['id']}/").json()
    assert (after["state"], after["estimate"]["start_at"]) == ("QUEUED", home["start_at"])


def test_a_workspace_goes_elsewhere_at_once_where_that_saves_enough(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    _at_home(world, gain_s=600)

    made = owner.post("gprs/", ask).json()
    tick(now=db_now())

    after = owner.get(f"gprs/{made['id']}/").json()
    assert (after["state"], after["cluster"]) == ("PROVISIONING", "borealis")


def test_whoever_names_another_cluster_goes_there_whatever_is_home(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    _at_home(world, gain_s=7200)

    (offer,) = offers(owner, {**ask, "clusters": ["borealis"]})

    assert (offer["wait_s"], "home" in offer["explanation"]["sentence"]) == (0, False)
