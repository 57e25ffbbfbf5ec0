"""Agents report steps and inventory once each, in order, of their own cluster alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from inventory import models
from inventory.models import AgentSession, Cluster, Gpu, Node, Reservation, StepResult
from inventory.services.events import LOG_MAX_CHARS
from journal.models import Event
from protocol.agents.events import InventoryEvent, Outcome
from protocol.agents.transport import Code
from protocol.assignments import Phase
from protocol.nodes.checks import CheckResult, Verdict
from protocol.nodes.inventory import GpuView
from tests.builders import NOW, agent_says, hold, make_cluster, make_gpr, make_slice, node_view, nodes_of
from tests.inventory.agent import Agent, step

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("c1", nodes=2, is_heard=False)


@pytest.fixture
def row(cluster: Cluster) -> Reservation:
    (row,) = hold(make_gpr(make_slice(cluster)), nodes_of(cluster)[0])
    return row


def names() -> list[str]:
    return list(StepResult.objects.order_by("pk").values_list("step", flat=True))


# -- once, in order ------------------------------------------------------------------------------------------------------


def test_steps_are_stored_with_what_they_found(agent: Agent, row: Reservation) -> None:
    reply = agent.events(step(row, 1, log="fine", evidence={"gpus": 4}))

    assert (reply.stored_seq, reply.stale) == (1, ())
    stored = StepResult.objects.get()
    assert (stored.reservation_id, stored.step, stored.attempt, stored.outcome) == (row.pk, "node_ready", 1, "OK")
    assert (stored.log, stored.evidence) == ("fine", {"gpus": 4})
    assert stored.started_at == NOW
    assert Event.objects.filter(kind="node.step_passed", gpr_id=row.gpr_id).count() == 1


def test_a_repeat_counts_once(agent: Agent, row: Reservation) -> None:
    events = [step(row, 1), step(row, 2, name="gpu_count")]
    agent.events(*events)

    assert agent.events(*events).stored_seq == 2
    assert agent.events(events[0]).stored_seq == 2

    assert names() == ["node_ready", "gpu_count"]
    assert Event.objects.filter(kind="node.step_passed").count() == 2


def test_order_within_a_batch_does_not_matter(agent: Agent, row: Reservation) -> None:
    reply = agent.events(step(row, 3, name="c"), step(row, 1, name="a"), step(row, 2, name="b"))

    assert reply.stored_seq == 3
    assert names() == ["a", "b", "c"]


def test_what_comes_after_a_gap_is_left_to_be_sent_again(agent: Agent, row: Reservation) -> None:
    assert agent.events(step(row, 1, name="a"), step(row, 3, name="c")).stored_seq == 1
    assert names() == ["a"]

    assert agent.events(step(row, 2, name="b"), step(row, 3, name="c")).stored_seq == 3
    assert names() == ["a", "b", "c"]


def test_the_same_attempt_under_another_number_counts_once(agent: Agent, row: Reservation) -> None:
    """A new session counts from 1 again, and may send what the old one could not."""
    agent.events(step(row, 1), step(row, 2))

    assert names() == ["node_ready"]
    assert Event.objects.filter(kind="node.step_passed").count() == 1


def test_numbers_begin_again_in_a_new_session(agent: Agent, row: Reservation) -> None:
    agent.events(step(row, 1, name="a"))
    newer = Agent(agent.cluster, agent.credential, boot="boot-2")
    newer.sync()

    assert newer.events(step(row, 1, name="b")).stored_seq == 1
    assert names() == ["a", "b"]


@pytest.mark.parametrize("epoch", [0, 2, 99])
def test_events_of_another_session_are_refused(epoch: int, agent: Agent, row: Reservation) -> None:
    reply = agent.try_events(step(row, 1), epoch=epoch)

    assert (reply.status, reply.code) == (409, Code.SUPERSEDED)
    assert AgentSession.objects.get().stored_seq == 0
    assert names() == []


@pytest.mark.parametrize("seq", [0, -1])
def test_numbers_that_cannot_be_are_passed_over(seq: int, agent: Agent, row: Reservation) -> None:
    assert agent.events(step(row, seq)).stored_seq == 0
    assert names() == []


def test_an_empty_batch_says_how_far_it_is(agent: Agent, row: Reservation) -> None:
    agent.events(step(row, 1))

    assert agent.events().stored_seq == 1


def test_what_cannot_be_stored_keeps_nothing_before_it(agent: Agent, row: Reservation) -> None:
    reply = agent.try_events(step(row, 1, name="a"), step(row, 2, name="b", started_s=1e300), step(row, 3, name="c"))

    assert reply.status == 400
    assert AgentSession.objects.get().stored_seq == 1
    assert names() == ["a"]


def test_fifty_steps_cost_no_more_queries_than_two(agent: Agent, row: Reservation) -> None:
    counts = []
    for seqs in (range(1, 3), range(3, 53)):
        with CaptureQueriesContext(connection) as queries:
            agent.events(*(step(row, seq, name=f"s{seq}", results=(CheckResult(check="gpus", verdict=Verdict.PASS),)) for seq in seqs))
        counts.append(len(queries))

    assert counts[1] == counts[0]
    assert len(names()) == 52


# -- of its own cluster and epoch ----------------------------------------------------------------------------------------


def test_a_step_of_another_epoch_is_stale_and_the_next_goes_on(agent: Agent, row: Reservation) -> None:
    reply = agent.events(step(row, 1, epoch=row.epoch + 1), step(row, 2))

    assert (reply.stored_seq, reply.stale) == (2, (1,))
    assert names() == ["node_ready"]


def test_a_step_of_another_cluster_is_stale(agent: Agent) -> None:
    foreign = make_cluster("c2", nodes=1)
    (row,) = hold(make_gpr(make_slice(foreign)), *nodes_of(foreign))

    reply = agent.events(step(row, 1, outcome=Outcome.FAILED))

    assert reply.stale == (1,)
    assert names() == []
    assert Node.objects.get(cluster=foreign).cordoned_at is None


@pytest.mark.parametrize("unknown", ["", "no uuid", "00000000-0000-0000-0000-000000000000", "x" * 5000])
def test_a_step_of_something_unknown_is_stale(unknown: str, agent: Agent, row: Reservation) -> None:
    reply = agent.events(step(row, 1, assignment_id=unknown))

    assert (reply.stored_seq, reply.stale) == (1, (1,))


def test_a_step_may_come_after_the_release(agent: Agent, row: Reservation) -> None:
    """The exit's last step and the release travel apart; the log is not lost."""
    agent_says(row, Phase.RELEASED, now=NOW)

    reply = agent.events(step(row, 1, name="drain"))

    assert reply.stale == ()
    assert names() == ["drain"]


