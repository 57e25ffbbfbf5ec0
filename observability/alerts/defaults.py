"""Holds the rules that EGS brings. An administrator may change them, or switch them off; what he changed stays."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.db import transaction

from core.locks import transaction_lock
from journal.models import Severity
from observability.alerts import signals
from observability.alerts.models import AlertRule, Direction, RuleKind, Tells
from observability.alerts.signals import xid_signal
from protocol.gpus.xids import XidAction

K, S, T = RuleKind, Severity, Tells
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def _rule(
    code: str, name: str, signal: str, kind: RuleKind, level: float, severity: Severity, tells: Tells, runbook: str, **more: Any
) -> AlertRule:
    terms = {"clear_level": level, **more}
    return AlertRule(code=code, name=name, signal=signal, kind=kind, level=level, severity=severity, tells=tells, runbook=runbook, **terms)


def _count(
    code: str, name: str, signal: str, level: float, window_s: int, severity: Severity, tells: Tells, runbook: str, hold_s: int = 0
) -> AlertRule:
    return _rule(code, name, signal, K.RATE, level, severity, tells, runbook, window_s=window_s, hold_s=hold_s)


def _xid(action: XidAction, name: str, severity: Severity, tells: Tells, runbook: str) -> AlertRule:
    return _count(f"xid-{action.replace('_', '-')}", name, xid_signal(action), 1, HOUR_S, severity, tells, runbook)


COOL: Final = "Look at the fans, the airflow and the GPUs beside it. Take load away if it goes on: hot GPUs slow down, then fail."
REPLACE: Final = "Set the node aside. EGS replaces it in its box where a spare is free. "


def default_rules() -> list[AlertRule]:
    return [
        _rule("gpu-hot", "GPU is hot", "temperature_c", K.THRESHOLD, 83, S.WARNING, T.BOTH, COOL,
              clear_level=80, severe_level=87, hold_s=2 * MINUTE_S, clear_s=2 * MINUTE_S),
        _rule("gpu-memory-hot", "GPU memory is hot", "memory_temperature_c", K.THRESHOLD, 95, S.WARNING, T.BOTH, COOL,
              clear_level=92, severe_level=105, hold_s=2 * MINUTE_S, clear_s=2 * MINUTE_S),
        _rule("gpu-power", "GPU takes more power than its board's limit", signals.POWER, K.THRESHOLD, 105, S.WARNING, T.ADMINS,
              "Check the power limit that the driver enforces, and the node's power supply.",
              clear_level=102, hold_s=5 * MINUTE_S, clear_s=2 * MINUTE_S),
        _rule("gpu-throttled", "GPU is throttled", "throttled_percent", K.THRESHOLD, 20, S.WARNING, T.BOTH,
              "It is slowed down by heat or by power. In a job of many GPUs all wait for this one.",
              clear_level=5, hold_s=5 * MINUTE_S, clear_s=5 * MINUTE_S),
        _rule("gpu-heating-up", "GPU will be too hot soon", "temperature_c", K.FORECAST, 87, S.WARNING, T.ADMINS, COOL,
              clear_level=84, window_s=30 * MINUTE_S, hold_s=15 * MINUTE_S, clear_s=5 * MINUTE_S),
        _rule("gpu-temperature-creeps", "GPU gets hotter for hours", "temperature_c", K.TREND, 10, S.INFO, T.ADMINS, COOL,
              clear_level=7, window_s=6 * HOUR_S, hold_s=10 * MINUTE_S, clear_s=10 * MINUTE_S),
        _count("ecc-uncorrected", "Uncorrected ECC errors", "ecc_uncorrected", 1, HOUR_S, S.ERROR, T.BOTH,
               f"{REPLACE}Results since the last checkpoint may be wrong."),
        _count("ecc-corrected", "Many corrected ECC errors", "ecc_corrected", 1000, HOUR_S, S.WARNING, T.ADMINS,
               "The memory gets worse. Run a long diagnosis when the node is free."),
        _count("rows-remapped", "Rows were remapped", "rows_remapped", 1, DAY_S, S.WARNING, T.ADMINS,
               "Reset the GPU when the node is free, so that the remap takes effect."),
        _count("rows-failed", "A row remap failed", "rows_failed", 1, DAY_S, S.ERROR, T.ADMINS,
               f"{REPLACE}Ask the vendor to replace the GPU."),
        _count("nvlink-errors", "NVLink errors go on", "nvlink_errors", 1, MINUTE_S, S.WARNING, T.ADMINS,
               "Look at the links and switches of these nodes. Several nodes at once point to a switch.", hold_s=5 * MINUTE_S),
        _count("pcie-replays", "PCIe replays", "pcie_replays", 9, MINUTE_S, S.WARNING, T.ADMINS,
               "Reseat the GPU or its riser when the node is free.", hold_s=2 * MINUTE_S),
        _xid(XidAction.REBOOT_NODE, "GPU fell off the bus", S.ERROR, T.BOTH, f"{REPLACE}Reboot it, then let the entry checks prove it."),
        _xid(XidAction.RESET_GPU, "GPU needs a reset", S.ERROR, T.BOTH, f"{REPLACE}Reset the GPU once it is drained."),
        _xid(XidAction.CONTACT_SUPPORT, "GPU fault for the vendor", S.ERROR, T.ADMINS, f"{REPLACE}Send the vendor the driver's report."),
        _xid(XidAction.INVESTIGATE, "GPU fault to look into", S.WARNING, T.ADMINS,
             "Look at the other Xids and at the driver's log of this time."),
        _xid(XidAction.RESTART_APP, "Workload failed on the GPU", S.INFO, T.BOX,
             "Restart the workload. If it happens again on another GPU, the program is at fault."),
        _rule("gpu-unused", "GPU is held and unused", "utilization_percent", K.THRESHOLD, 4, S.INFO, T.BOX,
              "Release the box early, or book a smaller one next time.",
              direction=Direction.BELOW, clear_level=10, hold_s=30 * MINUTE_S, clear_s=5 * MINUTE_S),
        _rule("gpu-straggles", "GPU is behind its peers", signals.BEHIND, K.THRESHOLD, 5 * MINUTE_S, S.WARNING, T.BOX,
              "All of the job wait for it. Look at its temperature, and whether it is throttled; ask an administrator for another node.",
              clear_level=1, clear_s=5 * MINUTE_S),
        _rule("gpu-saturated", "GPU is fully used", "utilization_percent", K.THRESHOLD, 98, S.INFO, T.NOBODY,
              "It has no room left.", clear_level=95, hold_s=HOUR_S, clear_s=5 * MINUTE_S, is_on=False),
        _rule("readings-absent", "No readings of GPUs", signals.READING, K.ABSENCE, 5 * MINUTE_S, S.WARNING, T.ADMINS,
              "Look at the exporter on the node, and at the agent's log.", clear_level=MINUTE_S),
        _rule("agent-silent", "Agent is silent", signals.AGENT, K.ABSENCE, 90, S.ERROR, T.NOBODY,
              "Look at the agent's pod and at its way to the hub. Boxes end on time, and nothing starts. A notice of its own tells of it.",
              clear_level=45),
        _rule("clock-skew", "Clock of an agent is wrong", signals.CLOCK, K.THRESHOLD, 5, S.WARNING, T.ADMINS,
              "Set the node's clock by NTP. Boxes end by the agent's clock.", clear_level=2, hold_s=MINUTE_S, clear_s=MINUTE_S),
        _rule("node-not-ready", "Node is not ready", signals.NOT_READY, K.THRESHOLD, 1, S.ERROR, T.ADMINS,
              "Look at its kubelet. Many nodes at once point to a switch, or to power.", hold_s=2 * MINUTE_S, clear_s=MINUTE_S),
        _rule("node-condition", "Node has a bad condition", signals.CONDITIONS, K.THRESHOLD, 1, S.WARNING, T.ADMINS,
              "The node's page says which one and why. Set it aside if its hardware is at fault.", hold_s=5 * MINUTE_S, clear_s=MINUTE_S),
        _count("failed-checks", "Node fails checks again and again", signals.CHECKS, 3, DAY_S, S.WARNING, T.ADMINS,
               "Read the logs of the steps on the node's page, and set it aside."),
        _rule("queue-wait", "A request waits for more than a day", signals.WAIT, K.THRESHOLD, DAY_S, S.INFO, T.ADMINS,
              "The page of the request says what it waits for. Quotas, supplies or a move in the queue may help."),
        _rule("promise-late", "A promised start is at risk", signals.LATE, K.THRESHOLD, 1, S.WARNING, T.ADMINS,
              "The queue's page says which cause moved it.", hold_s=2 * MINUTE_S, clear_s=MINUTE_S),
        _rule("quota-pressure", "Quota is nearly used", signals.QUOTA, K.THRESHOLD, 95, S.INFO, T.BOTH,
              "Further requests wait until some end. Ask for a larger quota if this is usual.",
              clear_level=85, hold_s=10 * MINUTE_S, clear_s=10 * MINUTE_S),
        _rule("budget-pressure", "Budget is nearly used", signals.BUDGET, K.THRESHOLD, 80, S.WARNING, T.NOBODY,
              "A notice of its own tells its people. A larger budget, or the next period, helps.", clear_level=75, severe_level=100),
        _rule("budget-forecast", "Budget will be used up in two days", signals.BUDGET, K.FORECAST, 100, S.INFO, T.BOTH,
              "Release boxes early, or ask for a larger budget.", clear_level=95, window_s=2 * DAY_S, hold_s=HOUR_S, clear_s=HOUR_S),
    ]  # fmt: skip


def defaults_ensure(*, now: datetime) -> None:
    """Makes those that are missing. Runs one query when all are there."""
    known = set(AlertRule.objects.exclude(code="").values_list("code", flat=True))
    missing = [rule for rule in default_rules() if rule.code not in known]
    if not missing:
        return
    with transaction.atomic():
        transaction_lock("egs.alerts")
        # A manifest may have brought it before: then it is that one, with the terms that it has there.
        missing = [rule for rule in missing if not _is_adopted(rule)]
        for rule in missing:
            rule.created_at = now
        AlertRule.objects.bulk_create(missing, ignore_conflicts=True)


def _is_adopted(rule: AlertRule) -> bool:
    same = AlertRule.objects.filter(code="", slice=None, name=rule.name, signal=rule.signal, kind=rule.kind)
    return bool(AlertRule.objects.filter(pk__in=same.values("pk")[:1]).update(code=rule.code))
