"""Offers administrators' actions on a GPR."""

from __future__ import annotations

from dataclasses import dataclass

from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.models import Gpr, GprState
from gpr.queue.decisions import gpr_evict, gpr_set_priority
from gpr.queue.moves import gpr_move
from portal_admin.forms import DecisionForm, MoveForm, PriorityForm, VerdictForm
from portal_shared.forms.questions import GprAction

WAITS = frozenset({GprState.QUEUED, GprState.PENDING_APPROVAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAction(GprAction):
    """The preview follows `live_field` while it is typed."""

    label: str
    key: str
    icon: str
    is_stop: bool = False
    live_field: str = ""


APPROVE = AdminAction(
    name="approve",
    label="Approve",
    key="a",
    states=frozenset({GprState.PENDING_APPROVAL}),
    form=DecisionForm,
    do=gpr_approve,
    done="{name} is in the queue",
    icon="check",
)
PRIORITY = AdminAction(
    name="priority",
    label="Set priority",
    key="p",
    states=WAITS,
    form=PriorityForm,
    do=gpr_set_priority,
    done="{name} has priority {priority}",
    icon="arrows-sort",
    live_field="priority",
)
MOVE = AdminAction(
    name="move",
    label="Move",
    key="m",
    states=frozenset({GprState.QUEUED}),
    form=MoveForm,
    do=gpr_move,
    done="{name} is moved",
    icon="arrows-up-down",
    live_field="to",
)
REJECT = AdminAction(
    name="reject",
    label="Reject",
    key="d",
    states=WAITS,
    form=VerdictForm,
    do=gpr_reject,
    done="{name} is rejected",
    icon="ban",
    is_stop=True,
)
EVICT = AdminAction(
    name="evict",
    label="Evict",
    key="e",
    states=frozenset({GprState.PROVISIONING, GprState.ACTIVE}),
    form=VerdictForm,
    do=gpr_evict,
    done="{name} is evicted; its nodes are being taken back",
    icon="player-eject",
    is_stop=True,
)


def actions_for(gpr: Gpr) -> list[AdminAction]:
    return [action for action in (APPROVE, PRIORITY, MOVE, REJECT, EVICT) if action.suits(gpr)]