# -- effects -------------------------------------------------------------------------------------------------------------


def test_an_entry_check_that_fails_for_good_sets_the_node_aside(agent: Agent, row: Reservation) -> None:
    agent.events(step(row, 1, outcome=Outcome.FAILED), step(row, 2, outcome=Outcome.FAILED, attempt=2))

    node = Node.objects.get(pk=row.node_id)
    assert node.cordoned_at == NOW
    assert node.cordon_reason == "Entry check Node ready failed."
    assert Event.objects.filter(kind="node.cordoned", node_id=node.pk).count() == 1
    assert Event.objects.filter(kind="node.step_failed", severity="warning").count() == 2


@pytest.mark.parametrize("outcomes", [[Outcome.FAILED, Outcome.OK], [Outcome.UNSUPPORTED, Outcome.UNSUPPORTED]], ids=["chance", "unknown"])
def test_a_failure_that_says_nothing_of_the_node_leaves_it_usable(outcomes: list[Outcome], agent: Agent, row: Reservation) -> None:
    agent.events(*(step(row, n, outcome=outcome, attempt=n) for n, outcome in enumerate(outcomes, start=1)))

    assert Node.objects.get(pk=row.node_id).cordoned_at is None


def test_a_failed_exit_step_sets_no_node_aside(agent: Agent, row: Reservation) -> None:
    agent.events(step(row, 1, name="drain", outcome=Outcome.FAILED))

    assert Node.objects.get(pk=row.node_id).cordoned_at is None


@pytest.mark.parametrize("log", ["x" * (LOG_MAX_CHARS + 1), "a\0b", "ä☃" * 10])
def test_any_log_is_stored(log: str, agent: Agent, row: Reservation) -> None:
    """The text of a tool does not matter: the agent would send a log that could not be stored for ever, and nothing behind it."""
    assert agent.events(step(row, 1, log=log)).stored_seq == 1

    assert len(StepResult.objects.get().log) <= LOG_MAX_CHARS


# -- measurements --------------------------------------------------------------------------------------------------------


HOT = CheckResult(check="gpu_temperature", verdict=Verdict.FAIL, gpu="GPU-1", value=91.0, unit="°C", threshold=87.0)
FAST = CheckResult(check="nccl_bandwidth", verdict=Verdict.PASS, value=470.0, unit="GB/s", threshold=460.0, is_least=True)


def test_each_measurement_is_an_object_of_its_own_and_counts_once(agent: Agent, row: Reservation) -> None:
    events = [step(row, 1, name="gpu_health", outcome=Outcome.FAILED, results=(HOT, FAST, FAST))]
    agent.events(*events)
    agent.events(*events)
    agent.events(step(row, 2, name="gpu_health", outcome=Outcome.FAILED, results=(HOT,)))

    stored = list(models.CheckResult.objects.values_list("what", "gpu_uuid", "value", "threshold", "verdict"))
    assert stored == [("gpu_temperature", "GPU-1", 91.0, 87.0, "FAIL"), ("nccl_bandwidth", "", 470.0, 460.0, "PASS")]


