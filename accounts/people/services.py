"""Makes every change to a person's role and access."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from django.db import IntegrityError, transaction

from accounts.audit import AccountChange, report
from accounts.models import GroupRole, Identity, Login, PlatformRole, RoleSource, User
from accounts.sessions import logins_end
from core.errors import Conflict, InvalidInput, NameTaken
from core.locks import transaction_lock
from core.names import mail_fault

GroupsListener = Callable[[User, User | None, datetime], None]
_groups_listeners: list[GroupsListener] = []


def when_groups_change(listener: GroupsListener) -> None:
    """Call it from an app's `ready`: `listener` gives and takes what groups decide on in that app."""
    _groups_listeners.append(listener)


@transaction.atomic
def user_create(
    *,
    name: str,
    now: datetime,
    email: str = "",
    role: PlatformRole = PlatformRole.MEMBER,
    is_service: bool = False,
    actor: User | None = None,
) -> User:
    """Raises InvalidInput for a mail address that is none, or NameTaken."""
    if email and (fault := mail_fault(email)):
        raise InvalidInput({"email": [fault]})
    source = RoleSource.NOBODY if role == PlatformRole.MEMBER else RoleSource.HAND
    user = User(name=name, email=email, role=role, role_source=source, is_service=is_service, created_at=now)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError:
        raise NameTaken(f"There is already a user named {name}. Choose another name.") from None
    what = "service account" if is_service else PlatformRole(role).label.lower()
    report(AccountChange("user.created", f"{name} was added as {what}.", actor, now))
    return user


@transaction.atomic
def user_set_role(*, user: User, role: PlatformRole, actor: User | None, now: datetime) -> None:
    """Raises Conflict for a service account, or when no administrator would be left. The role then stays, whatever groups the person is
    in.
    """
    if user.is_service:
        raise Conflict("A service account has a role in its workspace alone.")
    _lock_roles()
    User.objects.filter(pk=user.pk).update(role_source=RoleSource.HAND)
    _role_to(user, role, actor=actor, now=now)
    _keep_an_administrator()


@transaction.atomic
def user_disable(*, user: User, actor: User | None, now: datetime) -> None:
    """The person's tokens, sessions and sockets stop at once. Raises Conflict when no administrator would be left."""
    _lock_roles()
    if User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
        report(AccountChange("user.disabled", f"{user.name} was disabled.", actor, now, user=user))
        logins_end(Login.objects.filter(user=user), why="was signed out", actor=actor, now=now)
        _keep_an_administrator()


@transaction.atomic
def user_enable(*, user: User, actor: User | None, now: datetime) -> None:
    """Tokens work again; the person has to sign in anew."""
    if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
        report(AccountChange("user.enabled", f"{user.name} was enabled again.", actor, now, user=user))


@transaction.atomic
def identity_unlink(*, identity: Identity, actor: User, now: datetime) -> None:
    """Nobody signs in by it any more, its sessions end, and roles that only its groups gave are lost."""
    _lock_roles()
    logins_end(Login.objects.filter(identity=identity), why="was signed out", actor=actor, now=now)
    user = identity.user
    Identity.objects.filter(pk=identity.pk).delete()
    report(AccountChange("identity.unlinked", f"{user.name} does not sign in through {identity.provider} any more.", actor, now, user=user))
    groups_apply(user=user, actor=actor, now=now)


@transaction.atomic
def identity_set_groups(*, identity: Identity, groups: Iterable[str], actor: User | None, now: datetime) -> None:
    """Gives and takes the roles that depend on groups. Those that people gave stay."""
    _lock_roles()
    Identity.objects.filter(pk=identity.pk).update(groups=sorted(set(groups)), groups_at=now)
    groups_apply(user=identity.user, actor=actor, now=now)


@transaction.atomic
def group_role_add(*, provider: str, group: str, role: PlatformRole, actor: User, now: datetime) -> GroupRole:
    """Raises NameTaken."""
    _lock_roles()
    if GroupRole.objects.filter(provider=provider, group=group).exists():
        raise NameTaken(f"Group {group} has a role already. Remove it first.")
    made = GroupRole.objects.create(provider=provider, group=group, role=role, created_at=now)
    report(AccountChange("group.role_added", f"Group {group} has the role {role.label.lower()} now.", actor, now))
    _apply_to_people(made, actor, now)
    return made


@transaction.atomic
def group_role_remove(*, row: GroupRole, actor: User, now: datetime) -> None:
    """Raises Conflict when no administrator would be left."""
    _lock_roles()
    GroupRole.objects.filter(pk=row.pk).delete()
    report(AccountChange("group.role_removed", f"Group {row.group} has no role any more.", actor, now))
    _apply_to_people(row, actor, now)
    _keep_an_administrator()


def people_in(provider: str, group: str) -> list[User]:
    """Returns those who were in the group when they last signed in."""
    people = User.objects.filter(identities__provider=provider).distinct().prefetch_related("identities")
    return [user for user in people if (provider, group) in groups_of(user)]


def _apply_to_people(row: GroupRole, actor: User, now: datetime) -> None:
    for user in people_in(row.provider, row.group):
        groups_apply(user=user, actor=actor, now=now)


def groups_apply(*, user: User, actor: User | None, now: datetime) -> None:
    """Needs a transaction."""
    user.refresh_from_db()
    role = _role_by_groups(user)
    if user.role_source != RoleSource.HAND and role != user.role and not _is_last_administrator(user):
        User.objects.filter(pk=user.pk).update(role_source=RoleSource.NOBODY if role == PlatformRole.MEMBER else RoleSource.GROUP)
        _role_to(user, role, actor=actor, now=now)
    for listener in _groups_listeners:
        listener(user, actor, now)


def groups_of(user: User) -> set[tuple[str, str]]:
    """Returns (provider, group)."""
    return {(identity.provider, group) for identity in user.identities.all() for group in identity.groups}


def _role_by_groups(user: User) -> PlatformRole:
    groups = groups_of(user)
    roles = {row.role for row in GroupRole.objects.all() if (row.provider, row.group) in groups}
    return next((role for role in (PlatformRole.ADMIN, PlatformRole.AUDITOR) if role in roles), PlatformRole.MEMBER)


def _role_to(user: User, role: PlatformRole, *, actor: User | None, now: datetime) -> None:
    old = User.objects.values_list("role", flat=True).get(pk=user.pk)
    if old != role:
        User.objects.filter(pk=user.pk).update(role=role)
        text = f"{user.name} has the role {role.label.lower()} now."
        report(AccountChange("user.role_changed", text, actor, now, user=user, before={"role": old}, after={"role": role}))
    user.role = role


def _is_last_administrator(user: User) -> bool:
    """He keeps the role when he leaves his group, since EGS would have no administrator."""
    others = User.objects.filter(role=PlatformRole.ADMIN, is_active=True).exclude(pk=user.pk)
    return user.role == PlatformRole.ADMIN and not others.exists()


def _lock_roles() -> None:
    transaction_lock("roles")


def _keep_an_administrator() -> None:
    if not User.objects.filter(role=PlatformRole.ADMIN, is_active=True).exists():
        raise Conflict("EGS needs an active administrator. Make another person one first.")
