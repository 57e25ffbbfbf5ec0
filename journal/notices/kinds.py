"""Has the table of notices: the Events of which EGS tells people, the kind of notice, and its readers.

Every kind of Event is either in TOLD or in NOT_TOLD; a test compares both with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from django.db import models

if TYPE_CHECKING:
    from journal.models.events import Event


class NoticeKind(models.TextChoices):
    """Lists the kinds that a person or a channel can choose."""

    APPROVAL_WANTED = "approval_wanted", "Approval wanted"
    DECISION = "decision", "Approved or refused"
    STARTED = "started", "Started"
    MARK = "mark", "25, 50 and 75 % of the time passed"
    ENDS_SOON = "ends_soon", "Ends soon"
    ENDED = "ended", "Ended"
    PROMISE_MOVED = "promise_moved", "Promised start moved"
    EVICTION = "eviction", "Evicted, and when it is back"
    NODE = "node", "Node failed or replaced"
    CHANGED = "changed", "Changed by somebody else"
    BOOKING = "booking", "Booking that does not fit"
    BUDGET = "budget", "GPU-hours nearly or wholly used"
    WORKSPACE = "workspace", "Invitations, members, namespaces and its end"
    ALERT = "alert", "Alerts and faults"


class To(StrEnum):
    """Names the people whom a rule names. Slices and gpr register functions in `audience` that find them."""

    REQUESTER = "requester"  # the owner of the GPR
    OWNERS = "owners"  # of the workspace
    INVITED = "invited"  # a user who is not yet in the workspace
    MEMBER = "member"  # the user whose membership changed
    APPLICANT = "applicant"  # who asked for the workspace
    APPROVERS = "approvers"  # administrators of the platform and of the GPR's project, and their deputies
    ADMINS = "admins"


@dataclass(frozen=True, slots=True)
class Rule:
    kind: NoticeKind
    to: To
    suits: Callable[[Event], bool] = lambda event: True


def _becomes(*states: str) -> Callable[[Event], bool]:
    return lambda event: event.new in states


def _is_back(event: Event) -> bool:
    return (event.old, event.new) == ("EXITING", "QUEUED")


def _is_decision(event: Event) -> bool:
    return event.old == "PENDING_APPROVAL" and event.new in {"QUEUED", "REJECTED"}


def _is_evicted(event: Event) -> bool:
    return event.new == "EXITING" and event.reason == "EVICTED"


def _is_of_workspace(event: Event) -> bool:
    return event.slice_id is not None


K = NoticeKind
# Rules of a GPR's transitions, whose first one that suits holds. Filing is not told: whoever files sees it happen.
_TRANSITION: Final = (
    Rule(K.DECISION, To.REQUESTER, _is_decision),
    Rule(K.APPROVAL_WANTED, To.APPROVERS, _becomes("PENDING_APPROVAL")),
    Rule(K.STARTED, To.REQUESTER, _becomes("ACTIVE")),
    Rule(K.EVICTION, To.REQUESTER, _is_evicted),
    Rule(K.EVICTION, To.REQUESTER, _is_back),
    Rule(K.ENDED, To.REQUESTER, _becomes("COMPLETED", "RELEASED", "FAILED", "CANCELED", "REJECTED")),
)


def _all(kind: NoticeKind, to: To, *events: str) -> dict[str, tuple[Rule, ...]]:
    return dict.fromkeys(events, (Rule(kind, to),))


_BUDGET: Final = (Rule(K.BUDGET, To.OWNERS, _is_of_workspace), Rule(K.BUDGET, To.ADMINS))
TOLD: Final[dict[str, tuple[Rule, ...]]] = {
    "gpr.created": (Rule(K.APPROVAL_WANTED, To.APPROVERS, _becomes("PENDING_APPROVAL")),),
    "gpr.transition": _TRANSITION,
    **_all(K.MARK, To.REQUESTER, "gpr.mark"),
    **_all(K.ENDS_SOON, To.REQUESTER, "gpr.ends_soon", "gpr.idle_warned"),
    **_all(K.ENDED, To.REQUESTER, "gpr.used"),
    **_all(K.APPROVAL_WANTED, To.APPROVERS, "gpr.undecided"),
    **_all(K.PROMISE_MOVED, To.REQUESTER, "promise.moved"),
    **_all(K.EVICTION, To.REQUESTER, "gpr.eviction_noticed", "gpr.eviction_put_off", "gpr.eviction_withdrawn"),
    **_all(K.EVICTION, To.REQUESTER, "gpr.job_failed", "gpr.restart_promised"),
    **_all(K.ENDED, To.REQUESTER, "job.failed", "job.refused", "job.succeeded"),
    **_all(K.NODE, To.REQUESTER, "gpr.node_failing", "gpr.node_recovered", "gpr.node_replaced", "gpr.replacement_failed"),
    **_all(K.CHANGED, To.REQUESTER, "gpr.edited", "gpr.extended", "gpr.idle_kept", "gpr.moved", "gpr.priority_changed"),
    **_all(K.BOOKING, To.OWNERS, "booking_series.refused", "booking_series.taken_up"),
    **_all(K.APPROVAL_WANTED, To.ADMINS, "slice.namespace_asked", "workspace.requested"),
    **_all(K.DECISION, To.APPLICANT, "workspace.request_approved", "workspace.request_refused"),
    **dict.fromkeys(("budget.spent", "budget.warned"), _BUDGET),
    **_all(K.WORKSPACE, To.OWNERS, "slice.namespace_approved", "slice.namespace_changed", "slice.namespace_refused"),
    **_all(K.WORKSPACE, To.OWNERS, "slice.closed", "slice.ends_soon", "slice.restored", "slice.service_account_met"),
    **_all(K.WORKSPACE, To.INVITED, "slice.member_invited"),
    **_all(K.WORKSPACE, To.MEMBER, "slice.member_set", "deputy.named", "deputy.withdrawn", "identity.groups_rest"),
    **_all(K.ALERT, To.ADMINS, "agent.cloned", "agent.heard_again", "agent.silent", "cluster.rewound", "cluster.steps_lost", "egs.fault"),
    **_all(K.ALERT, To.ADMINS, "alert.fired", "alert.grew", "alert.resolved"),
    **_all(K.ALERT, To.REQUESTER, "gpr.alert_fired", "gpr.alert_grew", "gpr.alert_resolved"),
    **_all(K.ALERT, To.OWNERS, "slice.alert_fired", "slice.alert_grew", "slice.alert_resolved"),
    **_all(K.ALERT, To.ADMINS, "gpr.exit_overdue", "node.gone", "node.gpus_lost", "planner.fault", "planner.memory", "supply.order_failed"),
    **_all(K.ALERT, To.ADMINS, "remediation.asked", "remediation.escalated", "remediation.opened", "remediation.returned"),
}
# Told by a page, by another Event beside it, or of no use to anybody who did not do it.
NOT_TOLD: Final = frozenset(
    {
        *("alert.acknowledged", "alert_rule.changed", "alert_rule.created", "alert_rule.deleted"),
        *("alert_silence.created", "alert_silence.ended"),
        *("agent.joined", "booking_series.canceled", "booking_series.created"),
        *("budget.changed", "budget.created", "budget.deleted"),
        *(
            "channel.changed",
            "channel.confirmed",
            "channel.created",
            "channel.deleted",
            "channel.delivery_retried",
            "channel.key_replaced",
            "channel.tested",
        ),
        *("check_policy.changed", "check_policy.created", "check_policy.deleted"),
        *("cluster.api_url_changed", "cluster.created", "cluster.disabled", "cluster.drain_changed", "cluster.drift", "cluster.enabled"),
        *("cluster.join_token_issued", "cluster.repairs_changed", "cluster.resumed"),
        *("gpr.claimed", "gpr.eviction_planned", "gpr.kept_place", "gpr.object_gone", "gpr.replacement_asked", "gpr.spare_entering"),
        *("job.created", "job.opened", "job.running"),
        *("maintenance.announced", "maintenance.canceled"),
        *("node.condition_bad", "node.condition_well"),
        *("node.cordoned", "node.gpus_back", "node.gpus_replaced", "node.joined", "node.not_ready", "node.ready", "node.uncordoned"),
        *("node.step_failed", "node.step_passed", "project.created", "queue.defragmented"),
        *("quota.changed", "quota.created", "quota.deleted", "reservation.force_released"),
        *("slice.clusters_changed", "slice.created", "slice.home_changed", "policy.changed"),
        *("slice.invitation_withdrawn", "slice.member_removed", "slice.service_account_added", "slice.service_account_changed"),
        "slice.service_account_deleted",
        *("slice.kubeconfig_asked", "slice.kubeconfig_closed", "slice.kubeconfig_expired", "slice.kubeconfig_failed"),
        *("slice.kubeconfig_issued", "slice.kubeconfig_read", "slice.kubeconfig_revoked"),
        *("slice.namespace_adopted", "slice.namespace_bound", "slice.namespace_left", "slice.namespace_repaired"),
        *("slice.namespace_state", "slice.namespace_unbound", "slice.namespace_withdrawn"),
        *("remediation.approved", "remediation.began", "remediation.failed", "remediation.gone", "remediation.kept", "remediation.resumed"),
        *("remediation_policy.changed", "prometheus.changed"),
        *("supply.changed", "supply.created", "supply.order_arrived", "supply.order_canceled", "supply.ordered"),
        *("template.changed", "template.created", "template.deleted"),
        *("identity.linked", "identity.unlinked"),
        *(
            "access.refused",
            "device.confirmed",
            "device.refused",
            "group.role_added",
            "group.role_removed",
            "login.ended",
            "login.opened",
            "login.refused",
        ),
        *("price.deleted", "price.set", "project.league_changed"),
        *("project.admin_added", "project.admin_removed", "project.closed", "project.end_changed", "project.restored", "project.settled"),
        *("slice.end_changed", "slice.group_added", "slice.group_removed"),
        *("token.issued", "token.revoked", "user.created", "user.disabled", "user.enabled"),
        *("slice.settled", "user.notices_changed", "user.role_changed"),
        "workspace.request_canceled",
    }
)


def rule_of(event: Event) -> Rule | None:
    return next((rule for rule in TOLD.get(event.kind, ()) if rule.suits(event)), None)


def is_for_admins_alone(rule: Rule) -> bool:
    """Other kinds that administrators are told of concern the workspace, too."""
    return rule.kind == NoticeKind.ALERT and rule.to is To.ADMINS


def kinds_for(to: To) -> list[str]:
    """Returns the kinds of Events of which nobody else is told."""
    return [kind for kind, rules in TOLD.items() if all(rule.to is to for rule in rules)]


def kinds_in_order(kinds: Collection[str]) -> list[NoticeKind]:
    """Returns kinds in the order of the table."""
    return [kind for kind in NoticeKind if kind in kinds]
