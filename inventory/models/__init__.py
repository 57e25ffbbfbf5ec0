"""Defines the tables of the app, one module for each subject. Import models from here."""

from inventory.models.clusters import DRAIN_MAX_S, AgentCredential, AgentSession, Cluster, Hub, HubAbsence, JoinToken, agent_is_live
from inventory.models.nodes import NODE_GPUS_MAX, CordonCause, Gpu, MaintenanceState, MaintenanceWindow, Node
from inventory.models.reservations import DESIRED, PHASES, Repair, Reservation, ReservationState, ReservedGpu, is_later
from inventory.models.steps import OUTCOMES, VERDICTS, CheckPolicy, CheckResult, StepResult
from inventory.models.supplies import (
    SUPPLY_GAIN_MAX_S,
    SUPPLY_GPUS_MAX,
    SUPPLY_LEAD_MAX_S,
    SUPPLY_NODES_MAX,
    Supply,
    SupplyKind,
    SupplyOrder,
    SupplyOrderState,
)
