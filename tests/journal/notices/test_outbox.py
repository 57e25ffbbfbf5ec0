"""An Event reaches the bells of the people whom it concerns, and of nobody else."""

from __future__ import annotations

from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest
from django.db import OperationalError, transaction

from accounts.models import User
from core.words import utc
from gpr.approvals.services import gpr_approve
from gpr.lifecycle import gpr_transition
from gpr.models import Gpr, GprState, Promise
from gpr.notices.services import ends_soon_record, restarts_record, silent_agents_record, undecided_record
from gpr.queue.decisions import gpr_set_priority
from inventory.models import AgentSession
from inventory.services.inventory import inventory_store
from journal.guard import fault_report
from journal.models import Event, Notice, NoticeSettings, Outbox, Severity
from journal.notices import outbox
from journal.notices.audience import hearers_of
from journal.notices.kinds import NoticeKind as K
from journal.notices.outbox import outbox_expand
from journal.notices.selectors import notices_of, unread_count
from journal.services import event_record
from slices.invitations.services import member_add
from slices.models import Role, Slice
from slices.services import member_remove, member_set
from tests.builders import HOUR, make_cluster, make_gpr, make_slice, make_user, node_view

pytestmark = pytest.mark.django_db


def told(user: User) -> list[tuple[str, str]]:
    """Kind and text of what is in the user's bell, the oldest first."""
    return [(notice.kind, notice.event.message) for notice in notices_of(user).order_by("event_id")]


def kinds(user: User) -> list[str]:
    return [kind for kind, _ in told(user)]


@pytest.fixture
def owner(now: datetime) -> User:
    return make_user("owner")


@pytest.fixture
def admin() -> User:
    return make_user("root", is_admin=True)


@pytest.fixture
def workspace(owner: User, now: datetime) -> Slice:
    made = make_slice(make_cluster(), owner=owner)
    outbox_expand(now=now)
    Notice.objects.all().delete()
    return made


def provisioning(workspace: Slice, owner: User, now: datetime) -> Gpr:
    gpr = make_gpr(workspace, owner=owner)
    gpr_transition(gpr=gpr, to=GprState.PROVISIONING, now=now, message="It has nodes.")
    return gpr


def started(gpr: Gpr, now: datetime, **changes: datetime) -> None:
    window = {"active_at": now, "ends_at": now + HOUR, **changes}
    gpr_transition(gpr=gpr, to=GprState.ACTIVE, now=now, message=f"{gpr.name} is provisioned.", changes=window)


@pytest.mark.both_databases
def test_the_owner_of_a_request_and_nobody_else_is_told_once_that_it_started(
    owner: User, admin: User, workspace: Slice, now: datetime
) -> None:
    teammate, stranger = make_user("mate"), make_user("stranger")
    member_set(slice_=workspace, user=teammate, role=Role.OWNER, actor=None, now=now)
    gpr = provisioning(workspace, owner, now)

    started(gpr, now)
    outbox_expand(now=now)
    outbox_expand(now=now)

    assert told(owner) == [(K.STARTED, f"{gpr.name} is provisioned.")]
    assert kinds(teammate) == [K.WORKSPACE]  # of his own membership
    assert told(stranger) == told(admin) == []
    assert not Outbox.objects.exists()


def test_an_event_that_is_rolled_back_tells_nobody(owner: User, workspace: Slice, now: datetime) -> None:
    gpr = provisioning(workspace, owner, now)
    with transaction.atomic():
        started(gpr, now)
        transaction.set_rollback(True)

    assert outbox_expand(now=now) == 0


def test_filing_a_request_puts_nothing_into_the_outbox_unless_it_needs_approval(
    owner: User, admin: User, workspace: Slice, now: datetime
) -> None:
    for state in ("QUEUED", "PENDING_APPROVAL"):
        with transaction.atomic():
            event_record(kind="gpr.created", message=state, at=now, actor=owner, new=state, slice_id=workspace.pk)
    outbox_expand(now=now)

    assert told(admin) == [(K.APPROVAL_WANTED, "PENDING_APPROVAL")]
    assert told(owner) == []


def test_nobody_is_told_of_what_he_did_himself(owner: User, admin: User, workspace: Slice, now: datetime) -> None:
    gpr = make_gpr(workspace, owner=owner)
    gpr_set_priority(gpr=gpr, priority=5, actor=owner, why="", now=now)
    gpr_set_priority(gpr=gpr, priority=6, actor=admin, why="Release week.", now=now)
    outbox_expand(now=now)

    assert [(kind, "Release week." in text) for kind, text in told(owner)] == [(K.CHANGED, True)]


