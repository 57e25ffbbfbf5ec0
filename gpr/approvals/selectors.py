"""Tells who may decide on a request that waits for approval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from accounts.models import PlatformRole, User
from accounts.policy import ObjectKind, Verb, may_all
from gpr.budgets.ledger import Ledger
from gpr.models import Gpr
from gpr.requests.editing import spec_of
from gpr.requests.spec import budget_excesses, policy_breaches
from journal.models import Event
from slices.deputies.selectors import deputies_of
from slices.models import Deputy, ProjectAdmin

REACH_BEYOND_PROJECT = ("priority", "may_evict")  # fields of a Breach
OWN = "You cannot approve your own request. Ask another administrator."
CHANGED = "You have changed this request, so another administrator approves it."


@dataclass(frozen=True, slots=True)
class ApproverRights:
    """Answers what one approver may decide on. An administrator of a project decides on nothing that reaches other projects."""

    actor: User
    decides_all: bool
    project_ids: Collection[UUID]  # which he runs
    deputies: Sequence[Deputy]  # whom he replaces now
    run_by: dict[UUID, set[UUID]]  # projects by those whom he replaces

    @classmethod
    def load(cls, actor: User, *, now: datetime) -> ApproverRights:
        """Runs no query for an administrator of the platform; three for others, at most."""
        if may_all(actor, Verb.APPROVE, ObjectKind.GPR):
            return cls(actor, True, (), (), {})
        deputies = list(deputies_of(actor, now))
        run_by: dict[UUID, set[UUID]] = defaultdict(set)
        people = [actor.pk, *(each.approver_id for each in deputies)]
        for user_id, project_id in ProjectAdmin.objects.filter(user__in=people).values_list("user", "project"):
            run_by[user_id].add(project_id)
        return cls(actor, False, run_by[actor.pk], deputies, run_by)

    def whys_not(self, gprs: Sequence[Gpr], *, now: datetime) -> dict[UUID, str]:
        """Says why the approver may not approve each; empty where that is allowed."""
        if self.decides_all:
            return dict.fromkeys((gpr.pk for gpr in gprs), "")
        if not gprs:
            return {}
        ledger = Ledger.load([gpr.slice for gpr in gprs], now=now)
        edits = Event.objects.filter(gpr_id__in=[gpr.pk for gpr in gprs], kind="gpr.edited", actor=self.actor).order_by()
        changed = dict.fromkeys(edits.values_list("gpr_id", flat=True), CHANGED)
        return {gpr.pk: changed.get(gpr.pk) or self._why_not(gpr, ledger, now) for gpr in gprs}

    def why_not(self, gpr: Gpr, *, now: datetime) -> str:
        return self.whys_not([gpr], now=now)[gpr.pk]

    def deputy_for(self, gpr: Gpr) -> Deputy | None:
        """Returns the deputyship by which the actor decides; None if he needs none."""
        if self.decides_all or gpr.slice.project_id in self.project_ids:
            return None
        runs = [each for each in self.deputies if gpr.slice.project_id in self.run_by[each.approver_id]]
        own = next(iter(runs), None)
        return next((each for each in runs if each.approver_id != gpr.owner_id), self._of_platform or own)

    @property
    def _of_platform(self) -> Deputy | None:
        return next((each for each in self.deputies if each.approver.role == PlatformRole.ADMIN), None)

    def _why_not(self, gpr: Gpr, ledger: Ledger, now: datetime) -> str:
        if gpr.owner_id == self.actor.pk:
            return OWN
        if self._of_platform is not None:
            return ""
        if (deputy := self.deputy_for(gpr)) is not None and deputy.approver_id == gpr.owner_id:
            return f"{deputy.approver.name} asked for it, so none of his deputies approves it. Ask another administrator."
        spec = spec_of(gpr)
        reasons = [breach.text for breach in policy_breaches(spec) if breach.field in REACH_BEYOND_PROJECT]
        reasons += [excess.text for excess in budget_excesses(spec, ledger, now=now) if excess.budget.project_id is not None]
        if gpr.slice.may_order:
            reasons.append("Nodes may be ordered for it at their cost.")
        return f"This reaches beyond the project. {' '.join(reasons)} Ask an administrator of the platform." if reasons else ""
