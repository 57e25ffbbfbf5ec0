# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct


class Accuracy(Struct, kw_only=True):
    median_error_s: float | None
    within_1min: float | None
    within_10min: float | None


class Order(Struct, kw_only=True):
    name: str
    lead_time_s: int


class Alternative(Struct, kw_only=True):
    differs: list[str]
    cluster: str
    shape: str
    node_type: str
    nodes: int
    gpus_per_node: int | None
    duration_s: int
    start_at: datetime
    wait_s: int
    sooner_s: int
    order: Order | None


class Approval(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    project: str
    owner: str
    created_at: datetime
    shape: str
    min_gpu_memory_gib: int | None
    nodes: int
    gpus_per_node: int | None
    duration_s: int
    priority: int
    may_evict: bool
    run_checks: bool
    is_booking: bool
    earliest_start_at: datetime | None
    version: int
    policy_version: int
    approval_reasons: list[str]
    decide_by_at: datetime
    why_not: str
    deputy_for: str | None


class AssignedNode(Struct, kw_only=True):
    node_id: str
    node: str
    gpus: list[str]
    phase: str
    failure: str
    is_spare: bool
    failing_at: datetime | None


class Blocker(Struct, kw_only=True):
    id: str | None
    name: str
    is_running: bool | None
    until: datetime | None
    nodes: int | None
    gpus_per_node: int | None


class BookingSeries(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    slice_id: str
    owner: str
    owner_id: str
    asked: dict[str, Any]
    first_start_at: datetime
    rule: str
    zone: str
    until_at: datetime | None
    count: int | None
    next_start_at: datetime | None
    created_at: datetime
    canceled_at: datetime | None


class Occurrence(Struct, kw_only=True):
    starts_at: datetime
    gpr_id: str | None
    state: str | None
    refusal: str
    nearest_before_at: datetime | None
    nearest_after_at: datetime | None


class BookingSeriesDetail(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    slice_id: str
    owner: str
    owner_id: str
    asked: dict[str, Any]
    first_start_at: datetime
    rule: str
    zone: str
    until_at: datetime | None
    count: int | None
    next_start_at: datetime | None
    created_at: datetime
    canceled_at: datetime | None
    occurrences: list[Occurrence]


class Budget(Struct, kw_only=True):
    id: str
    name: str
    project: str
    project_id: str
    slice: str | None = None
    slice_id: str | None = None
    shape: str
    gpu_hours: int
    period: str
    at_limit: str
    starts_at: datetime
    ends_at: datetime
    used_hours: float
    committed_hours: float
    left_hours: float
    created_at: datetime


class BulkVerdict(Struct, kw_only=True):
    id: str
    is_done: bool
    code: str
    detail: str


class BulkVerdicts(Struct, kw_only=True):
    results: list[BulkVerdict]


class Score(Struct, kw_only=True):
    """Shares are from 0 to 1. Null: there is nothing to measure, or too little to show to this reader."""

    due_count: int | None
    kept_count: int | None
    kept_share: float | None
    moved_count: int | None
    moved_share: float | None
    waited_count: int | None
    margin_p50_s: float | None
    margin_p90_s: float | None
    expected: Accuracy
    promise: Accuracy
    ranged_count: int | None
    p50_coverage: float | None
    p90_coverage: float | None
    width_p50_s: float | None


class CauseShare(Struct, kw_only=True):
    cause: str
    count: int | None
    share: float | None


class ClassScore(Struct, kw_only=True):
    length_from_s: int
    length_below_s: int | None
    is_gang: bool
    score: Score


class SpanScore(Struct, kw_only=True):
    from_at: datetime
    until_at: datetime
    score: Score


class Move(Struct, kw_only=True):
    at: datetime
    old_start_at: datetime
    new_start_at: datetime
    cause: str


class Settled(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str
    promised_start_at: datetime
    started_at: datetime | None
    settled_at: datetime
    margin_s: int
    is_kept: bool
    moves: list[Move]


class Calibration(Struct, kw_only=True):
    days: int
    since_at: datetime
    until_at: datetime
    is_cut: bool
    total: Score
    causes: list[CauseShare]
    classes: list[ClassScore]
    spans: list[SpanScore]
    last: list[Settled]
    worst: list[Settled]


class StartChange(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str
    old_start_at: datetime | None
    new_start_at: datetime | None


class Evicted(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str


class Others(Struct, kw_only=True):
    summary: str
    later_count: int
    earlier_count: int
    moved: list[StartChange]
    evicted: list[Evicted]


class DecisionPreview(Struct, kw_only=True):
    sentence: str
    old_start_at: datetime | None
    new_start_at: datetime | None
    old_position: int | None
    new_position: int | None
    others: Others | None


class Drain(Struct, kw_only=True):
    """Shows the drain settings of the cluster; see `clusters/`."""

    grace_s: int
    force_after_s: int


class Event(Struct, kw_only=True):
    id: str
    name: str
    at: datetime
    kind: str
    severity: str
    message: str
    reason: str
    old: str
    new: str
    actor: str | None = None
    gpr_id: str | None
    slice_id: str | None
    node_id: str | None
    cluster_id: str | None
    data: Any


class Victim(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    kind: str
    priority: int | None
    ends_at: datetime
    lost_gpu_s: int
    outcome: str
    outcome_at: datetime | None


class Eviction(Struct, kw_only=True):
    """The beneficiary is null for readers who may not see it. Victims are only those that the reader may see."""

    id: str
    made_at: datetime
    gpr_id: str | None
    gpr: str | None
    start_at: datetime | None
    instead_at: datetime | None
    victim_count: int | None
    victims: list[Victim]


class EvictionNotice(Struct, kw_only=True):
    ends_at: datetime
    kind: str
    why: str
    restart_at: datetime | None


class Explanation(Struct, kw_only=True):
    reason: str
    sentence: str
    blockers: list[Blocker]
    ahead_count: int


class Wait(Struct, kw_only=True):
    start_at: datetime
    p50_at: datetime
    p90_at: datetime
    basis: str


class Idleness(Struct, kw_only=True):
    since_at: datetime
    timeout_s: int
    ends_at: datetime


class Origin(Struct, kw_only=True):
    cluster: str
    namespace: str
    name: str
    requester: str
    is_auto: bool


class Gpr(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    slice_id: str
    owner: str
    owner_id: str
    shape: str
    min_gpu_memory_gib: int | None
    nodes: int
    gpus_per_node: int | None
    duration_s: int
    priority: int
    clusters: list[str]
    earliest_start_at: datetime | None
    after: str | None
    after_id: str | None
    after_condition: str
    is_booking: bool
    node_type: str
    rdma: bool
    within: str
    idle_timeout_s: int | None
    evictable: bool
    may_evict: bool
    requeue_on_failure: bool
    run_checks: bool
    model: dict[str, Any]
    state: str
    end_reason: str | None
    version: int
    approval_reasons: list[str]
    decide_by_at: datetime | None
    policy_version: int
    position: int | None
    promised_start_at: datetime | None
    at_risk: str | None
    estimate: Wait | None
    explanation: Explanation | None
    cluster: str | None
    cluster_id: str | None
    nodes_assigned: list[AssignedNode]
    created_at: datetime
    queued_at: datetime | None
    provisioning_at: datetime | None
    active_at: datetime | None
    ends_at: datetime | None
    ended_at: datetime | None
    time_left_s: float | None
    remaining_s: int
    idle: Idleness | None
    drain: Drain | None
    borrows: bool
    eviction_notice: EvictionNotice | None
    failed_jobs: list[str]
    template: str | None = None
    template_id: str | None
    origin: Origin | None


class PromiseMove(Struct, kw_only=True):
    at: datetime
    old_start_at: datetime
    new_start_at: datetime
    cause: str
    cause_id: str | None


class Replacement(Struct, kw_only=True):
    node_id: str
    node: str
    failing_at: datetime
    why: str
    outcome: str
    spare_id: str | None
    spare: str
    since_at: datetime | None
    joined_at: datetime | None
    why_not: str


class GprDetail(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    slice_id: str
    owner: str
    owner_id: str
    shape: str
    min_gpu_memory_gib: int | None
    nodes: int
    gpus_per_node: int | None
    duration_s: int
    priority: int
    clusters: list[str]
    earliest_start_at: datetime | None
    after: str | None
    after_id: str | None
    after_condition: str
    is_booking: bool
    node_type: str
    rdma: bool
    within: str
    idle_timeout_s: int | None
    evictable: bool
    may_evict: bool
    requeue_on_failure: bool
    run_checks: bool
    model: dict[str, Any]
    state: str
    end_reason: str | None
    version: int
    approval_reasons: list[str]
    decide_by_at: datetime | None
    policy_version: int
    position: int | None
    promised_start_at: datetime | None
    at_risk: str | None
    estimate: Wait | None
    explanation: Explanation | None
    cluster: str | None
    cluster_id: str | None
    nodes_assigned: list[AssignedNode]
    created_at: datetime
    queued_at: datetime | None
    provisioning_at: datetime | None
    active_at: datetime | None
    ends_at: datetime | None
    ended_at: datetime | None
    time_left_s: float | None
    remaining_s: int
    idle: Idleness | None
    drain: Drain | None
    borrows: bool
    eviction_notice: EvictionNotice | None
    failed_jobs: list[str]
    template: str | None = None
    template_id: str | None
    origin: Origin | None
    promise_moves: list[PromiseMove]
    replacements: list[Replacement]


class Insights(Struct, kw_only=True):
    promises: Calibration


class Job(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    slice_id: str
    owner: str
    owner_id: str
    gpr_id: str
    gpr_state: str
    cluster: str | None = None
    nodes: int
    run: int
    kind: str
    image: str
    command: list[str]
    env: dict[str, str]
    secrets: list[str]
    volumes: dict[str, str]
    pull_secret: str
    user_id: int
    retries: int
    checkpoint: list[str]
    manifest: list[dict[str, Any]]
    namespace: str
    releases_box: bool
    state: str
    phase: str
    message: str
    pods_running: int
    outcome: str
    created_at: datetime
    active_at: datetime | None
    ends_at: datetime | None
    finished_at: datetime | None


class LeaguePlace(Struct, kw_only=True):
    id: str
    name: str
    project: str
    place: int
    efficiency: float
    measured_hours: float


class Log(Struct, kw_only=True):
    text: str
    next: int
    dropped: bool
    is_live: bool


class Maintenance(Struct, kw_only=True):
    id: str
    name: str
    cluster: str
    cluster_id: str
    node: str | None = None
    node_id: str | None
    starts_at: datetime
    ends_at: datetime
    reason: str
    state: str
    created_at: datetime
    canceled_at: datetime | None


class Moved(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str
    owner: str
    old_start_at: datetime
    new_start_at: datetime


class Reaching(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str
    node: str
    ends_at: datetime


class MaintenanceEffects(Struct, kw_only=True):
    """It names requests of all workspaces, so administrators alone read it."""

    moved: list[Moved]
    boxes: list[Reaching]


class MaintenanceDetail(Struct, kw_only=True):
    id: str
    name: str
    cluster: str
    cluster_id: str
    node: str | None = None
    node_id: str | None
    starts_at: datetime
    ends_at: datetime
    reason: str
    state: str
    created_at: datetime
    canceled_at: datetime | None
    effects: MaintenanceEffects | None


class Moving(Struct, kw_only=True):
    gpr_id: str
    gpr: str
    slice: str
    from_nodes: list[str]
    to_nodes: list[str]
    ends_at: datetime
    frees_at: datetime
    restarts_at: datetime
    lost_gpu_s: int
    idle_gpu_s: int


class NotebookAccess(Struct, kw_only=True):
    token: str
    url: str
    cluster: str
    namespace: str
    service: str
    port: int


class Offer(Struct, kw_only=True):
    cluster: str
    shape: str
    node_type: str
    supply: str
    order: Order | None
    borrows: bool
    start_at: datetime
    wait_s: int
    promised_start_at: datetime
    p50_s: int
    p90_s: int
    basis: str
    explanation: Explanation
    alternatives: list[Alternative]


class Offers(Struct, kw_only=True):
    offers: list[Offer]
    approval_reasons: list[str]


class Policy(Struct, kw_only=True):
    id: str
    name: str
    kind: str
    project: str | None = None
    slice: str | None = None
    version: int
    own: dict[str, Any]
    effective: dict[str, Any]
    sources: dict[str, str]


class PolicyBreach(Struct, kw_only=True):
    id: str
    name: str
    slice: str
    owner: str
    state: str
    is_booking: bool
    policy_version: int
    rules: list[str]
    note: str


class PolicyPreview(Struct, kw_only=True):
    count: int
    breaches: list[PolicyBreach]


class TermChange(Struct, kw_only=True):
    term: str
    before: Any
    after: Any


class PolicyVersion(Struct, kw_only=True):
    id: int
    made_at: datetime
    made_by: str | None = None
    why: str
    changes: list[TermChange]


class Price(Struct, kw_only=True):
    id: str
    name: str
    shape: str
    from_day: str
    gpu_hour_price: str
    currency: str
    set_at: datetime
    set_by: str | None = None


class QueueRow(Struct, kw_only=True):
    id: str
    name: str
    position: int | None
    slice: str
    slice_id: str
    owner: str
    priority: int
    shape: str
    nodes: int
    gpus_per_node: int | None
    duration_s: int
    queued_at: datetime | None
    planned_start_at: datetime | None
    promised_start_at: datetime | None
    reason: str
    explanation: Explanation | None


class Quota(Struct, kw_only=True):
    id: str
    name: str
    project: str
    project_id: str
    slice: str | None = None
    slice_id: str | None = None
    shape: str
    guaranteed_gpus: int
    most_gpus: int | None
    held_gpus: int
    borrowed_gpus: int
    wanted_gpus: int
    note: str
    created_at: datetime


class Suggestion(Struct, kw_only=True):
    gpr_id: str | None = None
    gpr: str | None = None
    slice: str | None = None
    cluster: str
    shape: str
    nodes: list[str]
    freed: list[str]
    start_at: datetime
    instead_at: datetime
    cost_gpu_s: int
    value_gpu_s: int
    moves: list[Moving]
    fingerprint: str


class RoomAnswer(Struct, kw_only=True):
    fits: bool
    instead_at: datetime | None
    suggestion: Suggestion | None


class Supply(Struct, kw_only=True):
    id: str
    name: str
    cluster: str
    cluster_id: str
    kind: str
    shape: str
    gpus_per_node: int
    gpu_memory_gib: int
    node_count: int
    lead_time_s: int
    gain_s: int
    is_enabled: bool
    ordered_count: int
    arrived_count: int
    possible_count: int
    created_at: datetime


class SupplyOrder(Struct, kw_only=True):
    id: str
    name: str
    supply_id: str
    cluster: str
    cluster_id: str
    kind: str
    shape: str
    gpus_per_node: int
    gpr: str
    gpr_id: str
    state: str
    ordered_at: datetime
    order_by_at: datetime
    expected_at: datetime
    is_late: bool
    node: str | None = None
    node_id: str | None
    ended_at: datetime | None
    ended_by: str | None = None
    why: str


class Template(Struct, kw_only=True):
    id: str
    name: str
    slice: str | None = None
    slice_id: str | None
    cluster: str | None = None
    cluster_id: str | None
    is_default: bool
    auto: bool
    created_at: datetime
    shape: str | None
    min_gpu_memory_gib: int | None
    nodes: int | None
    gpus_per_node: int | None
    duration_s: int | str | None
    priority: int | None
    node_type: str | None
    rdma: bool | None
    within: str | None
    idle_timeout_s: int | str | None
    evictable: bool | None
    may_evict: bool | None
    requeue_on_failure: bool | None
    run_checks: bool | None
    kind: str | None
    image: str | None
    command: list[str] | None
    env: dict[str, str] | None
    secrets: list[str] | None
    volumes: dict[str, str] | None
    pull_secret: str | None
    user_id: int | None
    retries: int | None
    checkpoint: list[str] | None
    manifest: list[dict[str, Any]] | None
    namespace: str | None
    releases_box: bool | None


class Usage(Struct, kw_only=True):
    """GPU-hours: held is used, wasted and unmeasured time."""

    id: str
    name: str
    of: str
    since: str
    held_hours: float
    used_hours: float
    wasted_hours: float
    unmeasured_hours: float
    efficiency: float | None
    cost: str
    unpriced_hours: float
    currency: str
