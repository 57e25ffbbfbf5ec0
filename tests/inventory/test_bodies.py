"""Bodies that no agent of ours would send: each is answered by a problem document, and nothing of it is stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from accounts.tokens.minting import BASE62, TokenKind, _checksum
from gpr.models import Gpr
from inventory.models import AgentCredential, AgentSession, Cluster, Gpu, JoinToken, Node, Reservation, StepResult
from journal.models import Event
from protocol.agents.events import EVENTS_PATH, EventsRequest
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH, RegisterRequest
from protocol.agents.sync import SYNC_PATH, SyncRequest
from protocol.assignments import Phase
from tests.builders import NOW, hold, make_cluster, make_gpr, make_slice, nodes_of
from tests.inventory.agent import Agent, Reply, join_token, post, register, seen, step

pytestmark = pytest.mark.django_db

TABLES = [AgentCredential, AgentSession, Cluster, Event, Gpr, Gpu, JoinToken, Node, Reservation, StepResult]
HUGE = 10**30


@pytest.fixture
def agent() -> Agent:
    return Agent.joined(make_cluster("c1", nodes=2, is_heard=False))


@pytest.fixture
def row(agent: Agent) -> Reservation:
    (row,) = hold(make_gpr(make_slice(agent.cluster)), nodes_of(agent.cluster)[0])
    return row


def everything() -> list[object]:
    return [list(table.objects.order_by("pk").values()) for table in TABLES]  # type: ignore[attr-defined]


def is_problem(reply: Reply) -> bool:
    return reply.status == 400 and {"type", "status", "code", "title", "detail"} <= set(reply.body) and reply.body["status"] == 400


SYNC = {"session_epoch": 1, "boot_id": "boot-1"}
EVENTS: dict[str, Any] = {"session_epoch": 1}
NO_MESSAGES: list[Any] = [b"", b"{", b"null", b"[]", b"{}", b'"text"', b"\xff\xfe", b"\0", b"[" * 100_000, b'{"a":' * 50_000]
BODIES: dict[str, list[Any]] = {
    REGISTER_PATH: NO_MESSAGES,
    RENEW_PATH: [*NO_MESSAGES, {"cred_gen": "one"}],
    SYNC_PATH: [
        *NO_MESSAGES,
        {**SYNC, "session_epoch": "1"},
        {**SYNC, "session_epoch": 1.5},
        {**SYNC, "boot_id": 5},
        {**SYNC, "known_generation": HUGE},
        {**SYNC, "observed": {}},
        {**SYNC, "observed": [{"assignment_id": "x"}]},
        {**SYNC, "observed": [{"assignment_id": "x", "epoch": 1, "phase": "LOST"}]},
        b'{"session_epoch": 1, "boot_id": "boot-1", "clock_offset_s": NaN}',
        b'{"session_epoch": 1, "boot_id": "boot-1", "clock_offset_s": 1e999}',
        b'{"session_epoch": 1, "boot_id": "\\ud800"}',
    ],
    EVENTS_PATH: [
        *NO_MESSAGES,
        {**EVENTS, "events": [{"kind": "unheard of", "seq": 1}]},
        {**EVENTS, "events": [{"kind": "inventory", "seq": 1}]},
        {**EVENTS, "events": [{"kind": "inventory", "seq": 1, "nodes": [{"name": "n"}]}]},
    ],
}


@pytest.mark.parametrize("path", BODIES)
def test_what_is_no_message_is_refused_and_nothing_is_stored(path: str, agent: Agent, row: Reservation) -> None:
    before = everything()

    for body in BODIES[path]:
        reply = post(path, body, bearer=agent.credential)
        assert is_problem(reply), (str(body)[:60], reply)
        assert everything() == before, str(body)[:60]


def test_a_moment_beyond_the_calendar_is_refused(agent: Agent, row: Reservation) -> None:
    before = everything()

    for field in ("active_s", "exit_began_s"):
        for moment in (1e300, -1e300, 1e12, 253402300800.0):
            assert is_problem(agent.try_sync(seen(row, Phase.ACTIVE, **{field: moment}))), (field, moment)
            assert everything() == before, (field, moment)


def test_nul_which_no_text_of_postgresql_holds_is_left_out_wherever_it_stands(agent: Agent, row: Reservation) -> None:
    agent.sync(seen(row, Phase.FAILED, failure="disk\0 full" + "x" * 5000), agent_version="1\0.1")
    agent.events(step(row, 1, name="a\0b", log="\0a\\\0b\\u0000", evidence={"tool": "a\0b", "count": 3, "ok": True}))

    assert Reservation.objects.get().failure.startswith("disk full")
    assert AgentSession.objects.get().agent_version == "1.1"
    stored = StepResult.objects.get()
    assert (stored.step, stored.log) == ("ab", "a\\b\\u0000")
    assert stored.evidence == {"tool": "ab", "count": 3, "ok": True}


def test_a_step_that_cannot_be_is_refused(agent: Agent, row: Reservation) -> None:
    before = everything()

    for changes in ({"attempt": -1}, {"attempt": HUGE}, {"started_s": 1e300}, {"ended_s": -1e300}):
        assert is_problem(agent.try_events(step(row, 1, **changes))), changes
        assert everything() == before, changes


def gpu(**changes: Any) -> dict[str, Any]:
    return {"uuid": "GPU-x", "index": 0, "model": "H100", "memory_gib": 80, **changes}


def node(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "uid": "uid-x", "shape": "H100-80GB", "node_type": "", "gpus": [gpu()], **changes}


INVENTORIES = {
    "a node twice": [node(), node()],
    "a uid twice": [node(), node(name="y")],
    "a name twice": [node(), node(uid="uid-y")],
    "a GPU twice": [node(gpus=[gpu(), gpu(index=1)])],
    "a negative index": [node(gpus=[gpu(index=-1)])],
    "a huge index": [node(gpus=[gpu(index=HUGE)])],
    "negative memory": [node(gpus=[gpu(memory_gib=-1)])],
    "huge memory": [node(gpus=[gpu(memory_gib=HUGE)])],
}


def test_an_inventory_that_cannot_be_is_refused(agent: Agent) -> None:
    before = everything()

    for why, nodes in INVENTORIES.items():
        reply = agent.post(EVENTS_PATH, {**EVENTS, "events": [{"kind": "inventory", "seq": 1, "nodes": nodes}]})
        assert is_problem(reply), (why, reply)
        assert everything() == before, why


def test_what_stood_before_a_bad_event_is_stored_and_what_stands_behind_it_waits(agent: Agent, row: Reservation) -> None:
    reply = agent.try_events(step(row, 1, name="a"), step(row, 2, name="b", attempt=-1), step(row, 3, name="c"))

    assert is_problem(reply)
    assert list(StepResult.objects.values_list("step", flat=True)) == ["a"]
    assert agent.events(step(row, 2, name="b")).stored_seq == 2


LONG = "x" * 5000


@pytest.mark.postgres_only
@pytest.mark.parametrize("field", ["cluster_uid", "install_id", "agent_version"])
def test_a_join_with_a_text_beyond_its_column_is_refused(field: str) -> None:
    """SQLite has no such bound."""
    token = join_token(make_cluster("c1", is_heard=False))
    before = everything()

    reply = register(token, **{{"cluster_uid": "uid", "install_id": "install"}.get(field, field): LONG})  # type: ignore[arg-type]

    assert is_problem(reply)
    assert everything() == before


@pytest.mark.postgres_only
@pytest.mark.parametrize(
    "changes",
    [*({name: LONG} for name in ("name", "uid", "shape", "node_type", "zone", "rack")), {"gpus": [gpu(uuid=LONG)]}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_node_with_a_text_beyond_its_column_is_refused(changes: dict[str, Any], agent: Agent) -> None:
    before = everything()

    reply = agent.post(EVENTS_PATH, {**EVENTS, "events": [{"kind": "inventory", "seq": 1, "nodes": [node(**changes)]}]})

    assert is_problem(reply)
    assert everything() == before


@pytest.mark.parametrize("kind", [TokenKind.JOIN, TokenKind.AGENT])
def test_a_token_whose_checksum_holds_is_still_refused_when_it_holds_what_no_token_holds(kind: TokenKind, agent: Agent) -> None:
    """Anybody can compute the checksum."""
    body = f"{kind}_" + "a\0bcdefghijk" + "_" + BASE62[:30]
    token = body + _checksum(body)

    if kind == TokenKind.JOIN:
        assert register(token).status == 401
    else:
        assert agent.try_sync(bearer=token).status == 401


def test_a_message_of_a_newer_agent_is_understood() -> None:
    cluster = make_cluster("c1", is_heard=False)
    message = RegisterRequest(join_token=join_token(cluster), cluster_uid="uid", install_id="i", agent_version="9")
    newer = {**msgspec.to_builtins(message), "mood": {"today": ["fine"]}}

    reply = post(REGISTER_PATH, newer)
    assert reply.status == 201
    told = msgspec.to_builtins(SyncRequest(session_epoch=0, boot_id="b"))
    assert post(SYNC_PATH, {**told, "mood": 1}, bearer=reply.body["credential"]).status == 200
    events = msgspec.to_builtins(EventsRequest(session_epoch=1, events=()))
    assert post(EVENTS_PATH, {**events, "mood": None}, bearer=reply.body["credential"]).status == 200


def test_the_credential_is_looked_at_before_the_body(agent: Agent) -> None:
    """An agent that proves nothing learns nothing about what would be well formed."""
    for path in (RENEW_PATH, SYNC_PATH, EVENTS_PATH):
        assert post(path, b"{", bearer="nonsense", at=NOW).status == 401
