from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.policy import visible_rows
from core.rest.references import one_by_id
from slices.models import PLATFORM_POLICY, Policy, ProjectAdmin
from slices.policies.terms import TERMS, Term, effective
from slices.selectors import refuse_undecided, slices_visible_to

BUILT_IN = "built-in"
# The platform's comes first, a project's before those of its workspaces.
POLICY_ORDER = ("tenant_name", "workspace_name", "id")


@dataclass(frozen=True, slots=True)
class TermLine:
    term: Term
    value: Any
    source: str  # platform, project or slice, or built-in
    is_own: bool


@dataclass(frozen=True, slots=True)
class PolicyView:
    """Shows a policy with what holds below it and where that comes from."""

    policy: Policy
    lines: tuple[TermLine, ...]


def policies_visible_to(actor: User) -> QuerySet[Policy]:
    """Members see those of their workspaces, administrators of a project also the project's."""
    rows = Policy.objects.select_related("project", "slice__project").annotate(
        tenant_name=Coalesce("project__name", "slice__project__name", Value("")), workspace_name=Coalesce("slice__name", Value(""))
    )
    own = Q(slice__in=slices_visible_to(actor))
    if not actor.bound_to:
        own |= Q(project__in=ProjectAdmin.objects.filter(user=actor).values("project"))
    return visible_rows(rows, actor, own)


def policy_for(actor: User, policy_id: str | UUID) -> Policy:
    """Raises NotFound."""
    return one_by_id(policies_visible_to(actor), policy_id, what="policy")


def policy_decided_by(actor: User, policy_id: str | UUID) -> Policy:
    """Raises NotFound or NotAllowed."""
    policy = policy_for(actor, policy_id)
    refuse_undecided(actor, policy)
    return policy


def policy_views(policies: Iterable[Policy]) -> list[PolicyView]:
    """Runs one query."""
    shown = list(policies)
    projects = {policy.slice.project_id for policy in shown if policy.slice}
    above = {policy.project_id: policy for policy in Policy.objects.filter(Q(pk=PLATFORM_POLICY) | Q(project__in=projects))}
    return [PolicyView(policy, _lines(policy, above)) for policy in shown]


def kind_of(policy: Policy) -> str:
    return "slice" if policy.slice_id else "project" if policy.project_id else "platform"


def _lines(policy: Policy, above: dict[UUID | None, Policy]) -> tuple[TermLine, ...]:
    over = [None, policy.slice.project_id] if policy.slice else [None] if policy.project_id else []
    layers = [*(above[owner] for owner in over if owner in above), policy]
    values = effective(*(layer.terms for layer in layers))
    sources = dict.fromkeys(TERMS, BUILT_IN) | {name: kind_of(layer) for layer in layers for name in layer.terms}
    return tuple(TermLine(term, values[name], sources[name], name in policy.terms) for name, term in TERMS.items())
