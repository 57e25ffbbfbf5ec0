"""Every write to what EGS knows of the Prometheus of a cluster. The secret goes in and never out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.policy import ObjectKind
from core.errors import InvalidInput
from core.outbound import ca_fault, url_fault
from core.vault import SecretLost, encrypt, rotate
from core.words import plural
from inventory.models import Cluster, Gpu
from journal.changes import difference, values_of
from journal.services import event_record
from observability.cluster_settings import clusters_shown, setting_for, settings_of
from observability.prometheus.expressions import MATCHERS, NamedGpu
from observability.prometheus.models import Auth, PrometheusSource
from observability.prometheus.queries import Unanswered, forget_answers, series_count

SECRET_MAX_CHARS: Final = 4000
TESTED_MAX: Final = 64  # GPUs


TOLD: Final = ("url", "auth", "username", "matchers", "beyond_s")  # of a change


class PrometheusChange(TypedDict, total=False):
    """An empty `url` ends its use. An empty `secret` keeps the one that is there."""

    url: str
    auth: str
    username: str
    secret: str
    ca_pem: str
    matchers: str
    beyond_s: int


def clusters_with_sources(actor: User) -> QuerySet[Cluster]:
    return clusters_shown(actor, ObjectKind.PROMETHEUS)


def sources_of(clusters: Sequence[Cluster]) -> list[PrometheusSource]:
    """Return one for each cluster, without an address where there is none. Runs one query."""
    return settings_of(PrometheusSource, clusters)


def source_for(actor: User, reference: str) -> PrometheusSource:
    """Find it by its cluster. Raises NotFound."""
    return setting_for(PrometheusSource, ObjectKind.PROMETHEUS, actor, reference)


@transaction.atomic
def prometheus_change(*, cluster: Cluster, change: PrometheusChange, actor: User, now: datetime) -> None:
    """Raises InvalidInput."""
    Cluster.objects.select_for_update().get(pk=cluster.pk)
    source = PrometheusSource.objects.filter(cluster=cluster).first() or PrometheusSource(cluster=cluster)
    before = values_of(source, TOLD)
    for name, value in change.items():
        if name != "secret":
            setattr(source, name, value)
    if not source.url:
        PrometheusSource.objects.filter(cluster=cluster).delete()
        if before["url"]:
            _record(cluster, f"Prometheus of {cluster.name} is no longer used.", actor, now, before, {"url": ""})
        return
    secret = change.get("secret", "")
    # A secret is for the address that it was given for.
    source.sealed = encrypt(secret) if secret else (source.sealed if source.url == before["url"] else "")
    if source.auth == Auth.NONE:
        source.sealed = source.username = ""
    _check(source, secret)
    source.save()
    message = f"Long courses of GPUs in {cluster.name} come from Prometheus at {source.url}. Its key: {source.get_auth_display().lower()}."
    _record(cluster, message, actor, now, before, values_of(source, TOLD))


def prometheus_test(source: PrometheusSource, *, now: datetime) -> tuple[bool, str]:
    """Asks it about some GPUs, and returns whether it answered, and what it says in a sentence. It must run outside of a transaction."""
    if not source.url:
        return False, f"{source.cluster.name} has no Prometheus."
    there = Gpu.objects.filter(node__cluster=source.cluster, gone_at=None).select_related("node").order_by("pk")
    gpus = [named(gpu, source) for gpu in there[:TESTED_MAX]]
    try:
        count = series_count(source, gpus, now=now) if gpus else 0
    except Unanswered as error:
        return False, f"Prometheus does not answer as it should. {error.why}"
    return True, f"Prometheus answers. It knows {count} of {plural(len(gpus), 'GPU')} that EGS asked about."


def named(gpu: Gpu, source: PrometheusSource) -> NamedGpu:
    """Names of nodes are not unique: without matchers, series of another cluster could have the same. It needs the joined `node`."""
    is_by_place = bool(source.matchers) and not gpu.hardware_uuid
    return NamedGpu(gpu.pk, gpu.hardware_uuid or gpu.uuid, gpu.node.name, gpu.index, is_by_place)


def sources_by_cluster(cluster_ids: Iterable[UUID]) -> Mapping[UUID, PrometheusSource]:
    """Runs one query."""
    return {row.cluster_id: row for row in PrometheusSource.objects.filter(cluster__in=set(cluster_ids))}


def prometheus_secrets_rotate() -> tuple[int, int]:
    """Encrypts all with the newest key. Returns how many were, and how many no key reads."""
    done_count = lost_count = 0
    for pk, sealed in list(PrometheusSource.objects.exclude(sealed="").values_list("pk", "sealed")):
        try:
            PrometheusSource.objects.filter(pk=pk, sealed=sealed).update(sealed=rotate(sealed))
            done_count += 1
        except SecretLost:
            lost_count += 1
    return done_count, lost_count


def _check(source: PrometheusSource, secret: str) -> None:
    """Raises InvalidInput."""
    faults: dict[str, list[str]] = {}
    if fault := url_fault(source.url) or ("Must have no question mark." if "?" in source.url else ""):
        faults["url"] = [fault]
    if source.auth != Auth.NONE and not source.sealed:
        faults["secret"] = ["Give the token or password, also when the address is another."]
    if source.auth == Auth.BEARER and secret and not (secret.isascii() and secret.isprintable()):
        faults["secret"] = ["A token has no spaces and no special characters."]
    if source.auth == Auth.BASIC and (not source.username or ":" in source.username):
        faults["username"] = ["Give a user name without a colon."]
    if source.matchers and not MATCHERS.fullmatch(source.matchers):
        faults["matchers"] = ['Must be matchers of labels, as cluster="aurora",env="prod".']
    if source.ca_pem and (fault := ca_fault(source.ca_pem)):
        faults["ca_pem"] = [fault]
    if faults:
        raise InvalidInput(faults)


def _record(cluster: Cluster, message: str, actor: User, now: datetime, before: dict[str, Any], after: dict[str, Any]) -> None:
    data = difference(before, after)
    event_record(kind="prometheus.changed", message=message, at=now, actor=actor, cluster_id=cluster.pk, data=data)
    transaction.on_commit(forget_answers)
