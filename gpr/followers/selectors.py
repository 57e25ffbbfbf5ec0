"""Finds predecessors and followers, limited to what the reader may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from accounts.models import User
from core.errors import Conflict, InvalidInput, NotFound
from core.rest.references import id_of
from gpr.models import ENDED, AfterCondition, Gpr, Job, ended_well
from gpr.requests.selectors import gpr_for, gprs_visible_to, names_visible_to
from gpr.requests.spec import GprSpec
from planner.explain import STRANGER
from slices.models import Membership, Slice

FOLLOWERS_MAX = 20
CHAIN_MAX = 10  # each plan goes through a chain once, and a failure at its head moves all of it


def predecessor_for(actor: User, reference: str, *, slice_: Slice) -> Gpr:
    """Finds it by id, or by its name: first among those that have not ended, and in the workspace itself.

    Raises NotFound, Conflict for an ambiguous name, or InvalidInput for one of an unrelated workspace.
    """
    found = gpr_for(actor, reference) if id_of(reference) else _by_name(actor, reference, slice_)
    is_near = found.slice.project_id == slice_.project_id or Membership.objects.filter(slice=found.slice_id, user=actor).exists()
    if not is_near:
        text = "A request starts after one of its own project, or of a workspace of which you are a member."
        raise InvalidInput({"after": [f"{found.name} is of another project. {text}"]})
    return found


def _by_name(actor: User, name: str, slice_: Slice) -> Gpr:
    rows = gprs_visible_to(actor).filter(name=name) if "\x00" not in name else Gpr.objects.none()
    going = rows.exclude(state__in=ENDED)
    for some in (going.filter(slice=slice_), going):
        found = list(some[:2])
        if len(found) > 1:
            raise Conflict("There is more than one GPR of this name. Give its id.")
        if found:
            return found[0]
    ended = rows.filter(slice=slice_).order_by("-created_at").first()
    if ended is None:
        raise NotFound("GPR")
    return ended


def refuse_chain(spec: GprSpec, *, edited: Gpr | None = None) -> None:
    """Raises InvalidInput for a condition without a predecessor, a chain that is closed or too long, or a predecessor that ended badly."""
    after = spec.after
    if after is None:
        if spec.after_condition != AfterCondition.ANY:
            raise InvalidInput({"after_condition": ["It says how the request named in `after` has to end, so name one there."]})
        return
    if spec.after_condition == AfterCondition.SUCCESS and after.state in ENDED and not ended_well(after.state, _outcome(after)):
        raise InvalidInput({"after": [f"{after.name} has ended already without success."]})
    before = [] if after.state in ENDED else _chain_before(after)
    if edited is not None and edited.pk in before:
        raise InvalidInput({"after": ["It cannot start after itself, nor after one that starts after it."]})
    if len(before) + 1 + (_depth_behind(edited) if edited is not None else 0) > CHAIN_MAX:
        raise InvalidInput({"after": [f"At most {CHAIN_MAX} requests may wait one after the other."]})


def _outcome(gpr: Gpr) -> str | None:
    job: Job | None = getattr(gpr, "job", None)
    return job.outcome if job else None


def _chain_before(after: Gpr) -> list[UUID]:
    found, next_id = [after.pk], after.after_id
    while next_id is not None and len(found) <= CHAIN_MAX:
        row = Gpr.objects.filter(pk=next_id).exclude(state__in=ENDED).values_list("pk", "after_id").first()
        next_id = None if row is None else row[1]
        found += [] if row is None else [row[0]]
    return found


def starts_after(follower_id: str, gpr: Gpr) -> bool:
    """Tell whether it waits for the end of `gpr`, directly or through others."""
    follower = Gpr.objects.filter(pk=follower_id).exclude(after=None).select_related("after").first()
    return follower is not None and follower.after is not None and gpr.pk in _chain_before(follower.after)


def _depth_behind(gpr: Gpr) -> int:
    depth, level = 0, {gpr.pk}
    while level and depth <= CHAIN_MAX:
        level = set(Gpr.objects.filter(after__in=level).exclude(state__in=ENDED).values_list("pk", flat=True))
        depth += bool(level)
    return depth


@dataclass(frozen=True, slots=True)
class Predecessor:
    """Holds the part of a predecessor that the reader may know: no name and no id of one that he may not see."""

    name: str = STRANGER
    id: UUID | None = None


def predecessors_of(gprs: Iterable[Gpr], *, actor: User) -> dict[UUID, Predecessor]:
    """Returns predecessors by id of the follower. Runs no query where none follows."""
    after = {gpr.pk: str(gpr.after_id) for gpr in gprs if gpr.after_id is not None}
    names = names_visible_to(actor, set(after.values()))
    return {pk: Predecessor(names[id_], UUID(id_)) if id_ in names else Predecessor() for pk, id_ in after.items()}


def followers_of(gpr: Gpr, *, actor: User) -> list[Gpr]:
    """Returns the requests that wait for its end."""
    return list(gprs_visible_to(actor).filter(~Q(state__in=ENDED), after=gpr).order_by("created_at", "pk")[:FOLLOWERS_MAX])
