"""Defines the tables of the app, one module for each subject. Import models from here."""

from gpr.models.bookings import BookingOccurrence, BookingSeries, RepeatRule
from gpr.models.cluster_requests import ClusterRequestRecord
from gpr.models.evictions import Eviction, EvictionVictim, VictimKind, VictimOutcome
from gpr.models.gprs import (
    ENDED,
    ENDED_WELL,
    GPUS_PER_NODE_MAX,
    NODES_MAX,
    PROVISIONED,
    TRANSITIONS,
    AfterCondition,
    EndReason,
    Gpr,
    GprState,
    Nearness,
)
from gpr.models.jobs import Job, JobLog, JobOutcome, JobState, ended_well
from gpr.models.plans import AllocatorRecord, PlanChange, PlanRecord
from gpr.models.promises import Forecast, Promise, PromiseMove, PromiseOutcome, Shadow
from gpr.models.templates import GprTemplate
from gpr.models.usage import NO_WORKLOAD, IdleBox, ProjectUsage, ShapePrice, UsageDay, UsageProgress