def test_the_administrator_reads_what_was_measured_and_of_which_gpu(agent: Agent, row: Reservation) -> None:
    agent.events(*(step(row, n, outcome=Outcome.FAILED, attempt=n, results=(FAST, HOT)) for n in (1, 2)))

    said = "Node ready failed. GPU temperature: 91 °C (at most 87), GPU GPU-1."
    assert Node.objects.get(pk=row.node_id).cordon_reason == f"Entry check {said}"
    assert Event.objects.filter(kind="node.step_failed").first().message.endswith(said)  # type: ignore[union-attr]


def test_a_check_that_could_not_be_made_sets_no_node_aside_and_says_why(agent: Agent, row: Reservation) -> None:
    """An image that cannot be pulled would else set aside one node after the other."""
    why = "gpu_health could not be measured: its pod cannot start with the image a/b"
    agent.events(*(step(row, n, outcome=Outcome.FAILED, attempt=n, blames_node=False, log=why) for n in (1, 2)))

    assert Node.objects.get(pk=row.node_id).cordoned_at is None
    assert set(StepResult.objects.values_list("blames_node", flat=True)) == {False}
    assert why in Event.objects.filter(kind="node.step_failed").first().message  # type: ignore[union-attr]


def test_an_exit_check_that_fails_for_good_sets_the_node_aside(agent: Agent, row: Reservation) -> None:
    agent.events(*(step(row, n, name="exit_nccl", outcome=Outcome.FAILED, attempt=n) for n in (1, 2)))

    assert "Exit check NCCL failed" in Node.objects.get(pk=row.node_id).cordon_reason


# -- inventory -----------------------------------------------------------------------------------------------------------


def test_the_inventory_is_the_whole_of_the_cluster(agent: Agent, cluster: Cluster) -> None:
    agent.inventory(node_view("c1-n1"), node_view("c1-n2", ready=False), at=NOW + MINUTE)

    found = {node.name: (node.gone_at is None, node.is_ready) for node in nodes_of(cluster)}
    assert found == {"c1-n0": (False, False), "c1-n1": (True, True), "c1-n2": (True, False)}
    kinds = list(Event.objects.filter(at=NOW + MINUTE).order_by("pk").values_list("kind", flat=True))
    assert kinds == ["node.gone", "node.joined"]


def test_the_same_inventory_again_tells_nothing(agent: Agent, cluster: Cluster) -> None:
    views = [node_view("c1-n0"), node_view("c1-n1")]
    before = Event.objects.count()

    agent.inventory(*views)
    agent.inventory(*views)

    assert Event.objects.count() == before


def test_a_node_made_anew_under_its_old_name_is_another_node(agent: Agent, cluster: Cluster) -> None:
    agent.inventory(node_view("c1-n0", uid="new"), node_view("c1-n1"))

    old, new = Node.objects.filter(name="c1-n0").order_by("gone_at")
    if old.gone_at is None:
        old, new = new, old
    assert (old.uid, new.uid, new.gone_at) == ("uid-c1-n0", "new", None)
    assert old.gone_at == NOW


def test_a_node_that_comes_back_is_the_same_node(agent: Agent, cluster: Cluster) -> None:
    before = {node.pk for node in nodes_of(cluster)}
    agent.inventory(node_view("c1-n1"))

    agent.inventory(node_view("c1-n0"), node_view("c1-n1"))

    assert {node.pk for node in nodes_of(cluster)} == before
    assert not Node.objects.exclude(gone_at=None).exists()


def test_gpus_come_fall_ill_and_go(agent: Agent, cluster: Cluster) -> None:
    well, ill, new = (GpuView(uuid=f"GPU-c1-n0-{i}", index=i, model="H100", memory_gib=80, healthy=i != 1) for i in (0, 1, 7))

    agent.inventory(structs.replace(node_view("c1-n0"), gpus=(well, ill, new)), node_view("c1-n1"))

    found = {gpu.uuid: (gpu.gone_at is None, gpu.is_healthy) for gpu in Gpu.objects.filter(node__name="c1-n0")}
    assert found == {
        "GPU-c1-n0-0": (True, True),
        "GPU-c1-n0-1": (True, False),
        "GPU-c1-n0-2": (False, True),
        "GPU-c1-n0-3": (False, True),
        "GPU-c1-n0-7": (True, True),
    }
    assert Node.objects.get(name="c1-n0").gpu_count == 3


