"""Two transactions that meet in the worst moment: the second waits for the first, and never the first for the second as well.

Each test stops one of them half-way, lets the other run until it waits for a lock (or is done), and then goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from gpr.allocation import allocator, live_rows, rows, starts
from gpr.allocation.allocator import tick
from gpr.allocation.live import live_forget
from gpr.models import Gpr, GprState
from gpr.requests.editing import gpr_cancel
from gpr.requests.services import gpr_submit
from gpr.supplies.services import order_refuse
from inventory.models import AgentSession, Cluster, Node, Reservation, ReservationState, SupplyOrder
from inventory.services import events as events_module
from inventory.services import reservations as reservations_module
from inventory.services.agents import AgentIdentity
from inventory.services.events import events_store
from inventory.services.reservations import reservations_set_namespaces, reservations_want_absent
from inventory.services.sync import observations_store
from protocol.agents.events import EventsRequest, Outcome
from protocol.assignments import Phase
from slices.models import Slice
from slices.namespaces.services import namespace_bind, namespace_unbind
from tests import factories
from tests.api.conftest import Caller
from tests.api.manifests.setups import acts, apply, document
from tests.builders import NOW, SHAPE, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of, spec
from tests.databases import MEETING_MOST_S, lock_waiter_count, wait_until
from tests.inventory.agent import seen, step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]


class Other:
    """The second one runs in a thread with a connection of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work, self.error = work, ""
        self._thread = threading.Thread(target=self._run)

    def begin(self) -> None:
        self._thread.start()

    def meet(self) -> None:
        """Start it, and come back when it is done or waits for a lock."""
        self.begin()
        wait_until(lambda: not self._thread.is_alive() or lock_waiter_count() > 0)

    @property
    def is_at_work(self) -> bool:
        return self._thread.is_alive()

    def end(self, *, error: str = "") -> None:
        """`error`: how what it raised must begin; nothing by default."""
        if self._thread.ident is not None:
            self._thread.join(timeout=MEETING_MOST_S)
        assert not self._thread.is_alive()
        assert self.error == "" if not error else self.error.startswith(error), self.error

    @property
    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def has_met(self) -> bool:
        return self._thread.ident is not None

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            connection.close()


def stopped_after(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, other: Other, *, before: bool = False) -> None:
    """The first call of `place.name` meets the other one, behind it or before it."""
    real = getattr(place, name)

    def stopping(*arguments: Any, **named: Any) -> Any:
        if before and not other.has_met:
            other.meet()
        answer = real(*arguments, **named)
        if not other.has_met:
            other.meet()
        return answer

    monkeypatch.setattr(place, name, stopping)


def two_held(cluster: Cluster) -> list[Reservation]:
    """They stand on two nodes, for two slices, in the order in which an agent's word about both is taken."""
    return [hold(make_gpr(make_slice(cluster)), node)[0] for node in nodes_of(cluster)]


def test_an_agents_word_about_many_and_new_namespaces_for_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(nodes=2)
    first, second = two_held(cluster)
    other = Other(
        lambda: reservations_set_namespaces(slice_id=second.slice_id, cluster_id=cluster.pk, namespaces=["team"]),
    )
    stopped_after(monkeypatch, reservations_module, "is_news", other)

    with transaction.atomic():
        observations_store(cluster_id=cluster.pk, observed=(seen(first, Phase.RELEASED), seen(second, Phase.ENTERING)), now=NOW)

    other.end()
    row = Reservation.objects.get(pk=second.pk)
    assert (row.phase, row.namespaces) == (Phase.ENTERING, ["team"])


