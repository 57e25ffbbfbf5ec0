"""Writes to templates. A slice has one default for all clusters and one for each cluster at most; the platform has none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypedDict

from django.db import IntegrityError, transaction

from accounts.models import User
from core.errors import InvalidInput, NameTaken, NotFound
from core.names import name_fault
from gpr.allocation.stored_plan import plan_lock
from gpr.jobs.spec import FIELDS as JOB_FIELDS
from gpr.jobs.spec import JobSpec, job_check
from gpr.models import Gpr, GprTemplate
from gpr.requests.spec import GprSpec, shapes_anywhere, spec_check, value_faults
from gpr.templates.fields import FIELDS, terms
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal.changes import difference, values_of
from journal.hints import TEMPLATES, hint
from journal.services import event_record
from protocol.tenancy.workloads import WorkloadKind
from slices.models import Slice

# Minimal values for fields that a template leaves open, so that only its own values are checked against policy and quotas.
MINIMAL_VALUES: dict[str, Any] = {"nodes": 1, "gpus_per_node": 1, "duration_s": 1}
# Fields that an `auto` template must give, as in objects of kind GPRTemplate (deploy/agent/kinds.yaml).
AUTO_REQUIRED: Final = ("shape", "duration_s")
NOBODYS_DEFAULT: Final = (
    "A template of the platform is for all clusters and nobody's default: a workspace makes one of its own the default."
)
ANY_IMAGE: Final = "any:1"  # where a template leaves the image open


class TemplateChange(TypedDict, total=False):
    """Missing keys stay unchanged. `asked`, `job`: the changed fields of the request and of what runs in it; None clears one."""

    name: str
    cluster: Cluster | None
    asked: dict[str, Any]
    job: dict[str, Any]
    auto: bool
    is_default: bool


@transaction.atomic
def template_create(*, slice_: Slice | None, change: TemplateChange, actor: User, now: datetime) -> GprTemplate:
    """`slice_` None: of the platform. Raises InvalidInput, OverPolicy, or NameTaken."""
    _lock(slice_)
    template = GprTemplate(slice=slice_, created_at=now)
    _apply(template, change, now)
    _store(template, actor, now, is_new=True)
    _record(template, "created", f"was made: {terms(template)}{_default_text(template)}.", actor, now)
    return template


@transaction.atomic
def template_change(*, template: GprTemplate, change: TemplateChange, actor: User, now: datetime) -> GprTemplate:
    """Raises as `template_create`, or NotFound."""
    found = _locked(template)
    before, was_default = _values(found), found.is_default
    _apply(found, change, now)
    if _values(found) == before:
        return found
    _store(found, actor, now, was_default=was_default)
    renamed = f", and is named {found.name} now" if found.name != before["name"] else ""
    changed = difference(before, _values(found))
    _record(found, "changed", f"was changed{renamed}: {terms(found)}{_default_text(found)}.", actor, now, changed, name=before["name"])
    return found


@transaction.atomic
def template_delete(*, template: GprTemplate, actor: User, now: datetime) -> None:
    """Requests that were filed from it stay."""
    plan_lock()  # no request is filed from it meanwhile
    found = _locked(template)
    # Rows are locked in one order to avoid deadlocks.
    list(Gpr.objects.select_for_update(of=("self",)).filter(template=found).order_by("pk").values_list("pk"))
    _record(found, "deleted", f"was deleted; it was {terms(found)}.", actor, now)
    was_default = found.is_default
    found.delete()
    _notify_agents(found, was_default=was_default)


def _lock(slice_: Slice | None) -> None:
    # One change of the default at a time.
    if slice_ is not None:
        list(Slice.objects.select_for_update(no_key=True).filter(pk=slice_.pk).values_list("pk"))


def _locked(template: GprTemplate) -> GprTemplate:
    """Raises NotFound when it is gone."""
    _lock(template.slice)
    rows = GprTemplate.objects.select_related("slice", "cluster").select_for_update(of=("self",), no_key=True)
    found = rows.filter(pk=template.pk).first()
    if found is None:
        raise NotFound("template")
    return found


def _apply(template: GprTemplate, change: TemplateChange, now: datetime) -> None:
    """Raises InvalidInput or OverPolicy."""
    if fault := name_fault(change.get("name", template.name)):
        raise InvalidInput({"name": [fault]})
    asked, job = {**template.asked, **change.get("asked", {})}, {**template.job, **change.get("job", {})}
    for name, value in change.items():
        setattr(template, name, value)
    template.asked = {name: asked[name] for name in FIELDS if asked.get(name) not in (None, "")}
    template.job = {name: job[name] for name in JOB_FIELDS if job.get(name) not in (None, "", [], {})}
    if all(name in {"auto", "is_default"} and not value for name, value in change.items()):
        return  # it can be switched off even if its values have become invalid
    _check_auto(template)
    _check_job(template)
    if template.slice is None:
        _check_everywhere(template)
        return
    try:
        spec_check(_minimal_spec(template), now=now)
    except InvalidInput as error:
        errors: dict[str, list[str]] = error.extra["errors"]
        raise InvalidInput({"cluster" if name == "clusters" else name: texts for name, texts in errors.items()}) from None


def _check_everywhere(template: GprTemplate) -> None:
    """A workspace's own policy judges each request that is made from it. Raises InvalidInput."""
    errors = {name: [NOBODYS_DEFAULT] for name in ("cluster", "is_default", "auto") if getattr(template, name)}
    if faults := value_faults(_minimal_spec(template)):
        errors |= {name: [text] for name, text in faults}
    shape = template.asked.get("shape")
    if shape and shape not in (known := shapes_anywhere()):
        errors["shape"] = [f"No cluster has this shape. There are {', '.join(known)}." if known else "No cluster has GPUs yet."]
    if errors:
        raise InvalidInput(errors)


