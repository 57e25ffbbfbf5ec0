"""Finds out whom an Event concerns, and who may still hear of it.

Apps above the journal register what they know: slices and gpr in their `apps.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import PlatformRole, User
from accounts.policy import is_platform_admin
from journal.models import Event
from journal.notices.kinds import NoticeKind, Rule, To, kinds_for, rule_of

# User ids by the ids of the Events given.
Found = Mapping[int, Collection[UUID]]
Finder = Callable[[Sequence[Event]], Found]


class Tenancy(Protocol):
    def memberships_of(self, user_ids: Collection[UUID]) -> Collection[tuple[UUID, UUID]]:
        """Returns pairs of user and workspace."""

    def slices_seen_by(self, user: User) -> QuerySet[Any]: ...

    def slices_managed_by(self, user: User) -> QuerySet[Any]: ...

    def slice_to_manage(self, user: User, reference: str) -> Any:
        """Raises NotFound or NotAllowed."""


_finders: dict[To, Finder] = {}
_tenancies: list[Tenancy] = []


def find_by(to: To, finder: Finder) -> None:
    """Call it from an app's `ready`."""
    _finders[to] = finder


def set_tenancy(tenancy: Tenancy) -> None:
    """Call it from an app's `ready`."""
    _tenancies[:] = [tenancy]


def tenancy() -> Tenancy:
    return _tenancies[0]


@dataclass(frozen=True, slots=True)
class Hearer:
    """Names a person who is told of an Event. `slice_id` None: it does not matter in which workspaces they are."""

    user: User
    event: Event
    kind: NoticeKind
    slice_id: UUID | None
    is_for_admins: bool


def hearers_of(events: Sequence[Event]) -> list[Hearer]:
    """Everybody whom the table names, who may see the subject, and who has not done it himself. Runs at most one query for each To, and two
    more.
    """
    rules = {event.pk: rule for event in events if (rule := rule_of(event)) is not None}
    found = _found([event for event in events if event.pk in rules], rules)
    users = User.objects.filter(pk__in={user_id for ids in found.values() for user_id in ids}, is_active=True).in_bulk()
    members = set(tenancy().memberships_of(users)) if users else set()
    return [
        hearer
        for event in events
        for user_id in found.get(event.pk, ())
        if user_id != event.actor_id and user_id in users
        if _may_hear(hearer := _hearer(users[user_id], event, rules[event.pk], members), members)
    ]


def heard_by(user: User) -> Q:
    """Returns the condition of the notices that their user may see now, by present roles and workspaces."""
    seen = Q(slice_id__in=tenancy().slices_seen_by(user).values("pk"))
    if not user.bound_to:
        seen |= Q(slice_id=None)
    return seen if is_platform_admin(user) else seen & Q(is_for_admins=False)


def events_heard_by(user: User) -> Q:
    """Returns the condition of the Events whose texts the user may read now, among those that were sent to him once."""
    seen = Q(slice_id=None) | Q(slice_id__in=tenancy().slices_seen_by(user).values("pk")) | Q(kind__in=kinds_for(To.INVITED))
    return seen if is_platform_admin(user) else seen & ~Q(kind__in=kinds_for(To.ADMINS))


def _found(events: Sequence[Event], rules: Mapping[int, Rule]) -> dict[int, Collection[UUID]]:
    found: dict[int, Collection[UUID]] = {}
    for to in To:
        if asked := [event for event in events if rules[event.pk].to is to]:
            found |= _admins(asked) if to is To.ADMINS else _finders[to](asked)
    return found


def _admins(events: Sequence[Event]) -> Found:
    ids = [user.pk for user in User.objects.filter(role=PlatformRole.ADMIN, is_active=True)]
    return {event.pk: ids for event in events}


def _hearer(user: User, event: Event, rule: Rule, members: set[tuple[UUID, UUID]]) -> Hearer:
    is_for_admins = rule.to is To.ADMINS or (rule.to is To.APPROVERS and is_platform_admin(user))
    # An invited person is not in the workspace yet, and a deputy need not be.
    is_outside = rule.to is To.INVITED or (rule.to is To.APPROVERS and (user.pk, event.slice_id) not in members)
    return Hearer(user, event, rule.kind, None if is_for_admins or is_outside else event.slice_id, is_for_admins)


def _may_hear(hearer: Hearer, members: set[tuple[UUID, UUID]]) -> bool:
    return hearer.slice_id is None or is_platform_admin(hearer.user) or (hearer.user.pk, hearer.slice_id) in members
