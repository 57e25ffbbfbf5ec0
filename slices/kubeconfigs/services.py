"""The hub has no credentials of any cluster.

The agent makes an account and a token, which stays in the row for at most two minutes until its user reads it. Revoking takes the account
off the agent's list.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final
from uuid import UUID

import yaml
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import Conflict, EgsError, IllegalTransition, InvalidInput, NotAllowed, OverPolicy
from core.rest.references import id_of
from core.words import duration
from core.written_sql import IdParam, TimeParam, WrittenQuery
from inventory.models import Cluster, agent_is_live
from inventory.services.clusters import desired_set_changed
from journal.guard import set_aside_on_error
from journal.models import Severity
from journal.services import event_record
from protocol.tenancy.workspaces import BindingState, IssuedToken
from slices.models import (
    DETAIL_MAX_CHARS,
    KUBECONFIG_MIN_S,
    LIVE_STATES,
    Kubeconfig,
    KubeconfigState,
    Namespace,
    Slice,
)
from slices.selectors import refuse_closed

DURATION_DEFAULT_S = 8 * 3600
ANSWER_WITHIN = timedelta(seconds=60)
READ_WITHIN = timedelta(seconds=120)
LIVE_MOST = 10  # per member and cluster
S = KubeconfigState


class ClusterNotConnected(EgsError):
    status: ClassVar[int] = 409
    code: ClassVar[str] = "cluster_not_connected"
    title: ClassVar[str] = "The cluster is not connected"


class NamespaceNotReady(EgsError):
    status: ClassVar[int] = 409
    code: ClassVar[str] = "namespace_not_ready"
    title: ClassVar[str] = "No namespace is ready"


class KubeconfigNotMade(EgsError):
    status: ClassVar[int] = 409
    code: ClassVar[str] = "kubeconfig_not_made"
    title: ClassVar[str] = "The kubeconfig is not made yet"


@transaction.atomic
def kubeconfig_ask(*, slice_: Slice, cluster: Cluster, duration_s: int | None, actor: User, now: datetime) -> Kubeconfig:
    """Raises NotAllowed for a non-member, InvalidInput, OverPolicy, ClusterNotConnected, NamespaceNotReady, Conflict."""
    found = Slice.objects.select_for_update(no_key=True).get(pk=slice_.pk)
    if found.settled_at is not None:  # until then people work in what still runs
        refuse_closed(found)
    if not may(actor, Verb.CONNECT, slice_):
        raise NotAllowed(f"Only members of workspace {slice_.name} get a kubeconfig of it. Ask one of its owners to add you.")
    duration_s = _duration(slice_, duration_s)
    home = _home(slice_, cluster, now)
    mine = Kubeconfig.objects.filter(slice=slice_, cluster=cluster, user=actor, state__in=LIVE_STATES)
    if mine.count() >= LIVE_MOST:
        raise Conflict(f"You have {LIVE_MOST} kubeconfigs of this workspace in cluster {cluster.name}. Revoke one that you do not need.")
    row = Kubeconfig.objects.create(
        slice=slice_,
        cluster=cluster,
        namespace=home.name,
        user=actor,
        duration_s=duration_s,
        asked_at=now,
        due_at=now + ANSWER_WITHIN,
    )
    _record_event(
        row, "asked", f"{actor.name} asked for a kubeconfig of workspace {slice_.name} in cluster {cluster.name}.", now, actor=actor
    )
    desired_set_changed([cluster.pk])
    return row


@transaction.atomic
def kubeconfig_take(*, cluster: Cluster, issued: IssuedToken, now: datetime) -> None:
    """Store the agent's token or failure, unless the kubeconfig has ended."""
    row = _live(cluster, issued.account)
    if row is None:
        return
    if issued.failure:
        _end(row, S.FAILED if row.state == S.ASKED else S.REVOKED, issued.failure, now, severity=Severity.WARNING)
        return
    if row.state != S.ASKED:
        return
    row.state, row.due_at = S.MADE, now + READ_WITHIN
    row.token, row.ca = issued.token, issued.ca
    row.server = (cluster.api_url or issued.server)[:253]
    row.expires_at = datetime.fromtimestamp(issued.expires_s, UTC)
    row.save(update_fields=["state", "due_at", "token", "ca", "server", "expires_at"])
    _record_event(row, "issued", f"The kubeconfig of {row.user.name} for workspace {row.slice.name} was made.", now)
    desired_set_changed([cluster.pk])


