from __future__ import annotations

from typing import Any
from uuid import uuid4

from inventory.models import Gpu, Node, ReservationState
from journal.models import Event
from protocol.assignments import Phase
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE


def nodes(caller: Caller, query: str = "") -> dict[str, dict[str, Any]]:
    response = caller.get(f"nodes/{query}")
    assert response.status_code == 200, response.content
    return {row["name"]: row for row in response.json()["results"]}


def test_a_member_sees_the_nodes_that_his_slices_may_use(owner: Caller, admin: Caller, world: World) -> None:
    factories.cluster("strange", nodes=1)

    assert set(nodes(owner)) == {"aurora-0", "aurora-1"}
    assert set(nodes(admin)) == {"aurora-0", "aurora-1", "strange-0"}
    row = nodes(owner)["aurora-0"]
    assert (row["cluster"], row["shape"], row["gpu_count"], row["gpus_free"], row["state"]) == ("aurora", SHAPE, 8, 8, "free")
    assert (row["node_type"], row["gpu_memory_gib"], row["is_ready"], row["is_cordoned"], row["held_by"]) == ("hgx", 80, True, False, [])
    assert owner.get("nodes/aurora-0/").json() == owner.get(f"nodes/{row['id']}/").json()


def test_his_own_gpr_on_a_node_is_named_and_a_stranger_s_is_not(owner: Caller, outsider: Caller, admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="mine", gpus_per_node=3)

    own, foreign, all_ = (nodes(caller)["aurora-0"] for caller in (owner, outsider, admin))

    assert own["state"] == foreign["state"] == "held"
    assert own["gpus_free"] == foreign["gpus_free"] == 5
    (holder,) = own["held_by"]
    assert (holder["gpr"], holder["gpr_id"], holder["slice"], holder["gpu_count"], holder["phase"]) == (
        "mine",
        str(gpr.pk),
        "vision",
        3,
        "ACTIVE",
    )
    assert foreign["held_by"] == []
    assert all_["held_by"] == own["held_by"]


def test_filters_narrow_the_list(owner: Caller, world: World) -> None:
    factories.cluster("strange", nodes=1)
    world.slice.clusters.add(factories.cluster("borealis", nodes=1, shape="A100-80GB"))
    Node.objects.filter(name="borealis-0").update(is_ready=False)
    factories.started(world.slice, world.people.owner, clusters=[world.cluster])

    for query, found in [
        ("?cluster=aurora", {"aurora-0", "aurora-1"}),
        ("?cluster=borealis", {"borealis-0"}),
        ("?cluster=strange", set()),
        ("?shape=A100-80GB", {"borealis-0"}),
        ("?shape=A100", set()),
        ("?state=free", {"aurora-1"}),
        ("?state=held", {"aurora-0"}),
        ("?state=unusable", {"borealis-0"}),
        ("?state=held,unusable", {"aurora-0", "borealis-0"}),
        ("?state=free&cluster=borealis", set()),
        ("?name=OREA", {"borealis-0"}),
    ]:
        assert set(nodes(owner, query)) == found


def test_a_filter_that_means_nothing_is_an_error(owner: Caller, world: World) -> None:
    for query in ["?state=busy", "?state=", "?states=free", "?cluster=%00"]:
        assert_problem(owner.get(f"nodes/{query}"), 400, "invalid_input")


def test_a_sick_gpu_makes_its_node_unusable(owner: Caller, world: World) -> None:
    Gpu.objects.filter(uuid="GPU-aurora-0-3").update(is_healthy=False)

    row = nodes(owner)["aurora-0"]

    assert (row["state"], row["gpus_free"]) == ("unusable", 0)


def test_a_node_that_is_gone_is_not_there(owner: Caller, world: World) -> None:
    Node.objects.filter(name="aurora-0").update(gone_at=world.cluster.created_at)

    assert set(nodes(owner)) == {"aurora-1"}
    assert_problem(owner.get("nodes/aurora-0/"), 404, "not_found")


def test_one_in_no_cluster_of_his_is_as_absent_as_none(owner: Caller, world: World) -> None:
    node = Node.objects.get(cluster=factories.cluster("strange", nodes=1))

    assert len({owner.get(f"nodes/{ref}/").content for ref in (node.pk, node.name, uuid4(), "nothing", "%00")}) == 1
    assert_problem(owner.get(f"nodes/{node.pk}/"), 404, "not_found")


def test_a_name_in_two_clusters_needs_the_id(owner: Caller, admin: Caller, world: World) -> None:
    Node.objects.filter(cluster=factories.cluster("strange", nodes=1)).update(name="aurora-0")

    assert owner.get("nodes/aurora-0/").status_code == 200  # of the two, he knows one
    assert_problem(admin.get("nodes/aurora-0/"), 409, "conflict")
    assert_problem(admin.post("nodes/aurora-0/cordon/", {"why": "x"}), 409, "conflict")


