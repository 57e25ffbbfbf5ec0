# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from egs_client.models.shared import CheckResult, Holder


class Alert(Struct, kw_only=True):
    id: str
    name: str
    rule_id: str
    signal: str
    unit: str
    condition: str
    runbook: str
    state: str
    severity: str
    places: str
    firing_count: int
    most_count: int
    worst: float | None
    slice: str | None = None
    slice_id: str | None
    gpr: str | None = None
    gpr_id: str | None
    cluster: str | None = None
    cluster_id: str | None
    began_at: datetime
    fired_at: datetime | None
    acknowledged_at: datetime | None
    owner: str | None = None
    note: str
    resolved_at: datetime | None
    resolved_why: str
    told_at: datetime | None


class AlertRule(Struct, kw_only=True):
    id: str
    name: str
    code: str
    condition: str
    slice: str | None = None
    slice_id: str | None
    signal: str
    unit: str
    kind: str
    direction: str
    level: float
    clear_level: float
    severe_level: float | None
    window_s: int
    hold_s: int
    clear_s: int
    severity: str
    cluster: str | None = None
    cluster_id: str | None
    shape: str
    tells: str
    is_on: bool
    runbook: str
    owner: str | None = None
    created_at: datetime


class AlertSilence(Struct, kw_only=True):
    id: str
    name: str
    slice: str | None = None
    slice_id: str | None
    rule: str | None = None
    rule_id: str | None
    cluster: str | None = None
    cluster_id: str | None
    node: str | None = None
    node_id: str | None
    alert_id: str | None
    owner: str
    reason: str
    created_at: datetime
    starts_at: datetime
    ends_at: datetime


class AlertSubject(Struct, kw_only=True):
    id: str
    name: str
    subject_id: str
    state: str
    is_severe: bool
    first: float
    worst: float
    since_at: datetime
    fired_at: datetime | None
    clear_since_at: datetime | None
    over_at: datetime | None


class Carrier(Struct, kw_only=True):
    id: str
    name: str
    state: str


class Fault(Struct, kw_only=True):
    at: datetime
    gpu: int
    uuid: str
    metric: str
    value: int
    before: int
    text: str
    action: str


class Case(Struct, kw_only=True):
    id: str
    name: str
    node_id: str
    node: str
    cluster_id: str
    cluster: str
    opened_at: datetime
    cause: str
    code: str
    why: str
    state: str
    state_why: str
    action: str
    next: str
    evidence: list[Fault]
    closed_at: datetime | None
    closed_by: str | None = None
    repair_count: int


class RepairStep(Struct, kw_only=True):
    id: str
    name: str
    attempt: int
    outcome: str
    started_at: datetime
    ended_at: datetime
    blames_node: bool
    log: str
    results: list[CheckResult]


class Repair(Struct, kw_only=True):
    id: str
    name: str
    begun_at: datetime
    begun_by: str | None = None
    phase: str
    failure: str
    passed_at: datetime | None
    released_at: datetime | None
    steps: list[RepairStep]


class Preview(Struct, kw_only=True):
    """Shows the effect of an approval."""

    steps: list[str]
    why_not_now: str
    held_by: list[Holder]


class CaseDetail(Struct, kw_only=True):
    id: str
    name: str
    node_id: str
    node: str
    cluster_id: str
    cluster: str
    opened_at: datetime
    cause: str
    code: str
    why: str
    state: str
    state_why: str
    action: str
    next: str
    evidence: list[Fault]
    closed_at: datetime | None
    closed_by: str | None = None
    repair_count: int
    repairs: list[Repair]
    preview: Preview | None


class CaseLog(Struct, kw_only=True):
    id: str
    name: str
    text: str


class Config(Struct, kw_only=True):
    image: str
    arguments: list[str]
    requests: dict[str, str]
    parallelism: dict[str, int]


class Reading(Struct, kw_only=True):
    """Shows null for what was not measured. Members are told none of the counts that began before their box."""

    at: datetime
    temperature_c: int | None
    memory_temperature_c: int | None
    utilization_percent: int | None
    memory_used_mib: int | None
    power_w: int | None
    sm_clock_mhz: int | None
    tensor_percent: int | None
    memory_bandwidth_percent: int | None
    nvlink_mib_s: int | None
    pcie_mib_s: int | None
    throttled_percent: int | None
    new_faults: int | None
    xid: int | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    rows_remapped: int | None
    rows_failed: int | None
    pcie_replays: int | None
    nvlink_errors: int | None


class Hotspot(Struct, kw_only=True):
    id: str
    name: str
    index: int
    node_id: str
    node: str
    cluster_id: str
    cluster: str
    shape: str
    model: str
    is_stale: bool
    reading: Reading | None
    held_by: Holder | None


class Pod(Struct, kw_only=True):
    id: str
    uid: str
    name: str
    namespace: str
    slice_id: str
    slice: str
    cluster: str
    workload_id: str
    workload: str
    workload_kind: str
    gpr_id: str | None
    gpr: str | None = None
    node: str
    phase: str
    hold: str
    why: str
    gpu_count: int
    gpus: list[str]
    requests: dict[str, str]
    image: str
    role: str
    rank: int | None
    restarts: int
    created_at: datetime
    started_at: datetime | None
    gone_at: datetime | None


class Prometheus(Struct, kw_only=True):
    id: str
    name: str
    url: str
    auth: str
    username: str
    ca_pem: str
    matchers: str
    beyond_s: int


class PrometheusAnswer(Struct, kw_only=True):
    is_ok: bool
    text: str


class RemediationPolicy(Struct, kw_only=True):
    id: str
    name: str
    watches_faults: bool
    check_node: str
    restart_driver: str
    reset_gpus: str
    reboot_node: str
    tries_max: int
    returns_max: int
    ignored_xids: list[int]
    limits: dict[str, int]


class Workload(Struct, kw_only=True):
    id: str
    name: str
    kind: str
    api: str
    namespace: str
    slice_id: str
    slice: str
    cluster_id: str
    cluster: str
    state: str
    created_at: datetime
    ended_at: datetime | None
    model: str
    framework: str
    gprs: list[Carrier]
    pods_running: int
    pods_waiting: int
    gpus_held: int
    gpus_asked: int
    use_percent: int | None
    efficiency_percent: int | None
    held_hours: float
    used_hours: float
    wasted_hours: float
    temperature_c: int | None
    power_w: int | None
    straggler_count: int
    measured_at: datetime | None
    is_stale: bool


class WorkloadGpu(Struct, kw_only=True):
    id: str
    node: str
    index: int
    pod: str | None = None
    place: str | None = None
    is_straggler: bool
    reading: Reading | None


class WorkloadDetail(Struct, kw_only=True):
    id: str
    name: str
    kind: str
    api: str
    namespace: str
    slice_id: str
    slice: str
    cluster_id: str
    cluster: str
    state: str
    created_at: datetime
    ended_at: datetime | None
    model: str
    framework: str
    gprs: list[Carrier]
    pods_running: int
    pods_waiting: int
    gpus_held: int
    gpus_asked: int
    use_percent: int | None
    efficiency_percent: int | None
    held_hours: float
    used_hours: float
    wasted_hours: float
    temperature_c: int | None
    power_w: int | None
    straggler_count: int
    measured_at: datetime | None
    is_stale: bool
    config: Config
    gpus: list[WorkloadGpu]