def test_gpus_are_known_as_their_driver_told_a_check_and_one_that_was_replaced_is_told(agent: Agent, cluster: Cluster) -> None:
    """A box holds them by the same name as before. Before a check has read them nothing is said of them."""
    view = node_view("c1-n0")

    def seen(*uuids: str) -> None:
        gpus = tuple(structs.replace(gpu, hardware_uuid=uuid) for gpu, uuid in zip(view.gpus, uuids, strict=True))
        agent.inventory(structs.replace(view, gpus=gpus), node_view("c1-n1"))

    def known() -> list[str]:
        return [gpu.hardware_uuid for gpu in Gpu.objects.filter(node__name="c1-n0").order_by("index")]

    before = set(Gpu.objects.values_list("pk", flat=True))
    assert known() == [""] * 4
    seen("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    assert known() == ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
    assert not Event.objects.filter(kind="node.gpus_replaced").exists()

    seen("", "", "", "")  # the agent cannot tell any more which they are
    assert known() == ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
    seen("GPU-a", "GPU-b", "GPU-new", "GPU-d")

    event = Event.objects.get(kind="node.gpus_replaced")
    assert event.message == "GPUs of node c1-n0 were replaced. By their UUIDs, gone: GPU-c; new: GPU-new"
    assert event.data == {"gone": ["GPU-c"], "new": ["GPU-new"]}
    assert set(Gpu.objects.values_list("pk", flat=True)) == before


def test_an_inventory_never_touches_epoch_or_cordon(agent: Agent, row: Reservation) -> None:
    agent.events(step(row, 1, outcome=Outcome.FAILED), step(row, 2, outcome=Outcome.FAILED, attempt=2))
    agent.seq = 2

    agent.inventory(node_view("c1-n0"), node_view("c1-n1"), at=NOW + MINUTE)

    node = Node.objects.get(pk=row.node_id)
    assert (node.epoch, node.cordoned_at, node.seen_at) == (1, NOW, NOW + MINUTE)


def test_an_inventory_never_touches_another_cluster(agent: Agent) -> None:
    """It does not even by naming its nodes and GPUs."""
    foreign = make_cluster("c2", nodes=1)
    before = list(Node.objects.filter(cluster=foreign).values()), list(Gpu.objects.filter(node__cluster=foreign).values())

    agent.inventory(node_view("c2-n0", ready=False), at=NOW + MINUTE)
    agent.inventory(at=NOW + MINUTE)

    after = list(Node.objects.filter(cluster=foreign).values()), list(Gpu.objects.filter(node__cluster=foreign).values())
    assert after == before


def test_an_inventory_counts_once_however_often_it_is_sent(agent: Agent, cluster: Cluster) -> None:
    old = InventoryEvent(seq=1, nodes=(node_view("c1-n0"),))
    agent.events(old)
    agent.events(InventoryEvent(seq=2, nodes=(node_view("c1-n0"), node_view("c1-n1"))))

    agent.events(old)

    assert not Node.objects.exclude(gone_at=None).exists()


def test_times_are_the_agents(agent: Agent, row: Reservation) -> None:
    agent.events(step(row, 1, started_s=1_795_000_000.25, ended_s=1_795_000_001.5))

    stored = StepResult.objects.get()
    assert stored.started_at == datetime.fromtimestamp(1_795_000_000.25, UTC)
    assert (stored.ended_at - stored.started_at).total_seconds() == 1.25


def test_nodes_may_exchange_their_names(agent: Agent, cluster: Cluster) -> None:
    one, two = node_view("a"), node_view("b")
    agent.inventory(one, two)

    agent.inventory(structs.replace(one, name="b"), structs.replace(two, name="a"))

    assert dict(Node.objects.filter(gone_at=None).values_list("uid", "name")) == {"uid-a": "b", "uid-b": "a"}


def test_gpus_that_fall_sick_or_go_are_told_and_so_are_those_that_come_back(agent: Agent, cluster: Cluster) -> None:
    well = node_view("a")
    sick = structs.replace(well, gpus=(structs.replace(well.gpus[0], healthy=False), *well.gpus[1:]))
    agent.inventory(well)

    for view in (sick, sick, well, structs.replace(well, gpus=well.gpus[:1]), well):
        agent.inventory(view)

    told = Event.objects.filter(kind__in=["node.gpus_lost", "node.gpus_back"]).order_by("pk")
    assert [(event.kind, event.message.split(" ")[0]) for event in told] == [
        ("node.gpus_lost", "1"),
        ("node.gpus_back", "1"),
        ("node.gpus_lost", "3"),
        ("node.gpus_back", "3"),
    ]


@pytest.mark.parametrize("name", ["", "a\nb", "A", "a/b", "a b", "-a", "x" * 254, "a\u202eb"])
def test_a_node_has_a_name_that_a_node_can_have(name: str, agent: Agent) -> None:
    assert agent.try_events(InventoryEvent(seq=1, nodes=(structs.replace(node_view("a"), name=name),))).status == 400
    assert not Node.objects.filter(name=name).exists()
