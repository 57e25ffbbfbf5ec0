"""An agent joins with a token for one join of one cluster, which the same install may repeat."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from inventory.models import AgentCredential, AgentSession, Cluster, JoinToken
from journal.models import Event
from protocol.agents.transport import Code
from tests.builders import NOW, make_cluster
from tests.inventory.agent import Agent, join_token, register

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("c1", is_heard=False)


def stored() -> list[object]:
    """Everything that a join may change."""
    return [
        list(Cluster.objects.order_by("pk").values()),
        list(AgentSession.objects.order_by("pk").values()),
        list(AgentCredential.objects.order_by("pk").values()),
        list(JoinToken.objects.order_by("pk").values()),
        Event.objects.count(),
    ]


def refused(token: str, *, status: int, code: Code, **changes: object) -> None:
    before = stored()
    reply = register(token, **changes)  # type: ignore[arg-type]
    assert (reply.status, reply.code) == (status, code)
    assert stored() == before


def test_a_join_gives_a_credential_that_works(cluster: Cluster) -> None:
    reply = register(join_token(cluster))

    assert reply.status == 201
    assert (reply.body["cluster"], reply.body["agent_id"], reply.body["cred_gen"]) == ("c1", str(cluster.pk), 1)
    cluster.refresh_from_db()
    assert cluster.uid == "uid-1"
    agent = Agent(cluster, reply.body["credential"])
    assert agent.sync().session_epoch == 1
    assert Event.objects.filter(kind="agent.joined", cluster_id=cluster.pk).count() == 1


def test_no_secret_is_stored(cluster: Cluster) -> None:
    token = join_token(cluster)
    credential = register(token).body["credential"]

    everything = str(stored()) + str(list(Event.objects.values()))

    assert token[-36:-6] not in everything
    assert credential[-36:-6] not in everything


def test_a_token_is_good_for_one_install(cluster: Cluster) -> None:
    token = join_token(cluster)
    register(token, install="install-1")

    refused(token, install="install-2", status=401, code=Code.BAD_TOKEN)


def test_the_same_install_may_come_again_since_its_answer_may_have_been_lost(cluster: Cluster) -> None:
    token = join_token(cluster)
    lost = register(token).body["credential"]

    again = register(token)

    assert again.status == 201
    assert Agent(cluster, lost).try_sync().code == Code.BAD_TOKEN
    assert Agent(cluster, again.body["credential"]).sync().session_epoch == 1


def test_a_token_expires(cluster: Cluster) -> None:
    token = join_token(cluster)

    refused(token, at=NOW + settings.EGS_JOIN_TOKEN_LIFE, status=401, code=Code.BAD_TOKEN)
    assert register(token, at=NOW + settings.EGS_JOIN_TOKEN_LIFE - SECOND).status == 201


def test_a_repeat_after_the_tokens_end_is_refused(cluster: Cluster) -> None:
    token = join_token(cluster)
    register(token)

    refused(token, at=NOW + settings.EGS_JOIN_TOKEN_LIFE, status=401, code=Code.BAD_TOKEN)


def test_a_new_token_ends_the_one_before(cluster: Cluster) -> None:
    old = join_token(cluster)
    join_token(cluster, at=NOW + SECOND)

    refused(old, at=NOW + SECOND, status=401, code=Code.BAD_TOKEN)


def test_a_new_token_ends_also_the_one_that_was_used(cluster: Cluster) -> None:
    """Otherwise the install that an administrator is replacing could take the cluster back."""
    old = join_token(cluster)
    register(old, install="install-1")
    new = join_token(cluster, at=NOW + SECOND)
    register(new, install="install-2", at=NOW + SECOND)

    refused(old, install="install-1", at=NOW + 2 * SECOND, status=401, code=Code.BAD_TOKEN)


@pytest.mark.parametrize("damage", ["", "egsb_", "x", "swap", "kind", "nul", "cut", "long"])
def test_a_damaged_token_is_refused(damage: str, cluster: Cluster) -> None:
    token = join_token(cluster)
    bad = {
        "": "",
        "egsb_": "egsb_",
        "x": token[:-1] + ("x" if token[-1] != "x" else "y"),
        "swap": token.replace(token[20], "0" if token[20] != "0" else "1"),
        "kind": token.replace("egsb_", "egsu_"),
        "nul": token[:10] + "\0" + token[11:],
        "cut": token[:-1],
        "long": token * 1000,
    }[damage]

    refused(bad, status=401, code=Code.BAD_TOKEN)


def test_a_token_that_is_well_formed_but_unknown_is_refused(cluster: Cluster) -> None:
    token = join_token(cluster)
    JoinToken.objects.all().delete()

    refused(token, status=401, code=Code.BAD_TOKEN)


def test_another_cluster_cannot_take_over_a_record(cluster: Cluster) -> None:
    Agent.joined(cluster, uid="uid-1")
    token = join_token(cluster)

    refused(token, uid="uid-2", status=409, code=Code.WRONG_CLUSTER)


def test_a_cluster_that_has_joined_cannot_join_under_another_name(cluster: Cluster) -> None:
    Agent.joined(cluster, uid="uid-1")
    other = make_cluster("c2", is_heard=False)

    refused(join_token(other), uid="uid-1", status=409, code=Code.WRONG_CLUSTER)


def test_a_new_install_of_the_same_cluster_ends_the_old_ones_credentials(cluster: Cluster) -> None:
    old = Agent.joined(cluster, uid="uid-1")
    reply = register(join_token(cluster), uid="uid-1", install="install-2")

    new = Agent(cluster, reply.body["credential"], boot="boot-2")
    new.sync()

    assert old.try_sync().code == Code.BAD_TOKEN
    assert new.sync().session_epoch == 2


@pytest.mark.parametrize(("low", "high", "status"), [(1, 1, 201), (1, 9, 201), (2, 9, 400), (0, 0, 400)])
def test_versions_of_the_protocol_must_meet(low: int, high: int, status: int, cluster: Cluster) -> None:
    reply = register(join_token(cluster), proto_min=low, proto_max=high)

    assert reply.status == status
    if status == 400:
        assert reply.code == Code.UNSUPPORTED_PROTO
        assert not AgentSession.objects.exists()


@pytest.mark.parametrize("changes", [{"install": ""}, {"uid": ""}, {"install": "x" * 64}, {"uid": "x" * 64}])
def test_who_does_not_say_who_he_is_does_not_join(changes: dict[str, str], cluster: Cluster) -> None:
    """An empty install id would make a one-time token good for everybody."""
    before_uid, token = cluster.uid, join_token(cluster)

    assert register(token, **changes).status == 400  # type: ignore[arg-type]

    cluster.refresh_from_db()
    assert (cluster.uid, JoinToken.objects.filter(used_by="").count()) == (before_uid, 1)