def test_an_approval_reaches_the_one_who_asked(owner: User, admin: User, workspace: Slice, now: datetime) -> None:
    cluster = workspace.clusters.get()
    inventory_store(cluster=cluster, nodes=[node_view("n0")], now=now)
    gpr = make_gpr(workspace, owner=owner, state=GprState.PENDING_APPROVAL)
    gpr_approve(gpr=gpr, actor=admin, now=now, why="Go on.")
    outbox_expand(now=now)

    assert told(owner)[0] == (K.DECISION, f"{gpr.name} was approved. Go on.")


def test_who_leaves_a_workspace_sees_none_of_its_notices_any_more(owner: User, admin: User, workspace: Slice, now: datetime) -> None:
    teammate = make_user("mate")
    member_set(slice_=workspace, user=teammate, role=Role.EDITOR, actor=None, now=now)
    gpr = provisioning(workspace, teammate, now)
    started(gpr, now)
    outbox_expand(now=now)
    assert unread_count(teammate) == 2

    gpr_transition(gpr=gpr, to=GprState.EXITING, now=now, reason="EVICTED", message="It is evicted.")  # still in the outbox
    member_remove(slice_=workspace, user=teammate, actor=admin, now=now)
    outbox_expand(now=now)

    assert told(teammate) == []
    assert unread_count(teammate) == 0


def test_who_is_invited_is_told_though_he_is_no_member_and_so_is_who_becomes_one(owner: User, workspace: Slice, now: datetime) -> None:
    guest = make_user("guest")
    member_add(slice_=workspace, reference="guest", role=Role.VIEWER, actor=owner, now=now)
    member_add(slice_=workspace, reference="nobody-has-this-name", role=Role.VIEWER, actor=owner, now=now)
    outbox_expand(now=now)
    assert told(guest) == [(K.WORKSPACE, f"guest was invited to workspace {workspace.name} as viewer.")]

    member_set(slice_=workspace, user=guest, role=Role.EDITOR, actor=owner, now=now)
    outbox_expand(now=now)

    assert told(guest)[1] == (K.WORKSPACE, f"guest is editor of workspace {workspace.name}.")


def test_only_administrators_are_told_of_faults_and_only_while_they_are_administrators(owner: User, admin: User, now: datetime) -> None:
    with transaction.atomic():
        fault_report("egs.fault", "A fault.", reason="x", now=now)
    outbox_expand(now=now)
    assert told(admin) == [(K.ALERT, "A fault.")]

    User.objects.filter(pk=admin.pk).update(role="member")
    admin.refresh_from_db()

    assert told(admin) == told(owner) == []