def test_a_failed_step_and_the_release_of_its_gpr(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(nodes=1)
    (row,) = hold(make_gpr(make_slice(cluster)), *nodes_of(cluster))
    other = Other(lambda: reservations_want_absent(gpr_ids=[row.gpr_id]))
    events_store(
        agent=AgentIdentity(cluster, 1), message=EventsRequest(session_epoch=0, events=(step(row, 1, outcome=Outcome.FAILED),)), now=NOW
    )
    stopped_after(monkeypatch, events_module, "_told", other, before=True)
    message = EventsRequest(session_epoch=0, events=(step(row, 2, outcome=Outcome.FAILED, attempt=2),))

    events_store(agent=AgentIdentity(cluster, 1), message=message, now=NOW)

    other.end()
    assert Reservation.objects.get().desired == "ABSENT"
    assert Node.objects.get().cordoned_at == NOW


def test_a_start_and_a_namespace_that_is_bound_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is told of the namespaces as they are in the end."""
    cluster, user = make_cluster("c1", nodes=1), make_user(is_admin=True)
    slice_ = make_slice(cluster)
    gpr_submit(actor=user, spec=spec(slice_), now=NOW)
    other = Other(lambda: namespace_bind(slice_=slice_, cluster=cluster, name="team", actor=user, now=NOW))
    stopped_after(monkeypatch, starts, "namespaces_of", other)

    tick(now=NOW)

    other.end()
    assert Reservation.objects.get(state=ReservationState.HELD).namespaces == ["team"]


def test_a_start_and_a_namespace_that_is_unbound_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep its pods on the slice's nodes, and another could bind it: so it stays."""
    cluster, user = make_cluster("c1", nodes=1), make_user(is_admin=True)
    slice_ = make_slice(cluster)
    gpr_submit(actor=user, spec=spec(slice_), now=NOW)
    namespace = namespace_bind(slice_=slice_, cluster=cluster, name="team", actor=user, now=NOW)
    other = Other(lambda: namespace_unbind(namespace=namespace, actor=user, now=NOW))
    stopped_after(monkeypatch, starts, "namespaces_of", other)

    tick(now=NOW)

    other.end(error="Conflict")
    assert Reservation.objects.get(state=ReservationState.HELD).namespaces == ["team"]
    assert slice_.namespaces.get() == namespace


def test_a_plan_in_the_making_and_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The starting one is counted once: among those who wait or among those who run."""
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    first = gpr_submit(actor=user, spec=spec(make_slice(cluster), name="first"), now=NOW)
    late = make_slice(cluster)
    other = Other(lambda: gpr_submit(actor=user, spec=spec(late, name="late"), now=NOW))
    half_way, started = threading.Event(), threading.Event()
    start, load_running = starts.gprs_start, rows.held_rows

    def start_in_the_middle(*arguments: Any, **named: Any) -> None:
        """The other one has read who waits, and not yet who runs."""
        live_forget()  # else it knows both already
        other.begin()
        assert half_way.wait(MEETING_MOST_S)
        start(*arguments, **named)
        started.set()

    def running_later(*arguments: Any) -> Any:
        if other.is_this_thread:
            half_way.set()
            wait_until(lambda: started.is_set() or lock_waiter_count() > 0)
        return load_running(*arguments)

    monkeypatch.setattr(allocator, "gprs_start", start_in_the_middle)
    monkeypatch.setattr(live_rows, "held_rows", running_later)

    report = tick(now=NOW)

    other.end()
    assert report is not None
    assert report.started == [first.pk]
    second = Gpr.objects.select_related("promise").get(name="late")
    assert second.state == GprState.QUEUED
    assert second.promise.slot_start_at.timestamp() == Reservation.objects.get().ends_at.timestamp()


def test_a_start_and_manifests_that_plan_and_change_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both take the plan's lock first, then the project's."""
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    slice_ = make_slice(cluster)
    gpr = gpr_submit(actor=user, spec=spec(slice_), now=NOW)
    template = document("GPRTemplate", "gone", f"workspace: {slice_.name}")
    quota = document("Quota", "", f"workspace: {slice_.name}, shape: {SHAPE}, mostGpus: 64")
    admin = Caller(factories.token(user))
    assert acts(apply(admin, f"{template}---\n{quota}")) == ["created", "created"]
    files = [{"name": "gone.yaml", "text": f"{template}---\n{quota}"}]
    other = Other(lambda: acts(admin.post("manifests/delete/", {"files": files})))
    stopped_after(monkeypatch, starts, "quotas_keep", other)

    report = tick(now=NOW)

    other.end()
    assert report is not None
    assert report.started == [gpr.pk]


def test_a_plan_in_the_making_and_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored for a GPR that waits no longer."""
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    gpr = make_gpr(make_slice(cluster), owner=user)  # queued, and not planned yet
    other = Other(lambda: gpr_cancel(gpr=gpr, actor=user, now=NOW))
    from gpr.allocation import stored_plan

    stopped_after(monkeypatch, stored_plan, "snapshot_load", other)

    stored_plan.replan(now=NOW)

    other.end()
    row = Gpr.objects.get()
    assert (row.state, row.planned_start_at, row.explanation) == (GprState.CANCELED, None, {})
    assert not hasattr(row, "promise")


def test_a_plan_in_the_making_and_an_order_that_is_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that comes to stand on the node in that moment is refused as well."""
    cluster, user = make_cluster(nodes=1), make_user(is_admin=True)
    gpr_submit(actor=user, spec=spec(make_slice(cluster)), now=NOW)
    tick(now=NOW)
    factories.supply(cluster, gpus_per_node=4, lead_time_s=1, gain_s=0)
    first, second = (make_slice(cluster) for _ in range(2))
    Slice.objects.filter(pk__in=[first.pk, second.pk]).update(may_order=True)
    one = gpr_submit(actor=user, spec=spec(Slice.objects.get(pk=first.pk), gpus_per_node=2), now=NOW)
    two = make_gpr(Slice.objects.get(pk=second.pk), owner=user, gpus_per_node=2)  # queued, and not planned yet
    order = SupplyOrder.objects.get()
    other = Other(lambda: order_refuse(order=order, actor=user, why="Too dear.", now=NOW))
    from gpr.allocation import stored_plan

    stopped_after(monkeypatch, stored_plan, "snapshot_load", other)

    stored_plan.replan(now=NOW)

    other.end()
    assert set(order.refused_to.all()) == {one, two}


def test_sessions_of_an_agent_are_one_after_another() -> None:
    """No other message has changed what one has read of the session."""
    cluster = make_cluster(nodes=1)
    (row,) = hold(make_gpr(make_slice(cluster)), *nodes_of(cluster))
    message = EventsRequest(session_epoch=0, events=(step(row, 1),))
    other = Other(lambda: events_store(agent=AgentIdentity(cluster, 1), message=message, now=NOW))

    with transaction.atomic():
        AgentSession.objects.select_for_update().get(pk=cluster.pk)
        other.meet()
        AgentSession.objects.filter(pk=cluster.pk).update(session_epoch=1)

    other._thread.join()
    assert other.error.startswith("AgentSuperseded")
    assert not row.steps.exists()


def test_a_slice_loses_no_owner_between_two_who_step_down() -> None:
    """See also the race of many; here the order is certain."""
    from slices.models import Membership, Role
    from slices.services import member_set

    ann, ben = make_user("ann"), make_user("ben")
    slice_ = make_slice(owner=ann)
    member_set(slice_=slice_, user=ben, role=Role.OWNER, actor=None, now=NOW)
    other = Other(lambda: member_set(slice_=Slice.objects.get(), user=ben, role=Role.VIEWER, actor=None, now=NOW))

    with transaction.atomic():
        member_set(slice_=slice_, user=ann, role=Role.VIEWER, actor=None, now=NOW)
        other.meet()

    other._thread.join()
    assert other.error.startswith("Conflict")
    assert Membership.objects.filter(role=Role.OWNER).count() == 1
