"""Makes every write to quotas.

The slices' guarantees come out of their project's, and no slice may hold more than its project. All projects' guarantees must fit the GPUs
that exist. Sums are checked under a lock that starts take, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet, Sum

from accounts.models import User
from core.errors import Conflict, InvalidInput, NotFound
from core.words import are, number, plural
from core.written_sql import WrittenQuery
from inventory.selectors import gpus_of_shape, shapes_known
from journal.changes import difference, values_of
from journal.hints import TICK, hint, slice_topic
from journal.services import event_record
from slices.models import Project, Quota, Slice, TenantOwned


class QuotaChange(TypedDict, total=False):
    guaranteed_gpus: int
    most_gpus: int | None


@transaction.atomic
def quota_create(*, owner: Project | Slice, shape: str, change: QuotaChange, actor: User | None, now: datetime, why: str = "") -> Quota:
    """Raises InvalidInput for a contradiction to the inventory or another quota, Conflict when it exists already."""
    of = {"project": owner} if isinstance(owner, Project) else {"slice": owner}
    quota = Quota(**of, shape=shape, created_at=now, **change)
    if shape not in shapes_known():
        known = ", ".join(sorted(shapes_known())) or "none yet"
        raise InvalidInput({"shape": [f"No cluster has {shape}. There are: {known}."]})
    _lock_sums(quota)
    _check(quota, had_gpus=0)
    try:
        with transaction.atomic():
            quota.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is already a quota of {shape} for {whose(quota)}. Change that one.") from None
    _record(quota, "created", f"{_title(quota)} was made: {terms(quota)}.", why, actor, now)
    return quota


@transaction.atomic
def quota_change(*, quota: Quota, change: QuotaChange, actor: User, now: datetime, why: str = "") -> Quota:
    """A lower limit ends nothing that runs. Raises InvalidInput, NotFound."""
    found = _locked(quota)
    had_gpus, old, before = found.guaranteed_gpus, terms(found), values_of(found, change)
    for name, value in change.items():
        setattr(found, name, value)
    if terms(found) == old:
        return found
    _check(found, had_gpus=had_gpus)
    found.save(update_fields=list(change))
    text = f"{_title(found)} was changed: {terms(found)}; before it was {old}."
    _record(found, "changed", text, why, actor, now, difference(before, change))
    return found


@transaction.atomic
def quota_delete(*, quota: Quota, actor: User | None, now: datetime, why: str = "") -> None:
    """Raises Conflict while its workspaces have guarantees out of it, NotFound."""
    found = _locked(quota)
    given = _guaranteed(_of_slices(found.tenant, found.shape)) if found.slice is None else 0
    if given:
        raise Conflict(f"{number(given)} of its GPUs {are(given)} guaranteed to workspaces of {whose(found)}. Take those back first.")
    Quota.objects.filter(pk=found.pk).delete()
    _record(found, "deleted", f"{_title(found)} was deleted; it was {terms(found)}.", why, actor, now)


def quotas_keep(project_ids: Collection[UUID]) -> None:
    """Call it before locking rows of GPRs or nodes."""
    _LOCKED_PROJECTS(project_ids)


_LOCKED_PROJECTS: Final = WrittenQuery(Project.objects.select_for_update(no_key=True).order_by("pk").values_list("pk"))


def terms(quota: Quota) -> str:
    """Returns e.g. `16 GPUs guaranteed, 24 at most`."""
    most = "no limit" if quota.most_gpus is None else f"{number(quota.most_gpus)} at most"
    return f"{plural(quota.guaranteed_gpus, 'GPU')} guaranteed, {most}"


def whose(row: TenantOwned) -> str:
    return f"{'project' if row.slice is None else 'workspace'} {row.owner.name}"


def _lock_sums(quota: Quota) -> None:
    """A slice's quota locks its project; a project's quota locks all projects."""
    rows = Project.objects.select_for_update(no_key=True).order_by("pk")
    list(rows if quota.slice is None else rows.filter(pk=quota.slice.project_id))


def _locked(quota: Quota) -> Quota:
    """Raises NotFound when it is gone."""
    _lock_sums(quota)
    found = Quota.objects.select_related("project", "slice__project").filter(pk=quota.pk).first()
    if found is None:
        raise NotFound("quota")
    return found


def _check(quota: Quota, *, had_gpus: int) -> None:
    """Raises InvalidInput. `had_gpus`, the old guarantee, may always be lowered."""
    errors: dict[str, list[str]] = {}
    for field, text in _faults(quota, had_gpus):
        errors.setdefault(field, []).append(text)
    if errors:
        raise InvalidInput(errors)


def _faults(quota: Quota, had_gpus: int) -> Iterator[tuple[str, str]]:
    if quota.most_gpus is not None and quota.most_gpus < quota.guaranteed_gpus:
        yield "most_gpus", f"Must not be less than what is guaranteed, {plural(quota.guaranteed_gpus, 'GPU')}."
    if quota.guaranteed_gpus > had_gpus:
        yield from _beyond_what_is_left(quota)
    yield from _against_slices(quota) if quota.slice is None else _against_project(quota)


def _beyond_what_is_left(quota: Quota) -> Iterator[tuple[str, str]]:
    if quota.slice is None:
        all_gpus, source = gpus_of_shape(quota.shape), "All clusters together have"
        others = Quota.objects.filter(project__isnull=False, shape=quota.shape)
        whose = "other projects"
    else:
        parent = _of_project(quota)
        all_gpus, source = parent.guaranteed_gpus if parent else 0, f"Project {quota.tenant.name} is guaranteed"
        others = _of_slices(quota.tenant, quota.shape)
        whose = "its other workspaces"
    given = _guaranteed(others.exclude(pk=quota.pk))
    left = max(all_gpus - given, 0)
    if quota.guaranteed_gpus > left:
        taken = f"{number(given)} of them {are(given)} guaranteed to {whose}; " if given else ""
        yield "guaranteed_gpus", f"{source} {plural(all_gpus, 'GPU')} of {quota.shape}; {taken}{number(left)} {are(left)} left."


def _against_slices(quota: Quota) -> Iterator[tuple[str, str]]:
    slices = _of_slices(quota.tenant, quota.shape)
    given = _guaranteed(slices)
    if quota.guaranteed_gpus < given:
        yield "guaranteed_gpus", f"Its workspaces are guaranteed {number(given)} of them: it cannot be less."
    largest = slices.filter(most_gpus__gt=quota.most_gpus).order_by("-most_gpus", "pk").first() if quota.most_gpus is not None else None
    if largest is not None:
        yield "most_gpus", f"Workspace {largest.owner.name} may hold {number(largest.most_gpus or 0)}: let it hold less first."


def _against_project(quota: Quota) -> Iterator[tuple[str, str]]:
    parent = _of_project(quota)
    if parent is None or parent.most_gpus is None or quota.most_gpus is None or quota.most_gpus <= parent.most_gpus:
        return
    yield "most_gpus", f"Project {quota.tenant.name} may hold {number(parent.most_gpus)} at most, and so may its workspaces."


def _of_project(quota: Quota) -> Quota | None:
    return Quota.objects.filter(project=quota.tenant, shape=quota.shape).first()


def _of_slices(project: Project, shape: str) -> QuerySet[Quota]:
    return Quota.objects.filter(slice__project=project, shape=shape).select_related("slice")


def _guaranteed(rows: QuerySet[Quota]) -> int:
    return int(rows.aggregate(n=Sum("guaranteed_gpus"))["n"] or 0)


def _title(quota: Quota) -> str:
    return f"The quota of {quota.shape} for {whose(quota)}"


def _record(
    quota: Quota, what: str, message: str, why: str, actor: User | None, now: datetime, changed: Mapping[str, Any] | None = None
) -> None:
    data: dict[str, Any] = {"project": quota.tenant.name, "shape": quota.shape}
    if quota.slice is not None:
        data["slice"] = quota.slice.name
    event_record(
        kind=f"quota.{what}",
        message=f"{message} {why}".strip(),
        at=now,
        actor=actor,
        slice_id=quota.slice_id,
        data={**data, "guaranteed_gpus": quota.guaranteed_gpus, "most_gpus": quota.most_gpus, "why": why, **(changed or {})},
    )
    for slice_id in quota.tenant.slices.values_list("pk", flat=True):
        hint(slice_topic(slice_id))
    hint(TICK)