def test_an_event_that_cannot_be_told_does_not_hold_up_the_others(
    owner: User, admin: User, workspace: Slice, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = provisioning(workspace, owner, now), provisioning(make_slice(owner=owner), owner, now)
    for gpr in (bad, good):
        started(gpr, now)

    def faulty(events: list[Event]) -> object:
        if any(event.gpr_id == bad.pk for event in events):
            raise ZeroDivisionError
        return hearers_of(events)

    monkeypatch.setattr(outbox, "hearers_of", faulty)
    outbox_expand(now=now)
    outbox_expand(now=now)

    assert [text for kind, text in told(owner) if kind == K.STARTED] == [f"{good.name} is provisioned."]
    assert set(kinds(admin)) == {K.ALERT}
    assert not Outbox.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_event_is_told_at_the_next_step_when_the_database_was_busy(
    owner: User, workspace: Slice, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpr = provisioning(workspace, owner, now)
    started(gpr, now)
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "hearers_of", Mock(side_effect=OperationalError))
        outbox_expand(now=now)
    outbox_expand(now=now)

    assert [text for kind, text in told(owner) if kind == K.STARTED] == [f"{gpr.name} is provisioned."]
    assert not Outbox.objects.exists()


def test_a_box_that_ends_soon_is_told_of_once_and_again_after_an_extension(
    owner: User, workspace: Slice, now: datetime, settings: pytest.FixtureRequest
) -> None:
    settings.EGS_END_WARNING_S = 600  # type: ignore[attr-defined]
    gpr, short = provisioning(workspace, owner, now), provisioning(make_slice(), owner, now)
    started(gpr, now, active_at=now - HOUR, ends_at=now + timedelta(minutes=5))
    started(short, now, active_at=now, ends_at=now + timedelta(minutes=5))
    outbox_expand(now=now)
    Notice.objects.all().delete()

    ends_soon_record(now=now)
    ends_soon_record(now=now + timedelta(seconds=1))
    Gpr.objects.filter(pk=gpr.pk).update(ends_at=now + HOUR)
    ends_soon_record(now=now + timedelta(seconds=2))
    ends_soon_record(now=now + timedelta(minutes=55))
    outbox_expand(now=now)

    assert kinds(owner) == [K.ENDS_SOON, K.ENDS_SOON]
    assert "in 5 min." in told(owner)[0][1]
    assert Event.objects.filter(kind="gpr.ends_soon").count() == 2


def test_approvers_are_reminded_once_when_a_quarter_of_the_time_for_a_decision_is_left(
    owner: User, admin: User, workspace: Slice, now: datetime
) -> None:
    left = timedelta(seconds=workspace.decide_within_s / 4)
    gpr = make_gpr(workspace, owner=owner, state=GprState.PENDING_APPROVAL, decide_by_at=now + left + timedelta(minutes=1))

    undecided_record(now=now)
    undecided_record(now=now + timedelta(minutes=1))
    undecided_record(now=now + timedelta(minutes=2))
    Gpr.objects.filter(pk=gpr.pk).update(decide_by_at=now + left + timedelta(minutes=3))  # it was edited
    undecided_record(now=now + timedelta(minutes=3))
    undecided_record(now=now + 2 * left)
    outbox_expand(now=now)

    assert (kinds(admin), kinds(owner)) == ([K.APPROVAL_WANTED] * 2, [])
    assert f"{gpr.name} still waits for approval." in told(admin)[0][1]


def test_who_was_evicted_is_told_once_when_it_is_back_at_the_latest(owner: User, workspace: Slice, now: datetime) -> None:
    gpr = provisioning(workspace, owner, now)
    started(gpr, now)
    Gpr.objects.filter(pk=gpr.pk).update(run=1)
    gpr.refresh_from_db()
    gpr_transition(gpr=gpr, to=GprState.EXITING, now=now, reason="EVICTED", message="It is evicted.", changes={"end_reason": "EVICTED"})
    ended = {"end_reason": "", "active_at": None, "ends_at": None}
    gpr_transition(gpr=gpr, to=GprState.QUEUED, now=now, reason="EVICTED", message="It waits again.", changes=ended)
    restarts_record(now=now)  # no plan has promised anything yet
    back_at = now + HOUR
    Promise.objects.create(
        gpr=gpr, made_at=now, first_promised_start_at=back_at, promised_start_at=back_at, slot_pool="p", slot_start_at=back_at
    )

    for seconds in (1, 2):
        restarts_record(now=now + timedelta(seconds=seconds))
    outbox_expand(now=now)

    texts = [text for kind, text in told(owner) if kind == K.EVICTION]
    assert texts == ["It is evicted.", "It waits again.", f"{gpr.name} starts again at {utc(back_at)} at the latest."]


def test_an_agent_that_falls_silent_or_is_heard_again_is_told_of_once_each_time(admin: User, now: datetime) -> None:
    cluster = make_cluster("aurora", at=now - HOUR)
    silent_agents_record(now=now)
    silent_agents_record(now=now + timedelta(seconds=1))
    AgentSession.objects.filter(cluster=cluster).update(last_sync_at=now + HOUR)
    silent_agents_record(now=now + HOUR)
    silent_agents_record(now=now + 2 * HOUR)
    outbox_expand(now=now)

    assert kinds(admin) == [K.ALERT] * 3
    silent, heard, _ = (text for _, text in told(admin))
    assert silent.startswith("The agent of cluster aurora is silent since ")
    assert heard == "The agent of cluster aurora is heard again."


def test_the_bell_leaves_out_what_its_owner_does_not_want_but_never_an_error_of_a_muted_workspace(
    owner: User, workspace: Slice, now: datetime
) -> None:
    NoticeSettings.objects.create(user=owner, unwanted_kinds=[K.MARK], muted_slices=[])
    quiet = make_slice(owner=owner)
    outbox_expand(now=now)
    Notice.objects.all().delete()
    NoticeSettings.objects.update(muted_slices=[str(quiet.pk)])
    with transaction.atomic():
        for slice_, kind, severity in (
            (workspace, "gpr.mark", Severity.INFO),
            (workspace, "gpr.extended", Severity.INFO),
            (quiet, "gpr.extended", Severity.INFO),
            (quiet, "gpr.node_failing", Severity.ERROR),
        ):
            gpr = make_gpr(slice_, owner=owner)
            event_record(kind=kind, message=kind, at=now, severity=severity, gpr_id=gpr.pk, slice_id=slice_.pk)
    outbox_expand(now=now)

    assert kinds(owner) == [K.CHANGED, K.NODE]
