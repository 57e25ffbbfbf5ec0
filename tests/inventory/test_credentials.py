"""Credentials: renewed, superseded by first use, revoked, expired; and how a copied one shows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.test import override_settings

from accounts.models import Scope
from accounts.tokens.services import token_issue
from inventory.models import AgentCredential, AgentSession, Cluster, Reservation
from inventory.services.agents import RENEWAL_GRACE
from journal.models import Event
from protocol.agents.transport import Code
from tests.builders import HOUR, NOW, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.inventory.agent import Agent, join_token, register

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)
LATE = RENEWAL_GRACE + SECOND


@pytest.fixture
def agent() -> Agent:
    return Agent.joined(make_cluster("c1", nodes=1, is_heard=False))


def events(kind: str) -> int:
    return Event.objects.filter(kind=kind).count()


def test_both_credentials_work_until_the_new_one_is_used(agent: Agent) -> None:
    new = agent.renew().credential

    agent.sync(at=NOW + LATE)
    assert agent.try_sync(bearer=new, at=NOW + LATE).status == 200

    assert agent.try_sync(at=NOW + LATE + SECOND).code == Code.BAD_TOKEN


def test_a_renewal_counts_up_and_gives_another_secret(agent: Agent) -> None:
    old, first = agent.credential, agent.renew()

    assert (first.cred_gen, first.expires_s) == (2, (NOW + settings.EGS_AGENT_CREDENTIAL_LIFE).timestamp())
    assert first.credential != old


def test_a_renewal_whose_answer_was_lost_is_replaced(agent: Agent) -> None:
    lost = agent.renew()
    found = agent.renew()

    assert (lost.cred_gen, found.cred_gen) == (2, 3)
    assert agent.try_sync(bearer=lost.credential).code == Code.BAD_TOKEN
    assert agent.try_sync(bearer=found.credential).status == 200


def test_a_request_that_was_under_way_at_the_renewal_is_late_and_no_clone(agent: Agent) -> None:
    new = agent.renew().credential
    agent.try_sync(bearer=new)

    reply = agent.try_sync(at=NOW + RENEWAL_GRACE)

    assert (reply.status, reply.code) == (401, Code.BAD_TOKEN)
    assert events("agent.cloned") == 0
    assert agent.try_sync(bearer=new, at=NOW + RENEWAL_GRACE).status == 200


def test_a_replaced_credential_that_is_used_later_locks_the_agent(agent: Agent) -> None:
    new = agent.renew().credential
    agent.try_sync(bearer=new)

    copy = agent.try_sync(at=NOW + LATE)
    rightful = agent.try_sync(bearer=new, at=NOW + LATE)

    assert (copy.status, copy.code) == (rightful.status, rightful.code) == (403, Code.CLONED)
    assert agent.try_renew(bearer=new, at=NOW + LATE).code == Code.CLONED
    assert agent.try_sync(at=NOW + 2 * LATE).code == Code.CLONED
    assert events("agent.cloned") == 1


def test_a_locked_agents_nodes_stay_as_they_are(agent: Agent) -> None:
    cluster = agent.cluster
    (row,) = hold(make_gpr(make_slice(cluster)), *nodes_of(cluster))
    new = agent.renew().credential
    agent.try_sync(bearer=new)
    before = list(Reservation.objects.values())

    agent.try_sync(at=NOW + LATE)

    assert list(Reservation.objects.values()) == before
    assert Cluster.objects.get().generation == 1
    assert Reservation.objects.get().pk == row.pk


def test_a_lock_is_of_one_cluster(agent: Agent) -> None:
    other = Agent.joined(make_cluster("c2", is_heard=False))
    new = agent.renew().credential
    agent.try_sync(bearer=new)

    agent.try_sync(at=NOW + LATE)

    assert other.try_sync(at=NOW + LATE).status == 200


def test_a_new_join_token_unlocks_and_the_old_credentials_stay_dead(agent: Agent) -> None:
    old, new = agent.credential, agent.renew().credential
    agent.try_sync(bearer=new)
    agent.try_sync(at=NOW + LATE)
    token = join_token(agent.cluster, at=NOW + LATE)
    agent.try_sync(at=NOW + LATE)  # the copy is still at it

    reply = register(token, uid="uid of c1", install="install-2", at=NOW + LATE)

    assert reply.status == 201
    assert agent.try_sync(bearer=reply.body["credential"], at=NOW + LATE, session_epoch=0, boot_id="boot-2").status == 200
    for dead in (old, new):
        assert agent.try_sync(bearer=dead, at=NOW + 3 * LATE).code == Code.BAD_TOKEN
    assert AgentSession.objects.get(cluster=agent.cluster).locked_at is None


def test_the_token_that_it_joined_with_does_not_unlock_it() -> None:
    """A copy of the agent has its token and its install id as well."""
    cluster = make_cluster("c1", is_heard=False)
    token = join_token(cluster)
    agent = Agent(cluster, register(token).body["credential"])
    agent.sync()
    new = agent.renew().credential
    agent.try_sync(bearer=new)
    agent.try_sync(at=NOW + LATE)

    reply = register(token, at=NOW + LATE + SECOND)

    assert reply.status in {401, 403}
    assert AgentSession.objects.get(cluster=cluster).locked_at is not None


def test_a_credential_expires(agent: Agent) -> None:
    life = settings.EGS_AGENT_CREDENTIAL_LIFE

    assert agent.try_sync(at=NOW + life - SECOND).status == 200
    assert agent.try_sync(at=NOW + life).code == Code.BAD_TOKEN
    assert agent.try_renew(at=NOW + life).code == Code.BAD_TOKEN


def test_an_expired_credential_is_no_sign_of_a_clone(agent: Agent) -> None:
    agent.try_sync(at=NOW + settings.EGS_AGENT_CREDENTIAL_LIFE + HOUR)

    assert AgentSession.objects.get(cluster=agent.cluster).locked_at is None


def test_a_revoked_credential_is_dead_and_no_sign_of_a_clone(agent: Agent) -> None:
    AgentCredential.objects.update(revoked_at=NOW, superseded_at=NOW)

    assert agent.try_sync(at=NOW + LATE).code == Code.BAD_TOKEN
    assert AgentSession.objects.get(cluster=agent.cluster).locked_at is None


def test_a_retired_pepper_ends_the_credentials_that_it_signed(agent: Agent) -> None:
    with override_settings(EGS_TOKEN_PEPPERS={"2": "another"}):
        assert agent.try_sync().code == Code.BAD_TOKEN
    assert agent.try_sync().status == 200


@pytest.mark.parametrize("bearer", ["", "x", "egsa_", "egsa_ABCDEFGHIJKL_x", "Ä" * 60, "a_b_c" * 20])
def test_a_malformed_credential_is_refused(bearer: str, agent: Agent) -> None:
    assert agent.try_sync(bearer=bearer).code == Code.BAD_TOKEN
    assert agent.try_renew(bearer=bearer).code == Code.BAD_TOKEN


def test_tokens_of_other_kinds_open_nothing_here(agent: Agent) -> None:
    ann = make_user(is_admin=True)
    users = token_issue(user=ann, name="t", scopes=[Scope.ADMIN], life=HOUR, now=NOW).plain

    assert agent.try_sync(bearer=users).code == Code.BAD_TOKEN
    assert agent.try_sync(bearer=join_token(agent.cluster)).code == Code.BAD_TOKEN


def test_a_credential_with_anothers_secret_is_refused(agent: Agent) -> None:
    AgentCredential.objects.update(digest="0" * 64)

    assert agent.try_sync().code == Code.BAD_TOKEN
