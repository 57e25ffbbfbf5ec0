"""Tells notices who belongs to a workspace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import Identity, User
from accounts.policy import Verb, is_platform_admin
from core.clock import db_now
from core.rest.references import id_of
from journal.models import Event
from slices.deputies.selectors import approvers_of
from slices.models import Invitation, Membership, ProjectAdmin, Role, Slice
from slices.selectors import slice_for, slices_visible_to, slices_visible_to_members


class SliceTenancy:
    """Implements journal.notices.audience.Tenancy."""

    def memberships_of(self, user_ids: Collection[UUID]) -> Collection[tuple[UUID, UUID]]:
        rows = Membership.objects.filter(user__in=user_ids).values_list("user", "slice")
        run = Slice.objects.filter(project__admins__user__in=user_ids).values_list("project__admins__user", "pk")
        return [*rows, *run]

    def slices_seen_by(self, user: User) -> QuerySet[Slice]:
        return slices_visible_to(user)

    def slices_managed_by(self, user: User) -> QuerySet[Slice]:
        if is_platform_admin(user):
            return Slice.objects.all()
        owned = Membership.objects.filter(user=user, role=Role.OWNER).values("slice")
        run = ProjectAdmin.objects.filter(user=user).values("project")
        return slices_visible_to_members(user).filter(Q(pk__in=owned) | Q(project__in=run))

    def slice_to_manage(self, user: User, reference: str) -> Slice:
        return slice_for(user, reference, verb=Verb.MANAGE)


def owners_of(events: Sequence[Event]) -> dict[int, list[UUID]]:
    """Returns the owners of each Event's workspace. Runs one query."""
    owners: dict[UUID, list[UUID]] = defaultdict(list)
    rows = Membership.objects.filter(slice__in={event.slice_id for event in events}, role=Role.OWNER)
    for slice_id, user_id in rows.values_list("slice", "user"):
        owners[slice_id].append(user_id)
    return {event.pk: owners[event.slice_id] for event in events if event.slice_id in owners}


def approvers_of_events(events: Sequence[Event]) -> dict[int, Collection[UUID]]:
    """Returns people who decide on requests of each Event's workspace. Four queries."""
    projects = dict(Slice.objects.filter(pk__in={event.slice_id for event in events}).values_list("pk", "project"))
    found = approvers_of(projects.values(), db_now())
    return {event.pk: found[projects[event.slice_id]] for event in events if event.slice_id in projects}


def applicants_of(events: Sequence[Event]) -> dict[int, list[UUID]]:
    """Returns the person who asked for the workspace of each Event. Runs no query."""
    asked = {event.pk: id_of(str(event.data.get("requester", ""))) for event in events}
    return {pk: [id_] for pk, id_ in asked.items() if id_ is not None}


def invited_in(events: Sequence[Event]) -> dict[int, list[UUID]]:
    """Returns the invited people. Runs two queries."""
    invitations = Invitation.objects.in_bulk([id_ for event in events if (id_ := id_of(str(event.data.get("invitation", ""))))])
    addresses = {invitation.name for invitation in invitations.values() if invitation.user_id is None}
    by_address: dict[str, list[UUID]] = defaultdict(list)
    for address, user_id in Identity.objects.filter(email__in=addresses).exclude(email="").values_list("email", "user"):
        by_address[address].append(user_id)
    found: dict[int, list[UUID]] = {}
    for event in events:
        if (invitation := invitations.get(id_of(str(event.data.get("invitation", ""))))) is not None:
            found[event.pk] = [invitation.user_id] if invitation.user_id else by_address[invitation.name]
    return found


def named_in(events: Sequence[Event]) -> dict[int, list[UUID]]:
    """Returns the user whom a membership names, if there is one. Runs one query."""
    names = {event.pk: str(event.data.get("user", "")) for event in events}
    ids = [id_ for name in names.values() if (id_ := id_of(name))]
    users = User.objects.filter(Q(name__in=names.values()) | Q(pk__in=ids)).values_list("pk", "name")
    known = {text: pk for pk, name in users for text in (name, str(pk))}
    return {pk: [known[name]] for pk, name in names.items() if name in known}
