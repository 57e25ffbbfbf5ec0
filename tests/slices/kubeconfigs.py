"""Helpers of the tests of kubeconfigs: a workspace whose namespace is ready, and an agent that answers."""

from __future__ import annotations

from datetime import datetime, timedelta

from accounts.models import User
from inventory.models import Cluster
from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncRequest
from protocol.tenancy.workspaces import BindingState, IssuedToken
from slices.kubeconfigs.services import kubeconfig_ask, kubeconfig_take
from slices.models import Kubeconfig, Namespace, Slice
from slices.namespaces.services import namespace_bind
from slices.tenancy import SliceTenants
from tests.builders import generation_of

SECRET = "token-that-nobody-else-may-see"
SERVER = "https://10.0.0.1:6443"


def ready_namespace(slice_: Slice, cluster: Cluster, *, at: datetime, name: str = "train") -> Namespace:
    namespace = namespace_bind(slice_=slice_, cluster=cluster, name=name, actor=None, now=at)
    Namespace.objects.filter(pk=namespace.pk).update(state=BindingState.READY)
    namespace.refresh_from_db()
    return namespace


def asked(slice_: Slice, cluster: Cluster, by: User, *, at: datetime) -> Kubeconfig:
    return kubeconfig_ask(slice_=slice_, cluster=cluster, duration_s=3600, actor=by, now=at)


def answer(row: Kubeconfig, *, at: datetime, secret: str = SECRET) -> None:
    expires_s = (at + timedelta(seconds=row.duration_s)).timestamp()
    issued = IssuedToken(account=str(row.pk), token=secret, expires_s=expires_s, server=SERVER, ca="PEM")
    kubeconfig_take(cluster=row.cluster, issued=issued, now=at)
    row.refresh_from_db()


def says_left(cluster: Cluster, *left: Kubeconfig, digest: str, generation: int | None = None, at: datetime) -> None:
    """Its agent says that no accounts are left but these, and those of the list with this digest."""
    known = generation_of(cluster) if generation is None else generation
    said = SyncRequest(
        session_epoch=1, boot_id="b", known_generation=known, have_workspaces=digest, accounts_left=tuple(str(row.pk) for row in left)
    )
    SliceTenants().take_report(cluster, said, at)


def list_digest(cluster: Cluster) -> str:
    return set_digest(SliceTenants().workspaces(cluster.pk))


def made(slice_: Slice, cluster: Cluster, by: User, *, at: datetime) -> Kubeconfig:
    row = asked(slice_, cluster, by, at=at)
    answer(row, at=at)
    return row
