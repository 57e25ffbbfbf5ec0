"""Check policies; the limits themselves are in protocol.nodes.check_limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict
from uuid import UUID

from django.db import IntegrityError, transaction

from accounts.models import User
from core.errors import Conflict, InvalidInput, NotFound
from core.written_sql import WrittenQuery
from inventory.models import CheckPolicy, Node
from inventory.services.clusters import desired_set_changed
from journal.changes import difference, values_of
from journal.services import event_record
from protocol.nodes import checks
from protocol.nodes.check_limits import IMAGES, LIMITS, amount
from protocol.nodes.steps import OPTIONAL
from protocol.references import is_image, is_object_name

OBJECTS: Final = {"storage_class": "storage class", "runtime_class": "runtime class", "pull_secret": "Secret in egs-system"}
_POLICIES: Final = WrittenQuery(CheckPolicy.objects.order_by("shape"), key="cluster__id")
SUBNET: Final = re.compile(r"([0-9a-f]{4}:){3}[0-9a-f]{4}", re.ASCII)


class CheckPolicyChange(TypedDict, total=False):
    limits: dict[str, float]
    images: dict[str, str]
    skipped_steps: list[str]
    storage_class: str
    rdma_subnet: str
    runtime_class: str
    pull_secret: str


@transaction.atomic
def check_policy_create(*, policy: CheckPolicy, actor: User, now: datetime) -> CheckPolicy:
    """Raises InvalidInput, or Conflict for a second policy of the shape."""
    _check(policy)
    policy.created_at = now
    try:
        with transaction.atomic():
            policy.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is a check policy for {policy.name} already. Change that one.") from None
    _record_event(policy, "created", f"Checks of {policy.name} were set: {terms(policy)}.", actor, now)
    return policy


@transaction.atomic
def check_policy_change(*, policy: CheckPolicy, change: CheckPolicyChange, actor: User, now: datetime, why: str = "") -> CheckPolicy:
    """Applies to later checks. Raises InvalidInput, NotFound."""
    found = _locked(policy)
    old, before = terms(found), values_of(found, change)
    for name, value in change.items():
        setattr(found, name, value)
    if terms(found) == old:
        return found
    _check(found)
    found.save()
    because = f" Reason: {why}" if why else ""
    text = f"Checks of {found.name} were changed: {terms(found)}; before: {old}.{because}"
    _record_event(found, "changed", text, actor, now, difference(before, change))
    return found


@transaction.atomic
def check_policy_delete(*, policy: CheckPolicy, actor: User, now: datetime, why: str = "") -> None:
    found = _locked(policy)
    because = f" Reason: {why}" if why else ""
    _record_event(found, "deleted", f"Checks of {found.name} are EGS's own again; they were: {terms(found)}.{because}", actor, now)
    found.delete()


def terms(policy: CheckPolicy) -> str:
    """Returns e.g. `nccl_bandwidth 430, image of nccl a/b:1, without storage`."""
    said = [f"{name} {amount(value)}" for name, value in sorted(policy.limits.items())]
    said += [f"image of {name} {image}" for name, image in sorted(policy.images.items())]
    said += [f"storage class {policy.storage_class}"] if policy.storage_class else []
    said += [f"RDMA subnet {policy.rdma_subnet}"] if policy.rdma_subnet else []
    said += [f"runtime class {policy.runtime_class}"] if policy.runtime_class else []
    said += [f"pull secret {policy.pull_secret}"] if policy.pull_secret else []
    said += [f"without {', '.join(policy.skipped_steps)}"] if policy.skipped_steps else []
    return ", ".join(said) or "nothing differs"


def policies_by_shape(*, cluster_id: UUID) -> Callable[[str], checks.CheckPolicy]:
    """Maps a shape to its policy. Runs one query."""
    rows = _POLICIES([cluster_id])
    return lambda shape: _merged([row for row in rows if row.shape in ("", shape)])


def skipped_steps_by_node(*, cluster_ids: Collection[UUID]) -> Callable[[Node], frozenset[str]]:
    """Maps a node to the steps that its checks skip. Runs one query."""
    rows = _POLICIES(cluster_ids)
    return lambda node: frozenset(
        step for row in rows if row.cluster_id == node.cluster_id and row.shape in ("", node.shape) for step in row.skipped_steps
    )


def _merged(rows: Iterable[CheckPolicy]) -> checks.CheckPolicy:
    """Later rows take precedence."""
    told = checks.CheckPolicy()
    for row in rows:
        told = checks.CheckPolicy(
            limits={**told.limits, **{name: float(value) for name, value in row.limits.items()}},
            images={**told.images, **row.images},
            storage_class=row.storage_class or told.storage_class,
            rdma_subnet=row.rdma_subnet or told.rdma_subnet,
            runtime_class=row.runtime_class or told.runtime_class,
            pull_secret=row.pull_secret or told.pull_secret,
        )
    return told


def _locked(policy: CheckPolicy) -> CheckPolicy:
    """Raises NotFound when it was deleted meanwhile."""
    found = CheckPolicy.objects.select_for_update(of=("self",)).select_related("cluster").filter(pk=policy.pk).first()
    if found is None:
        raise NotFound("check policy")
    return found


def _check(policy: CheckPolicy) -> None:
    """Raises InvalidInput."""
    errors = {f"limits.{name[:63]}": [fault] for name, value in policy.limits.items() if (fault := _limit_fault(name, value))}
    errors |= {f"images.{name[:63]}": [fault] for name, image in policy.images.items() if (fault := _image_fault(name, image))}
    if faults := _step_faults(policy.skipped_steps):
        errors["skipped_steps"] = faults
    for field, kind in OBJECTS.items():
        if (name := getattr(policy, field)) and not is_object_name(name):
            errors[field] = [f"Must be the name of a {kind}: a-z, 0-9, - and dots."]
    if policy.rdma_subnet and not SUBNET.fullmatch(policy.rdma_subnet):
        errors["rdma_subnet"] = ["Must be the first half of a GID in full, as fe80:0000:0000:0000."]
    if len(policy.shape) > 63 or policy.shape != policy.shape.strip():
        errors["shape"] = ["Must have at most 63 characters, and no space around them."]
    if errors:
        raise InvalidInput(errors)


def _limit_fault(name: str, value: Any) -> str:
    limit = LIMITS.get(name)
    if limit is None:
        return f"There is no limit {name[:63]}; there are {', '.join(LIMITS)}."
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= limit.highest:
        return f"{name} must be a number from 0 to {limit.highest:,.0f}{f' {limit.unit}' if limit.unit else ''}."
    return ""


def _image_fault(name: str, image: Any) -> str:
    if name not in IMAGES:
        return f"There is no image {name[:63]}; there are {', '.join(IMAGES)}."
    if not isinstance(image, str) or not is_image(image):
        return f"That of {name} must be the reference of an image, as registry.example/team/{name}:1.0."
    return ""


def _step_faults(steps: list[str]) -> list[str]:
    unknown = [step for step in steps if step not in OPTIONAL]
    return [f"{', '.join(unknown)[:200]} cannot be left out; these can: {', '.join(OPTIONAL)}."] if unknown else []


def _record_event(policy: CheckPolicy, verb: str, text: str, actor: User, now: datetime, changed: Mapping[str, Any] | None = None) -> None:
    data = {"shape": policy.shape, **(changed or {})}
    event_record(kind=f"check_policy.{verb}", message=text, at=now, actor=actor, cluster_id=policy.cluster_id, data=data)
    desired_set_changed([policy.cluster_id])
