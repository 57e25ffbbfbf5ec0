"""Service accounts are programs that act in one workspace under a name of their own.

Owners make them here and give them tokens. One that files objects in a cluster is added when EGS meets it there. Their names begin with the
workspace's and a colon, which no person's name holds.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime
from typing import Final

from django.db import transaction

from accounts.models import ApiToken, Scope, User
from accounts.people.services import user_create, user_disable, user_enable
from accounts.tokens.services import NewToken, TokenTerms, token_create, token_revoke
from core.errors import Conflict, InvalidInput, NotAllowed
from core.names import name_fault
from inventory.models import Cluster
from journal.changes import difference
from journal.models import Severity
from journal.services import event_record
from slices.models import Role, ServiceAccount, Slice
from slices.services import member_put, member_take, slice_lock_open

NAME_MAX: Final = 63
MOST: Final = 100  # of a workspace
PREFIX: Final = "system:serviceaccount:"  # of such an account's user name in Kubernetes
SCOPES: Final = (Scope.READ, Scope.GPR_WRITE, Scope.WRITE)


@transaction.atomic
def service_account_create(*, slice_: Slice, name: str, role: Role, actor: User, now: datetime) -> ServiceAccount:
    """Raises NameTaken, InvalidInput for a name that is too long beside the workspace's, or Conflict."""
    if fault := name_fault(name):
        raise InvalidInput({"name": [fault]})
    full = f"{slice_.name}:{name}"
    if len(full) > NAME_MAX:
        raise InvalidInput({"name": [f"{NAME_MAX - len(slice_.name) - 1} characters at most, since the workspace's name precedes it."]})
    return _add(slice_, full, role, actor=actor, now=now)


@transaction.atomic
def service_account_met(*, slice_: Slice, cluster: Cluster, cluster_user: str, now: datetime) -> User:
    """Returns the account by which this service account of a cluster acts in the workspace, added as an editor when it is new.

    Raises NotAllowed when its owners have disabled it, or Conflict.
    """
    account = ServiceAccount.objects.select_related("user").filter(slice=slice_, cluster=cluster, cluster_user=cluster_user).first()
    if account is None or account.deleted_at is not None:
        name = _name_of(slice_, cluster, cluster_user)
        account = _add(slice_, name, Role.EDITOR, cluster=cluster, cluster_user=cluster_user, actor=None, now=now)
    if not account.user.is_active:
        raise NotAllowed(f"Owners of workspace {slice_.name} have disabled {account.user.name}. They can enable it on the page People.")
    return account.user


@transaction.atomic
def service_account_change(
    *, account: ServiceAccount, role: Role | None = None, is_active: bool | None = None, actor: User, now: datetime
) -> None:
    """Disabling ends its tokens at once. Requests stay. Raises Conflict in a workspace that is closed."""
    slice_lock_open(account.slice)
    if role is not None:
        member_put(slice_=account.slice, user=account.user, role=role, is_by_group=False, actor=actor, now=now)
    if is_active is None or is_active == account.user.is_active:
        return
    (user_enable if is_active else user_disable)(user=account.user, actor=actor, now=now)
    account.user.is_active = is_active
    text = f"Service account {account.user.name} of workspace {account.slice.name} is {'enabled' if is_active else 'disabled'}."
    data = difference({"is_active": not is_active}, {"is_active": is_active})
    event_record(kind="slice.service_account_changed", message=text, at=now, actor=actor, slice_id=account.slice_id, data=data)


@transaction.atomic
def service_account_delete(*, account: ServiceAccount, actor: User, now: datetime) -> None:
    """Its tokens and its role end at once; requests and records keep its name. Whoever makes it anew gets it without its tokens.

    Raises Conflict for one of a cluster that is disabled, or in a workspace that is closed.
    """
    slice_lock_open(account.slice)
    if account.cluster is not None and not account.user.is_active:
        raise Conflict(f"EGS would add {account.user.name} anew when it files again in cluster {account.cluster.name}. Leave it disabled.")
    for token in ApiToken.objects.filter(user=account.user, revoked_at=None, expires_at__gt=now).select_related("user"):
        token_revoke(token=token, actor=actor, now=now)
    user_disable(user=account.user, actor=actor, now=now)
    member_take(slice_=account.slice, user=account.user, actor=actor, now=now)
    ServiceAccount.objects.filter(pk=account.pk).update(deleted_at=now)
    text = f"Service account {account.user.name} of workspace {account.slice.name} was deleted."
    event_record(kind="slice.service_account_deleted", message=text, at=now, actor=actor, slice_id=account.slice_id)


@transaction.atomic
def service_token_create(*, account: ServiceAccount, terms: TokenTerms, actor: User, now: datetime) -> NewToken:
    """The token is bound to the workspace. Raises Conflict for an account that is disabled; see also token_create."""
    if not account.user.is_active:
        raise Conflict(f"{account.user.name} is disabled. Enable it first.")
    bound = replace(terms, slices=[str(account.slice_id)])
    return token_create(user=account.user, terms=bound, actor=actor, now=now)


def _add(
    slice_: Slice, name: str, role: Role, *, cluster: Cluster | None = None, cluster_user: str = "", actor: User | None, now: datetime
) -> ServiceAccount:
    slice_lock_open(slice_)
    if slice_.service_accounts.filter(deleted_at=None).count() >= MOST:
        raise Conflict(f"Workspace {slice_.name} has {MOST} service accounts, which is the most. Delete one first.")
    user = _user_of_deleted(slice_, name, actor, now) or user_create(name=name, is_service=True, actor=actor, now=now)
    terms = {"slice": slice_, "cluster": cluster, "cluster_user": cluster_user, "created_by": actor, "created_at": now, "deleted_at": None}
    account, _ = ServiceAccount.objects.update_or_create(user=user, defaults=terms)
    if cluster is None:
        text = f"{name} is a service account of workspace {slice_.name}."
        event_record(kind="slice.service_account_added", message=text, at=now, actor=actor, slice_id=slice_.pk)
    else:
        text = f"Service account {cluster_user} of cluster {cluster.name} acts in workspace {slice_.name} as {name} from now on."
        event_record(kind="slice.service_account_met", message=text, at=now, severity=Severity.WARNING, slice_id=slice_.pk)
    member_put(slice_=slice_, user=user, role=role, is_by_group=False, actor=actor, now=now)
    return account


def _user_of_deleted(slice_: Slice, name: str, actor: User | None, now: datetime) -> User | None:
    """Finds the user of a deleted account of this name, and makes him active again."""
    found = ServiceAccount.objects.select_related("user").filter(slice=slice_, user__name=name, deleted_at__isnull=False).first()
    if found is None:
        return None
    user_enable(user=found.user, actor=actor, now=now)
    found.user.is_active = True
    return found.user


def _name_of(slice_: Slice, cluster: Cluster, cluster_user: str) -> str:
    full = f"{slice_.name}:{cluster_user.removeprefix(PREFIX).replace(':', '.')}@{cluster.name}"
    if len(full) <= NAME_MAX:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{full[: NAME_MAX - 9]}-{digest}"
