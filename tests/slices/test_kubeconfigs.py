"""A kubeconfig from the wish to its end: what the agent is told, what is kept, and what ends it."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml
from django.db import IntegrityError, transaction

from accounts.models import User
from core.errors import Conflict, EgsError, IllegalTransition, InvalidInput, NotAllowed, OverPolicy
from gpr.allocation.allocator import tick
from inventory.models import AgentSession, Cluster
from inventory.services.clusters import cluster_set_api_url
from journal.models import Event
from protocol.tenancy.workspaces import Account, IssuedToken
from slices.kubeconfigs.services import (
    ANSWER_WITHIN,
    LIVE_MOST,
    READ_WITHIN,
    ClusterNotConnected,
    KubeconfigNotMade,
    NamespaceNotReady,
    kubeconfig_ask,
    kubeconfig_read,
    kubeconfig_revoke,
    kubeconfig_take,
    kubeconfigs_expire,
)
from slices.models import Kubeconfig, KubeconfigState, Namespace, Role, Slice
from slices.namespaces.services import namespace_bind, namespace_unbind
from slices.policies.services import policy_change, policy_of
from slices.services import member_remove, member_set
from slices.tenancy import SliceTenants
from tests.builders import HOUR, NOW, agent_heard, generation_of, make_cluster, make_slice, make_user
from tests.slices.kubeconfigs import SECRET, SERVER, answer, asked, list_digest, made, ready_namespace, says_left

pytestmark = pytest.mark.django_db
S = KubeconfigState


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("aurora")


@pytest.fixture
def owner() -> User:
    return make_user("ada")


@pytest.fixture
def viewer() -> User:
    return make_user("vera")


@pytest.fixture
def slice_(cluster: Cluster, owner: User, viewer: User) -> Slice:
    made_ = make_slice(cluster, name="vision", owner=owner, viewers=[viewer])
    ready_namespace(made_, cluster, at=NOW)
    return made_


def accounts(cluster: Cluster) -> list[Account]:
    return [account for workspace in SliceTenants().workspaces(cluster.pk) for account in workspace.accounts]


def test_the_agent_is_told_of_an_account_of_the_member_s_role_until_it_has_answered(
    slice_: Slice, cluster: Cluster, owner: User, viewer: User
) -> None:
    rows = [asked(slice_, cluster, by, at=NOW) for by in (owner, viewer)]

    told = {account.id: account for account in accounts(cluster)}

    assert {(told[str(row.pk)].role, told[str(row.pk)].token_s) for row in rows} == {("user", 3600), ("viewer", 3600)}
    assert {account.namespace for account in told.values()} == {"train"}
    answer(rows[0], at=NOW)
    assert {account.id: account.token_s for account in accounts(cluster)} == {str(rows[0].pk): 0, str(rows[1].pk): 3600}


def test_it_is_read_once_and_its_secret_is_nowhere_after_that(slice_: Slice, cluster: Cluster, owner: User) -> None:
    namespace_bind(slice_=slice_, cluster=cluster, name="a-second", actor=None, now=NOW)
    row = made(slice_, cluster, owner, at=NOW)

    file = yaml.safe_load(kubeconfig_read(kubeconfig=row, actor=owner, now=NOW))

    assert file["users"] == [{"name": "vision@aurora", "user": {"token": SECRET}}]
    assert file["clusters"][0]["cluster"]["server"] == SERVER
    assert file["current-context"] == "vision@aurora/train"
    assert [context["context"]["namespace"] for context in file["contexts"]] == ["train", "a-second"]
    assert SECRET not in str(list(Kubeconfig.objects.values())) + str(list(Event.objects.values()))
    with pytest.raises(IllegalTransition, match="only once"):
        kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)


def test_each_step_of_it_has_one_event(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = made(slice_, cluster, owner, at=NOW)
    kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)
    kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)

    steps = Event.objects.filter(kind__startswith="slice.kubeconfig", slice_id=slice_.pk).order_by("pk")

    assert [(event.kind.removeprefix("slice.kubeconfig_"), event.actor) for event in steps] == [
        ("asked", owner),
        ("issued", None),
        ("read", owner),
        ("revoked", owner),
    ]


def test_no_database_row_holds_a_secret_that_was_read(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = asked(slice_, cluster, owner, at=NOW)

    with pytest.raises(IntegrityError), transaction.atomic():
        Kubeconfig.objects.filter(pk=row.pk).update(state=S.GIVEN, token=SECRET)


def test_only_who_asked_reads_it_not_even_an_administrator(slice_: Slice, cluster: Cluster, owner: User, viewer: User) -> None:
    row = made(slice_, cluster, owner, at=NOW)

    for other in (viewer, make_user(is_admin=True)):
        with pytest.raises(NotAllowed):
            kubeconfig_read(kubeconfig=row, actor=other, now=NOW)

    assert SECRET in kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)


def test_before_the_agent_has_answered_it_is_asked_for_again(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = asked(slice_, cluster, owner, at=NOW)

    with pytest.raises(KubeconfigNotMade):
        kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)


def test_where_users_reach_the_cluster_elsewhere_the_kubeconfig_says_so(slice_: Slice, cluster: Cluster, owner: User) -> None:
    cluster_set_api_url(cluster=cluster, api_url="https://api.example.org", actor=make_user(is_admin=True), now=NOW)
    row = made(slice_, Cluster.objects.get(pk=cluster.pk), owner, at=NOW)

    file = yaml.safe_load(kubeconfig_read(kubeconfig=row, actor=owner, now=NOW))

    assert file["clusters"][0]["cluster"]["server"] == "https://api.example.org"


def test_what_the_agent_could_not_do_is_told_with_its_words(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = asked(slice_, cluster, owner, at=NOW)

    kubeconfig_take(cluster=cluster, issued=IssuedToken(account=str(row.pk), failure="This cluster is simulated."), now=NOW)

    with pytest.raises(IllegalTransition, match="simulated"):
        kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)
    assert accounts(cluster) == []


def test_one_whose_account_was_made_anew_in_the_cluster_has_ended_since_its_token_has(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = made(slice_, cluster, owner, at=NOW)
    kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)

    for _ in range(2):
        kubeconfig_take(cluster=cluster, issued=IssuedToken(account=str(row.pk), failure="It was made anew."), now=NOW)

    row.refresh_from_db()
    assert (row.state, row.detail, accounts(cluster)) == (S.REVOKED, "It was made anew.", [])


def test_another_cluster_s_agent_gives_nothing_to_it(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = asked(slice_, cluster, owner, at=NOW)

    for account in (str(row.pk), "no-id"):
        kubeconfig_take(cluster=make_cluster(), issued=IssuedToken(account=account, token="forged", expires_s=1.0), now=NOW)

    row.refresh_from_db()
    assert (row.state, row.token) == (S.ASKED, "")


def refusal(slice_: Slice, cluster: Cluster, actor: User, duration_s: int | None = None) -> type[EgsError]:
    with pytest.raises(EgsError) as raised:
        kubeconfig_ask(slice_=slice_, cluster=cluster, duration_s=duration_s, actor=actor, now=NOW)
    assert not Kubeconfig.objects.exists()
    return raised.type


def test_what_stands_in_the_way_is_said(slice_: Slice, cluster: Cluster, owner: User) -> None:
    assert refusal(slice_, cluster, make_user()) is NotAllowed
    assert refusal(slice_, cluster, make_user(is_admin=True)) is NotAllowed
    assert refusal(slice_, cluster, owner, 599) is InvalidInput
    assert refusal(slice_, cluster, owner, 8 * 86_400) is OverPolicy
    Namespace.objects.update(state="CONFLICT", detail="There was one before.")
    assert refusal(slice_, cluster, owner) is NamespaceNotReady
    Namespace.objects.all().delete()
    assert refusal(slice_, cluster, owner) is NamespaceNotReady
    agent_heard(cluster, NOW - HOUR)
    assert refusal(slice_, Cluster.objects.get(pk=cluster.pk), owner) is ClusterNotConnected
    AgentSession.objects.all().delete()
    assert refusal(slice_, Cluster.objects.get(pk=cluster.pk), owner) is ClusterNotConnected


def test_a_policy_shortens_what_is_given_by_default(slice_: Slice, cluster: Cluster, owner: User) -> None:
    policy_change(policy=policy_of(slice_), terms={"kubeconfig_max_s": 1200}, actor=make_user(is_admin=True), now=NOW)

    row = kubeconfig_ask(slice_=slice_, cluster=cluster, duration_s=None, actor=owner, now=NOW)

    assert row.duration_s == 1200


def test_a_member_has_only_so_many(slice_: Slice, cluster: Cluster, owner: User, viewer: User) -> None:
    rows = [asked(slice_, cluster, owner, at=NOW) for _ in range(LIVE_MOST)]

    with pytest.raises(Conflict):
        asked(slice_, cluster, owner, at=NOW)
    asked(slice_, cluster, viewer, at=NOW)
    kubeconfig_revoke(kubeconfig=rows[0], actor=owner, now=NOW)
    asked(slice_, cluster, owner, at=NOW)


def test_one_that_is_revoked_has_no_account_and_no_secret_and_is_not_revoked_twice(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row, other = made(slice_, cluster, owner, at=NOW), made(slice_, cluster, owner, at=NOW)
    generation = Cluster.objects.get(pk=cluster.pk).generation

    kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)

    row.refresh_from_db()
    assert (row.state, row.token, row.ended_at, row.ended_by) == (S.REVOKED, "", NOW, owner)
    assert [account.id for account in accounts(cluster)] == [str(other.pk)]
    assert Cluster.objects.get(pk=cluster.pk).generation > generation  # the agent is woken
    with pytest.raises(IllegalTransition):
        kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)
    with pytest.raises(IllegalTransition, match="Revoked"):
        kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)


def test_one_that_is_revoked_is_closed_once_the_agent_has_done_away_with_it(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row, later = made(slice_, cluster, owner, at=NOW), made(slice_, cluster, owner, at=NOW)
    older, closed = list_digest(cluster), Kubeconfig.objects.values_list("closed_at", flat=True)
    kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)

    says_left(cluster, digest=older, at=NOW)
    assert set(closed) == {None}

    for minutes in (1, 2):
        says_left(cluster, digest=list_digest(cluster), at=NOW + timedelta(minutes=minutes))
    assert dict(closed.values_list("pk", "closed_at")) == {row.pk: NOW + timedelta(minutes=1), later.pk: None}
    (told,) = Event.objects.filter(kind="slice.kubeconfig_closed")
    assert told.message == "In cluster aurora the kubeconfig of ada opens nothing any more."


def test_one_whose_account_is_left_in_the_cluster_stays_open(slice_: Slice, cluster: Cluster, owner: User) -> None:
    rows = [made(slice_, cluster, owner, at=NOW) for _ in range(2)]
    for row in rows:
        kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)

    says_left(cluster, rows[0], digest=list_digest(cluster), at=NOW)

    assert dict(Kubeconfig.objects.values_list("pk", "closed_at")) == {rows[0].pk: None, rows[1].pk: NOW}


def test_a_word_from_before_it_was_made_closes_nothing_though_the_list_is_the_same(slice_: Slice, cluster: Cluster, owner: User) -> None:
    digest, generation = list_digest(cluster), generation_of(cluster)
    row = made(slice_, cluster, owner, at=NOW)
    kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)
    assert list_digest(cluster) == digest

    says_left(cluster, digest=digest, generation=generation, at=NOW)  # a message that was held up on its way

    row.refresh_from_db()
    assert row.closed_at is None


def test_one_that_ended_by_itself_is_closed_without_a_word(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = made(slice_, cluster, owner, at=NOW)
    kubeconfigs_expire(now=NOW + READ_WITHIN)

    says_left(cluster, digest=list_digest(cluster), at=NOW + HOUR)

    row.refresh_from_db()
    assert (row.state, row.closed_at) == (S.FAILED, NOW + HOUR)
    assert not Event.objects.filter(kind="slice.kubeconfig_closed").exists()


def test_what_another_cluster_has_done_away_with_closes_nothing_here(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = made(slice_, cluster, owner, at=NOW)
    kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)
    other = make_cluster("borealis")

    says_left(other, digest=list_digest(other), at=NOW)

    row.refresh_from_db()
    assert row.closed_at is None


def test_who_leaves_loses_it_and_who_gets_another_role_has_that(slice_: Slice, cluster: Cluster, owner: User, viewer: User) -> None:
    row = made(slice_, cluster, viewer, at=NOW)
    generation = Cluster.objects.get(pk=cluster.pk).generation

    member_set(slice_=slice_, user=viewer, role=Role.EDITOR, actor=owner, now=NOW)

    assert [account.role for account in accounts(cluster)] == ["user"]
    assert Cluster.objects.get(pk=cluster.pk).generation > generation
    member_remove(slice_=slice_, user=viewer, actor=owner, now=NOW)
    row.refresh_from_db()
    assert (row.state, accounts(cluster)) == (S.REVOKED, [])


def test_who_may_not_sign_in_any_more_has_no_account_even_before_anybody_ends_it(slice_: Slice, cluster: Cluster, viewer: User) -> None:
    row = made(slice_, cluster, viewer, at=NOW)

    User.objects.filter(pk=viewer.pk).update(is_active=False)

    assert accounts(cluster) == []
    kubeconfigs_expire(now=NOW)
    row.refresh_from_db()
    assert row.state == S.REVOKED


def test_the_end_of_its_home_is_its_end(slice_: Slice, cluster: Cluster, owner: User) -> None:
    row = made(slice_, cluster, owner, at=NOW)

    namespace_unbind(namespace=Namespace.objects.get(), actor=owner, now=NOW)

    row.refresh_from_db()
    assert (row.state, accounts(cluster)) == (S.REVOKED, [])


@pytest.mark.parametrize(
    ("step", "after", "state"), [("asked", ANSWER_WITHIN, S.FAILED), ("made", READ_WITHIN, S.FAILED), ("given", HOUR, S.EXPIRED)]
)
def test_nothing_stays_in_its_state_for_too_long(
    step: str, after: timedelta, state: str, slice_: Slice, cluster: Cluster, owner: User
) -> None:
    row = asked(slice_, cluster, owner, at=NOW)
    if step != "asked":
        answer(row, at=NOW)
    if step == "given":
        kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)

    tick(now=NOW + after - timedelta(seconds=1))
    assert len(accounts(cluster)) == 1
    tick(now=NOW + after)

    row.refresh_from_db()
    assert (row.state, row.token, accounts(cluster)) == (state, "", [])


def test_a_secret_that_lay_too_long_is_not_given_out_though_nobody_has_cleared_it_away(
    slice_: Slice, cluster: Cluster, owner: User
) -> None:
    row = made(slice_, cluster, owner, at=NOW)

    with pytest.raises(IllegalTransition, match="in time"):
        kubeconfig_read(kubeconfig=row, actor=owner, now=NOW + READ_WITHIN)
