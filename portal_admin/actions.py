"""Offers administrators' actions on a GPR."""

from __future__ import annotations

from dataclasses import dataclass

from gpr.approvals.services import gpr_approve, gpr_reject
from gpr.models import Gpr
from gpr.queue.decision_previews import POSSIBLE_IN, Act
from gpr.queue.decisions import gpr_evict, gpr_set_priority
from gpr.queue.moves import gpr_move
from portal_admin.forms import DecisionForm, MoveForm, PriorityForm, VerdictForm
from portal_shared.forms.questions import GprAction


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAction(GprAction):
    """The preview follows `live_field` while it is typed."""

    label: str
    key: str
    icon: str
    is_stop: bool = False
    live_field: str = ""


APPROVE = AdminAction(
    name=Act.APPROVE,
    label="Approve",
    key="a",
    states=POSSIBLE_IN[Act.APPROVE],
    form=DecisionForm,
    do=gpr_approve,
    done="{name} is in the queue",
    icon="check",
)
PRIORITY = AdminAction(
    name=Act.PRIORITY,
    label="Set priority",
    key="p",
    states=POSSIBLE_IN[Act.PRIORITY],
    form=PriorityForm,
    do=gpr_set_priority,
    done="{name} has priority {priority}",
    icon="arrows-sort",
    live_field="priority",
)
MOVE = AdminAction(
    name=Act.MOVE,
    label="Move",
    key="m",
    states=POSSIBLE_IN[Act.MOVE],
    form=MoveForm,
    do=gpr_move,
    done="{name} is moved",
    icon="arrows-up-down",
    live_field="to",
)
REJECT = AdminAction(
    name=Act.REJECT,
    label="Reject",
    key="d",
    states=POSSIBLE_IN[Act.REJECT],
    form=VerdictForm,
    do=gpr_reject,
    done="{name} is rejected",
    icon="ban",
    is_stop=True,
)
EVICT = AdminAction(
    name=Act.EVICT,
    label="Evict",
    key="e",
    states=POSSIBLE_IN[Act.EVICT],
    form=VerdictForm,
    do=gpr_evict,
    done="{name} is evicted; its nodes are being taken back",
    icon="player-eject",
    is_stop=True,
)


def actions_for(gpr: Gpr) -> list[AdminAction]:
    return [action for action in (APPROVE, PRIORITY, MOVE, REJECT, EVICT) if action.suits(gpr)]