@transaction.atomic
def kubeconfig_read(*, kubeconfig: Kubeconfig, actor: User, now: datetime) -> str:
    """Raises NotAllowed for other users, KubeconfigNotMade, IllegalTransition."""
    row = _locked().get(pk=kubeconfig.pk)
    if not may(actor, Verb.READ_SECRET, row):
        raise NotAllowed("Only the member who asked for a kubeconfig may read it. Ask for one of your own.")
    if row.is_live and row.state != S.GIVEN and now >= row.due_at:
        raise IllegalTransition("It was not made, or not read, in time. Ask for a new one.")
    if row.state == S.ASKED:
        raise KubeconfigNotMade(f"The agent of cluster {row.cluster.name} makes it. Try again in a second.")
    if row.state == S.GIVEN:
        raise IllegalTransition("It was read already, and is shown only once. Ask for a new one.")
    if row.state != S.MADE or row.expires_at is None:
        raise IllegalTransition(row.detail or "It has ended. Ask for a new one.")
    namespaces = Namespace.objects.filter(slice=row.slice, cluster=row.cluster).exclude(name=row.namespace).order_by("name")
    text = kubeconfig_text(
        cluster=row.cluster.name,
        user=row.name,
        server=row.server,
        ca=row.ca,
        token=row.token,
        namespaces=[row.namespace, *namespaces.values_list("name", flat=True)],
    )
    row.state, row.due_at, row.token = S.GIVEN, row.expires_at, ""
    row.save(update_fields=["state", "due_at", "token"])
    _record_event(row, "read", f"{actor.name} read the kubeconfig for workspace {row.slice.name}.", now, actor=actor)
    return text


@transaction.atomic
def kubeconfig_revoke(*, kubeconfig: Kubeconfig, actor: User, now: datetime) -> None:
    """Raises IllegalTransition when it has ended already."""
    row = _locked().get(pk=kubeconfig.pk)
    if not row.is_live:
        raise IllegalTransition("It has ended already.")
    _end(row, S.REVOKED, f"Revoked by {actor.name}.", now, actor=actor)


def kubeconfigs_revoke(rows: QuerySet[Kubeconfig], *, why: str, actor: User | None, now: datetime) -> None:
    """Skips those that have ended. Needs a transaction."""
    ids = rows.filter(state__in=LIVE_STATES).order_by("pk").values_list("pk", flat=True)
    for row in _locked().filter(pk__in=list(ids)).order_by("pk"):
        _end(row, S.REVOKED, why, now, actor=actor)


_IS_OVER: Final = Q(due_at__lte=TimeParam("now")) | Q(user__is_active=False)
_OVER: Final = WrittenQuery(Kubeconfig.objects.filter(_IS_OVER, state__in=LIVE_STATES).order_by("pk").values_list("pk", "cluster_id"))

_LEFT_OPEN: Final = Kubeconfig.objects.filter(cluster=IdParam("cluster"), ended_at__isnull=False, closed_at=None)
_ENDED: Final = WrittenQuery(_LEFT_OPEN.order_by().values_list("pk", "ended_generation"))


def kubeconfigs_expire(*, now: datetime) -> None:
    """End those past `due_at` and those of deactivated users."""
    for pk, cluster_id in _OVER(now=now):
        with set_aside_on_error("kubeconfig_expire", f"Kubeconfig {pk} could not be ended", now=now, cluster_id=cluster_id):
            _expire(pk, now)


@transaction.atomic
def _expire(pk: UUID, now: datetime) -> None:
    for row in _locked().filter(pk=pk, state__in=LIVE_STATES):
        if not row.user.is_active:
            _end(row, S.REVOKED, f"{row.user.name} may not sign in any more.", now)
        elif row.state == S.GIVEN:
            _end(row, S.EXPIRED, "Its time was over.", now)
        elif row.state == S.MADE:
            _end(row, S.FAILED, "It was not read in time.", now)
        else:
            _end(row, S.FAILED, f"The agent of cluster {row.cluster.name} did not make it in time.", now, severity=Severity.WARNING)


def kubeconfigs_open(cluster: Cluster, *, generation: int) -> list[UUID]:
    """Returns kubeconfigs that had ended at that generation and whose accounts may still exist."""
    return [pk for pk, ended in _ENDED(cluster=cluster.pk) if ended is not None and ended <= generation]