def test_an_administrator_sets_one_aside_and_takes_it_back(admin: Caller, owner: Caller, world: World) -> None:
    body = admin.post("nodes/aurora-0/cordon/", {"why": "Fan is loud."}).json()

    assert (body["state"], body["is_cordoned"], body["cordon_reason"], body["gpus_free"]) == ("unusable", True, "Fan is loud.", 0)
    assert nodes(owner)["aurora-0"]["cordon_reason"] is None
    assert_problem(admin.post("nodes/aurora-0/cordon/", {"why": "Again."}), 409, "conflict")

    assert admin.post("nodes/aurora-0/uncordon/").json()["state"] == "free"
    assert_problem(admin.post("nodes/aurora-0/uncordon/"), 409, "conflict")
    assert Event.objects.filter(kind__in=["node.cordoned", "node.uncordoned"], actor=world.people.admin).count() == 2


def test_a_node_and_its_gpus_read_draining_until_the_last_box_is_cleared_away(admin: Caller, world: World) -> None:
    ends = factories.active(world.slice, world.people.owner, gpus_per_node=4)
    factories.observe(ends, Phase.EXITING)

    assert nodes(admin)["aurora-0"]["state"] == "draining"
    assert {row["state"] for row in admin.get("gpus/?node=aurora-0&state=draining").json()["results"]} == {"draining"}
    assert len(admin.get("gpus/?node=aurora-0&state=draining").json()["results"]) == 4

    factories.active(world.foreign_slice, world.people.outsider, gpus_per_node=4)
    assert nodes(admin)["aurora-0"]["state"] == "held"


def test_what_runs_on_a_node_set_aside_runs_on(admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner)

    body = admin.post("nodes/aurora-0/cordon/", {"why": "Later."}).json()

    assert (body["state"], len(body["held_by"])) == ("held", 1)
    gpr.refresh_from_db()
    assert gpr.state == "ACTIVE"


def test_an_administrator_frees_what_he_names_of_a_node_and_says_why(admin: Caller, world: World) -> None:
    people = world.people
    ours = factories.active(world.slice, people.owner, gpus_per_node=4)
    theirs = factories.active(world.foreign_slice, people.outsider, gpus_per_node=4)
    (row,), (other,) = factories.held(ours), factories.held(theirs)
    assert row.node_id == other.node_id

    body = admin.post(f"nodes/{row.node_id}/force-release/", {"reservations": [str(row.pk)], "why": "The agent is lost."}).json()

    assert [holder["id"] for holder in body["held_by"]] == [str(other.pk)]
    row.refresh_from_db()
    assert (row.state, row.failure) == (ReservationState.RELEASED, "Released by force: The agent is lost.")
    event = Event.objects.get(kind="reservation.force_released")
    assert event.actor == people.admin


def test_all_that_is_named_is_freed_or_nothing(admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, nodes=2)
    first, second = factories.held(gpr)

    for ids in ([first.pk, second.pk], [first.pk, uuid4()]):
        body = {"reservations": [str(pk) for pk in ids], "why": "Lost."}
        assert_problem(admin.post(f"nodes/{first.node_id}/force-release/", body), 404, "not_found")
    assert len(factories.held(gpr)) == 2


def test_what_is_not_held_any_more_cannot_be_freed(admin: Caller, world: World) -> None:
    (row,) = factories.held(factories.active(world.slice, world.people.owner))
    body = {"reservations": [str(row.pk)], "why": "Lost."}
    admin.post(f"nodes/{row.node_id}/force-release/", body)

    assert_problem(admin.post(f"nodes/{row.node_id}/force-release/", body), 409, "conflict")


BAD: list[dict[str, Any]] = [
    {"why": ""},
    {"why": None},
    {"why": "x" * 151},
    {"reservations": []},
    {"reservations": "x"},
    {"reservations": ["x"]},
]
BAD += [
    {"reservations": [None]},
    {"reservations": [True]},
    {"reservations": None},
    {"force": True},
    {"reservations": ["00000000-0000-4000-8000-000000000000"] * 101},
]


def test_a_force_release_that_does_not_say_what_and_why_frees_nothing(admin: Caller, world: World) -> None:
    (row,) = factories.held(factories.active(world.slice, world.people.owner))
    for change in BAD:
        body = {"reservations": [str(row.pk)], "why": "Lost.", **change}

        assert faults(admin.post(f"nodes/{row.node_id}/force-release/", body)) == list(change)
    assert Node.objects.get(pk=row.node_id).reservations.filter(state="HELD").exists()


def test_only_administrators_read_its_bad_conditions(admin: Caller, owner: Caller, world: World) -> None:
    told = {"type": "XidError", "status": "True", "reason": "Xid79", "message": "GPU 3 is lost", "since_at": "2026-01-01T00:00:00Z"}
    Node.objects.filter(name="aurora-0").update(conditions=[told])

    assert nodes(admin)["aurora-0"]["conditions"] == [told]
    assert nodes(admin)["aurora-1"]["conditions"] == []
    assert nodes(owner)["aurora-0"]["conditions"] is None
    assert "XidError" not in owner.get("events/").content.decode()
