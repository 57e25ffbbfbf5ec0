from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F

from accounts.models import User
from accounts.tokens.minting import TokenKind, token_mint
from core.errors import Conflict, InvalidInput, NameTaken
from inventory.models import DRAIN_MAX_S, AgentCredential, AgentSession, Cluster, JoinToken
from journal.changes import difference, values_of
from journal.hints import TICK, cluster_topic, hint
from journal.services import event_record


@transaction.atomic
def cluster_create(*, name: str, actor: User | None, now: datetime) -> Cluster:
    try:
        with transaction.atomic():
            cluster = Cluster.objects.create(name=name, created_at=now)
    except IntegrityError:
        taken = Cluster.objects.filter(name__iexact=name).values_list("name", flat=True).first() or name
        raise NameTaken(f"There is already a cluster named {taken}; upper and lower case count as the same. Choose another name.") from None
    event_record(kind="cluster.created", message=f"Cluster {name} was added.", at=now, actor=actor, cluster_id=cluster.pk)
    return cluster


@transaction.atomic
def cluster_set_enabled(*, cluster: Cluster, is_enabled: bool, actor: User, now: datetime) -> None:
    if not Cluster.objects.filter(pk=cluster.pk, is_enabled=not is_enabled).update(is_enabled=is_enabled):
        return
    verb = "enabled" if is_enabled else "disabled"
    event_record(kind=f"cluster.{verb}", message=f"Cluster {cluster.name} was {verb}.", at=now, actor=actor, cluster_id=cluster.pk)
    cluster.is_enabled = is_enabled
    hint(TICK)


@transaction.atomic
def cluster_set_api_url(*, cluster: Cluster, api_url: str, actor: User, now: datetime) -> None:
    """Changes the address in later kubeconfigs, since the agent may know only an address inside the cluster."""
    row = Cluster.objects.select_for_update().get(pk=cluster.pk)
    if row.api_url == api_url:
        return
    Cluster.objects.filter(pk=cluster.pk).update(api_url=api_url)
    data = difference({"api_url": row.api_url}, {"api_url": api_url})
    where = f"at {api_url}" if api_url else "where its agent does"
    message = f"Users reach the API server of cluster {cluster.name} {where}."
    event_record(kind="cluster.api_url_changed", message=message, at=now, actor=actor, cluster_id=cluster.pk, data=data)


@transaction.atomic
def cluster_set_repairs(*, cluster: Cluster, repairs_drift: bool, actor: User, now: datetime) -> None:
    if not Cluster.objects.filter(pk=cluster.pk, repairs_drift=not repairs_drift).update(repairs_drift=repairs_drift):
        return
    does = "repairs changes to EGS's objects there" if repairs_drift else "only reports changes to EGS's objects there"
    message = f"The agent of cluster {cluster.name} {does}."
    data = difference({"repairs_drift": not repairs_drift}, {"repairs_drift": repairs_drift})
    event_record(kind="cluster.repairs_changed", message=message, at=now, actor=actor, cluster_id=cluster.pk, data=data)
    desired_set_changed([cluster.pk])


@transaction.atomic
def cluster_set_drain(*, cluster: Cluster, grace_s: int | None, force_after_s: int | None, actor: User, now: datetime) -> None:
    """Keeps a setting whose argument is None. Raises InvalidInput."""
    row = Cluster.objects.select_for_update().get(pk=cluster.pk)
    grace_s = row.drain_grace_s if grace_s is None else grace_s
    force_after_s = row.drain_force_after_s if force_after_s is None else force_after_s
    least_s = max(1, grace_s)
    if not least_s <= force_after_s <= DRAIN_MAX_S:
        raise InvalidInput(
            {"drain_force_after_s": [f"Must be from {least_s} s, as long as a disruption budget holds a pod, to {DRAIN_MAX_S} s."]}
        )
    drain = {"drain_grace_s": grace_s, "drain_force_after_s": force_after_s}
    if not Cluster.objects.filter(pk=cluster.pk).exclude(**drain).update(**drain):
        return
    message = (
        f"Pods in cluster {cluster.name} get {force_after_s} s to stop after the end of their box; "
        f"a disruption budget holds them {grace_s} s at most."
    )
    data = difference(values_of(row, drain), drain)
    event_record(kind="cluster.drain_changed", message=message, at=now, actor=actor, cluster_id=cluster.pk, data=data)
    desired_set_changed([cluster.pk])


@transaction.atomic
def join_token_issue(*, cluster: Cluster, actor: User | None, now: datetime) -> tuple[JoinToken, str]:
    """Ends the earlier tokens. A join with the new one unlocks a locked agent."""
    join_tokens_end(cluster=cluster, now=now)
    minted = token_mint(TokenKind.JOIN)
    token = JoinToken.objects.create(
        cluster=cluster,
        key_id=minted.key_id,
        digest=minted.digest,
        pepper_id=minted.pepper_id,
        created_at=now,
        expires_at=now + settings.EGS_JOIN_TOKEN_LIFE,
    )
    event_record(
        kind="cluster.join_token_issued",
        message=f"A join token was issued for cluster {cluster.name}.",
        at=now,
        actor=actor,
        cluster_id=cluster.pk,
    )
    return token, minted.plain


@transaction.atomic
def cluster_resume(*, cluster: Cluster, actor: User, now: datetime) -> None:
    """Continue after a rewind, above every generation that the agent has seen. Raises Conflict without a rewind."""
    agent = AgentSession.objects.select_for_update().filter(cluster=cluster).first()
    known = agent.known_generation if agent else 0
    locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
    if locked.rewound_at is None:
        raise Conflict(f"Cluster {cluster.name} was not rewound; there is nothing to resume.")
    locked.generation, locked.rewound_at = max(known, locked.generation) + 1, None
    locked.save(update_fields=["generation", "rewound_at"])
    event_record(
        kind="cluster.resumed",
        message=f"Cluster {cluster.name} goes on after its rewind, at generation {locked.generation}.",
        at=now,
        actor=actor,
        cluster_id=cluster.pk,
    )
    cluster.generation, cluster.rewound_at = locked.generation, None
    hint(cluster_topic(cluster.pk))
    hint(TICK)


def agent_credentials_revoke(*, cluster: Cluster, now: datetime) -> None:
    AgentCredential.objects.filter(cluster=cluster, revoked_at=None).update(revoked_at=now)


def join_tokens_end(*, cluster: Cluster, now: datetime) -> None:
    # Used ones too, since their agent may repeat the join with them.
    JoinToken.objects.filter(cluster=cluster, expires_at__gt=now).update(expires_at=now)


def desired_set_changed(cluster_ids: Iterable[UUID]) -> None:
    """Call it last in every transaction that changes what an agent is sent (I16)."""
    for cluster_id in sorted(set(cluster_ids)):
        Cluster.objects.filter(pk=cluster_id).update(generation=F("generation") + 1)
        hint(cluster_topic(cluster_id))
