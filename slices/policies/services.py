"""Makes every write to policies.

The values that hold for a workspace stand in its own row, so that nothing that reads them asks who set them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import Conflict, InvalidInput, StaleState
from core.locks import transaction_lock
from core.words import duration_exact
from inventory.selectors import shapes_known
from inventory.services.clusters import desired_set_changed
from journal.changes import difference
from journal.hints import TICK, hint, slice_topic
from journal.services import event_record
from slices.models import PLATFORM_POLICY, Life, Namespace, Policy, PolicyVersion, Project, Slice
from slices.policies.terms import TERMS, effective

Changes = dict[str, Any]
SEEN_BY_AGENTS = frozenset({"pods_max", "may_reach_out"})


def policies_lock() -> None:
    """Changes of policies and new workspaces wait for each other."""
    transaction_lock("slices.policies")


def policy_of(owner: Project | Slice | None) -> Policy:
    """`owner` None: the platform."""
    if owner is None:
        return Policy.objects.get_or_create(pk=PLATFORM_POLICY)[0]
    name = "project" if isinstance(owner, Project) else "slice"
    of: dict[str, Any] = {name: owner}
    policy, _ = Policy.objects.get_or_create(**of)
    setattr(policy, name, owner)
    return policy


@transaction.atomic
def policy_change(
    *, policy: Policy, terms: Mapping[str, Any], actor: User | None, now: datetime, why: str = "", version: int | None = None
) -> Policy:
    """Sets these terms; one that is None is inherited again. It applies to requests from now on, and ends nothing.

    Raises InvalidInput, or StaleState for another `version`.
    """
    policies_lock()
    policy.refresh_from_db(fields=["terms", "version"])
    if version is not None and version != policy.version:
        raise StaleState(f"This policy is at version {policy.version}, you gave {version}. Read it again and decide again.")
    before, after = policy.terms, merged(policy.terms, terms)
    if after == before:
        return policy
    if actor is not None:
        refuse_wider(policy, terms, actor)
    _refuse_unknown_shapes(after.get("shapes", []))
    made = PolicyVersion.objects.create(policy=policy, made_at=now, made_by=actor, why=why, before=before, terms=after)
    _apply(policy, after, made.pk)
    policy.terms, policy.version = after, made.pk
    policy.save(update_fields=["terms", "version"])
    if policy.slice is not None:
        policy.slice.refresh_from_db()
    labels = ", ".join(TERMS[name].label for name in changed_names(before, after))
    event_record(
        kind="policy.changed",
        message=f"The policy of {policy.of} was changed: {labels}. {why}".strip(),
        at=now,
        actor=actor,
        slice_id=policy.slice_id,
        data={"of": policy.of, "version": made.pk, **difference(before, after)},
    )
    return policy


def refuse_wider(policy: Policy, terms: Mapping[str, Any], actor: User) -> None:
    """A project administrator may only narrow what a workspace inherits or was granted. Raises InvalidInput for what is wider."""
    if policy.slice is None or may(actor, Verb.CHANGE, policy):
        return
    inherited = effective(policy_of(None).terms, policy_of(policy.slice.project).terms)
    granted = inherited | policy.terms
    wider = [name for name, value in terms.items() if value is not None and _is_beyond(name, value, inherited, granted)]
    if wider:
        text = "It allows more than the policy of the project. Ask an administrator of the platform."
        raise InvalidInput({name: [text] for name in wider})


def _is_beyond(name: str, value: Any, *bounds: Mapping[str, Any]) -> bool:
    return all(TERMS[name].widens(value, bound[name]) for bound in bounds)


def merged(terms: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**terms, **changes}.items() if value is not None}


def changed_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name in TERMS if before.get(name) != after.get(name)]


def effects_of(policy: Policy, terms: Mapping[str, Any]) -> Iterator[tuple[Slice, Changes]]:
    """Returns the workspaces for which something changes if the policy has these terms, and what. Raises InvalidInput. Runs two queries."""
    layers = {each.slice_id or each.project_id: each.terms for each in Policy.objects.all()}
    key = policy.slice_id or policy.project_id
    for slice_ in slices_under(policy):
        owners = (None, slice_.project_id, slice_.pk)
        old = effective(*(policy.terms if owner == key else layers.get(owner, {}) for owner in owners))
        new = effective(*(terms if owner == key else layers.get(owner, {}) for owner in owners))
        if changes := {name: value for name, value in new.items() if value != old[name]}:
            if fault := _contradiction(f"workspace {slice_.name}", new):
                raise InvalidInput({"duration_approval_s": [fault]})
            yield slice_, changes


def slices_under(policy: Policy) -> Any:
    rows = Slice.objects.exclude(life=Life.REMOVED).order_by("name")
    if policy.slice_id is not None:
        return rows.filter(pk=policy.slice_id)
    return rows if policy.project_id is None else rows.filter(project=policy.project_id)


def terms_of_new(project: Project, own: Changes) -> Changes:
    """Returns the columns of a new workspace. The caller holds the lock. Raises Conflict for policies that contradict."""
    terms = effective(policy_of(None).terms, policy_of(project).terms, own)
    if fault := _contradiction(f"a workspace of project {project.name}", terms):
        raise Conflict(f"{fault} Change the policy of the project first.")
    return terms


def policy_begin(slice_: Slice, own: Changes, *, actor: User | None, now: datetime) -> None:
    """Needs a transaction."""
    policy = Policy.objects.create(slice=slice_, terms=own)
    made = PolicyVersion.objects.create(policy=policy, made_at=now, made_by=actor, why="The workspace was made.", terms=own)
    policy.version = slice_.policy_version = made.pk
    policy.save(update_fields=["version"])
    slice_.save(update_fields=["policy_version"])


def _apply(policy: Policy, terms: Mapping[str, Any], number: int) -> None:
    alike: dict[str, tuple[Changes, list[UUID]]] = defaultdict(lambda: ({}, []))
    for slice_, changes in effects_of(policy, terms):
        alike[repr(changes)][0].update(changes)
        alike[repr(changes)][1].append(slice_.pk)
        hint(slice_topic(slice_.pk))
    for changes, ids in alike.values():
        Slice.objects.filter(pk__in=ids).update(**changes, policy_version=number)
        if SEEN_BY_AGENTS & changes.keys():
            desired_set_changed(Namespace.objects.filter(slice__in=ids).values_list("cluster", flat=True))
    hint(TICK)


def _refuse_unknown_shapes(shapes: list[str]) -> None:
    if unknown := sorted(set(shapes) - shapes_known()):
        known = ", ".join(sorted(shapes_known())) or "none yet"
        raise InvalidInput({"shapes": [f"No cluster has {', '.join(unknown)}. There are: {known}."]})


def _contradiction(where: str, terms: Mapping[str, Any]) -> str:
    """Return it as a sentence, or ""."""
    asks_s, longest_s = terms["duration_approval_s"], terms["duration_max_s"]
    if asks_s <= longest_s:
        return ""
    return f"In {where} approval would begin at {duration_exact(asks_s)}, beyond the longest duration, {duration_exact(longest_s)}."