@transaction.atomic
def kubeconfigs_close(ids: Sequence[UUID], *, now: datetime) -> None:
    rows = list(_locked().filter(pk__in=ids, closed_at=None).order_by("pk"))
    Kubeconfig.objects.filter(pk__in=[row.pk for row in rows]).update(closed_at=now)
    for row in rows:
        if row.state == S.REVOKED:
            _record_event(row, "closed", f"In cluster {row.cluster.name} the kubeconfig of {row.user.name} opens nothing any more.", now)


def kubeconfig_text(*, cluster: str, user: str, server: str, ca: str, token: str, namespaces: Sequence[str]) -> str:
    """Returns YAML for kubectl; the first namespace is the current context."""
    reach = {"server": server, **({"certificate-authority-data": base64.b64encode(ca.encode()).decode()} if ca else {})}
    contexts = [
        {"name": f"{user}/{namespace}", "context": {"cluster": cluster, "user": user, "namespace": namespace}} for namespace in namespaces
    ]
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": reach}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": contexts,
        "current-context": contexts[0]["name"],
    }
    return str(yaml.safe_dump(document, sort_keys=False))


def _duration(slice_: Slice, duration_s: int | None) -> int:
    if duration_s is None:
        return min(DURATION_DEFAULT_S, slice_.kubeconfig_max_s)
    if duration_s < KUBECONFIG_MIN_S:
        raise InvalidInput({"duration_s": [f"Must be {duration(KUBECONFIG_MIN_S)} at least: no cluster gives a token for less."]})
    if duration_s > slice_.kubeconfig_max_s:
        raise OverPolicy(f"In workspace {slice_.name} a kubeconfig lives for {duration(slice_.kubeconfig_max_s)} at most. Ask for less.")
    return duration_s


def _home(slice_: Slice, cluster: Cluster, now: datetime) -> Namespace:
    """Returns the oldest namespace that is ready."""
    if not agent_is_live(getattr(cluster, "agent", None), now, within_s=settings.EGS_AGENT_UNREACHABLE_S):
        raise ClusterNotConnected(f"The agent of cluster {cluster.name} has not been heard lately, and only it can make a kubeconfig.")
    bound = list(Namespace.objects.filter(slice=slice_, cluster=cluster).order_by("created_at", "pk"))
    ready = [namespace for namespace in bound if namespace.state == BindingState.READY]
    if ready:
        return ready[0]
    if not bound:
        raise NamespaceNotReady(f"Workspace {slice_.name} has no namespace in cluster {cluster.name}. Bind one first.")
    raise NamespaceNotReady(f"Namespace {bound[0].name} of cluster {cluster.name} is not ready. {bound[0].detail}".strip())


def _live(cluster: Cluster, account: str) -> Kubeconfig | None:
    id_ = id_of(account)
    return _locked().filter(pk=id_, cluster=cluster, state__in=LIVE_STATES).first() if id_ else None


def _locked() -> QuerySet[Kubeconfig]:
    return Kubeconfig.objects.select_for_update(of=("self",)).select_related("slice", "cluster", "user")


def _end(
    row: Kubeconfig, state: KubeconfigState, why: str, now: datetime, *, actor: User | None = None, severity: Severity = Severity.INFO
) -> None:
    row.state, row.detail, row.token = state, why[:DETAIL_MAX_CHARS], ""
    row.ended_at, row.ended_by = now, actor
    desired_set_changed([row.cluster_id])
    row.ended_generation = Cluster.objects.values_list("generation", flat=True).get(pk=row.cluster_id)
    row.save(update_fields=["state", "detail", "token", "ended_at", "ended_by", "ended_generation"])
    message = f"The kubeconfig of {row.user.name} for workspace {row.slice.name} has ended. {why}"
    _record_event(row, state.value, message, now, actor=actor, severity=severity)


def _record_event(
    row: Kubeconfig, what: str, message: str, now: datetime, *, actor: User | None = None, severity: Severity = Severity.INFO
) -> None:
    event_record(
        kind=f"slice.kubeconfig_{what}",
        message=message,
        at=now,
        actor=actor,
        severity=severity,
        slice_id=row.slice_id,
        cluster_id=row.cluster_id,
        data={"kubeconfig": str(row.pk)},
    )