def _check_auto(template: GprTemplate) -> None:
    """Raises InvalidInput."""
    if template.auto and (missing := [name for name in AUTO_REQUIRED if name not in template.asked]):
        raise InvalidInput({name: ["Automatic requests need this field: set it, or switch auto off."] for name in missing})


def _check_job(template: GprTemplate) -> None:
    """Raises InvalidInput."""
    if not template.job:
        return
    kind = template.job.get("kind")
    if kind == WorkloadKind.NOTEBOOK and template.asked.get("nodes", 1) != 1:
        raise InvalidInput({"nodes": ["A notebook runs on one node."]})
    open_ = {} if kind == WorkloadKind.MANIFEST else {"image": ANY_IMAGE}
    job_check(JobSpec(**{**open_, **template.job}))


def _minimal_spec(template: GprTemplate) -> GprSpec:
    asked = {**MINIMAL_VALUES, **template.asked}
    if not asked.get("shape"):
        asked.setdefault("min_gpu_memory_gib", 1)
    clusters = (template.cluster,) if template.cluster else ()
    return GprSpec(name=template.name, slice=template.slice or Slice(), clusters=clusters, **asked)


def _store(template: GprTemplate, actor: User, now: datetime, *, is_new: bool = False, was_default: bool = False) -> None:
    if template.is_default:
        _replace_default(template, actor, now)
    try:
        with transaction.atomic():
            template.save(force_insert=is_new)
    except IntegrityError:
        owner = f"Workspace {template.slice.name}" if template.slice else "The platform"
        raise NameTaken(f"{owner} has a template {template.name} already. Choose another name.") from None
    _notify_agents(template, was_default=was_default)


def _replace_default(template: GprTemplate, actor: User, now: datetime) -> None:
    others = GprTemplate.objects.select_related("slice").filter(slice=template.slice, cluster=template.cluster, is_default=True)
    for other in others.exclude(pk=template.pk):
        GprTemplate.objects.filter(pk=other.pk).update(is_default=False)
        changed = difference({"is_default": True}, {"is_default": False})
        _record(other, "changed", f"is no default any more: {template.name} takes its place.", actor, now, changed)


def _notify_agents(template: GprTemplate, *, was_default: bool) -> None:
    if template.slice and (template.is_default or was_default):
        desired_set_changed(template.slice.namespaces.values_list("cluster", flat=True))


def _values(template: GprTemplate) -> dict[str, Any]:
    return {**values_of(template, ("name", "asked", "job", "auto", "is_default")), "cluster": template.cluster and template.cluster.name}


def _default_text(template: GprTemplate) -> str:
    where = f" in cluster {template.cluster.name}" if template.cluster else ""
    default = f"; the default{where}" if template.is_default else ""
    return f"{default}; for pods that wait" if template.auto else default


def _record(
    template: GprTemplate, what: str, message: str, actor: User, now: datetime, changed: Mapping[str, Any] | None = None, *, name: str = ""
) -> None:
    whose = "" if template.slice else " of the platform"
    if template.slice is None:
        hint(TEMPLATES)
    event_record(
        kind=f"template.{what}",
        message=f"Template {name or template.name}{whose} {message}",
        at=now,
        actor=actor,
        slice_id=template.slice_id,
        data={"template": str(template.pk), "asked": template.asked, "job": template.job, **(changed or {})},
    )
