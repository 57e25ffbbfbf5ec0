"""Makes every write of people to alerts, rules and silences. They take the lock of the step that judges, so that neither undoes the
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from django.db import transaction

from accounts.models import User
from core.errors import Conflict, InvalidInput, NotFound
from core.locks import transaction_lock
from core.words import utc
from gpr.requests.spec import shapes_of
from inventory.models import Cluster, Node
from inventory.selectors import shapes_known
from journal.changes import difference, values_of
from journal.hints import ALERTS, hint, slice_topic
from journal.services import event_record
from observability.alerts.evaluation import LOCK
from observability.alerts.models import (
    HOLD_MOST_S,
    WINDOW_LEAST_S,
    WINDOW_MOST_S,
    Alert,
    AlertRule,
    AlertSilence,
    AlertState,
    Direction,
    RuleKind,
    Tells,
)
from observability.alerts.signals import SIGNALS
from observability.alerts.telling import condition_words
from slices.models import Slice

RULES_MOST: Final = 50  # of a workspace
SILENCES_MOST: Final = 100  # of a workspace, and of the platform; those that are not over
SILENCE_MOST: Final = timedelta(days=30)
SILENCE_AHEAD_MOST: Final = timedelta(days=366)


class RuleTerms(TypedDict, total=False):
    name: str
    signal: str
    kind: str
    direction: str
    level: float
    clear_level: float
    severe_level: float | None
    window_s: int
    hold_s: int
    clear_s: int
    severity: str
    cluster: Cluster | None
    shape: str
    tells: str
    is_on: bool
    runbook: str


@transaction.atomic
def rule_create(*, slice_: Slice | None, terms: RuleTerms, actor: User, now: datetime) -> AlertRule:
    """Raises InvalidInput, and Conflict when the workspace has too many. `slice_` None: a rule of the platform."""
    transaction_lock(LOCK)
    if slice_ is not None and AlertRule.objects.filter(slice=slice_).count() >= RULES_MOST:
        raise Conflict(f"A workspace has {RULES_MOST} rules at most. Delete one of them.")
    given: dict[str, Any] = {"tells": Tells.BOX if slice_ is not None else Tells.ADMINS, **terms}
    given.setdefault("clear_level", given["level"])
    rule = AlertRule(slice=slice_, owner=actor, created_at=now, **given)
    _check(rule)
    _check_shape(rule)
    rule.save(force_insert=True)
    _record_rule(rule, "created", f"The alert rule {rule.name} was made: {condition_words(rule)}.", actor, now)
    return rule


@transaction.atomic
def rule_change(*, rule: AlertRule, terms: RuleTerms, actor: User, now: datetime) -> AlertRule:
    """Raises InvalidInput and NotFound. Its firing alerts go on, and end by the new terms."""
    transaction_lock(LOCK)
    found = AlertRule.objects.select_related("slice", "cluster", "owner").filter(pk=rule.pk).first()
    if found is None:
        raise NotFound("alert rule")
    changed = {name: value for name, value in terms.items() if getattr(found, name) != value}
    if not changed:
        return found
    before = values_of(found, changed)
    for name, value in changed.items():
        setattr(found, name, value)
    if found.code and {"signal", "kind"} & changed.keys():
        raise InvalidInput({name: ["You cannot change the signal of a rule of EGS."] for name in ("signal", "kind") if name in changed})
    _check(found)
    if "shape" in changed:
        _check_shape(found)
    found.save(update_fields=[*changed])
    state = "" if found.is_on else " It is off."
    text = f"The alert rule {found.name} was changed: {condition_words(found)}.{state}"
    _record_rule(found, "changed", text, actor, now, difference(before, changed))
    return found


@transaction.atomic
def rule_delete(*, rule: AlertRule, actor: User, now: datetime) -> None:
    """Raises Conflict for a rule of EGS. Its alerts go with it."""
    transaction_lock(LOCK)
    if rule.code:
        raise Conflict("A rule that EGS brings cannot be deleted. Switch it off.")
    AlertRule.objects.filter(pk=rule.pk).delete()
    _record_rule(rule, "deleted", f"The alert rule {rule.name} was deleted.", actor, now)


@transaction.atomic
def alert_acknowledge(*, alert: Alert, actor: User, now: datetime, note: str = "") -> Alert:
    """The actor takes care of it. Raises Conflict when it does not fire."""
    transaction_lock(LOCK)
    rows = Alert.objects.filter(pk=alert.pk, state__in=[AlertState.FIRING, AlertState.ACKNOWLEDGED])
    if not rows.update(state=AlertState.ACKNOWLEDGED, owner=actor, acknowledged_at=now, note=note):
        raise Conflict("This alert does not fire now.")
    says = f" {note}" if note else ""
    event_record(
        kind="alert.acknowledged",
        message=f"{actor.name} takes care of the alert {alert.rule.name}: {alert.places}.{says}",
        at=now,
        actor=actor,
        gpr_id=alert.gpr_id,
        slice_id=alert.slice_id,
        cluster_id=alert.cluster_id,
        data={"alert": str(alert.pk)},
    )
    _hint(alert.slice)
    return Alert.objects.select_related("rule", "slice", "gpr", "cluster", "owner").get(pk=alert.pk)


@transaction.atomic
def silence_create(
    *,
    slice_: Slice | None,
    ends_at: datetime,
    reason: str,
    actor: User,
    now: datetime,
    starts_at: datetime | None = None,
    rule: AlertRule | None = None,
    cluster: Cluster | None = None,
    node: Node | None = None,
    alert: Alert | None = None,
) -> AlertSilence:
    """Raises InvalidInput, and Conflict when there are too many. An omitted field matches everything; a silence of the platform has to name
    something.
    """
    transaction_lock(LOCK)
    if AlertSilence.objects.filter(slice=slice_, ends_at__gt=now).count() >= SILENCES_MOST:
        raise Conflict(f"There are {SILENCES_MOST} silences that are not over. End one of them.")
    begin = starts_at or now
    faults: dict[str, list[str]] = {}
    if ends_at <= max(begin, now):
        faults["ends_at"] = ["Must be later than now, and than the start."]
    elif ends_at - begin > SILENCE_MOST:
        faults["ends_at"] = [f"A silence lasts {SILENCE_MOST.days} days at most."]
    if begin > now + SILENCE_AHEAD_MOST:
        faults["starts_at"] = [f"Must be within {SILENCE_AHEAD_MOST.days} days from now."]
    if slice_ is None and not (rule or cluster or node or alert):
        faults["rule"] = ["Name a rule, a cluster, a node or an alert to silence."]
    if alert is not None and alert.slice_id != (slice_.pk if slice_ else None):
        faults["alert"] = ["It is not an alert of these people."]
    if faults:
        raise InvalidInput(faults)
    silence = AlertSilence(slice=slice_, owner=actor, rule=rule, cluster=cluster, node=node, alert=alert)
    silence.reason, silence.created_at, silence.starts_at, silence.ends_at = reason, now, begin, ends_at
    silence.save(force_insert=True)
    message = f"{actor.name} silenced {silence_words(silence)} until {utc(ends_at)}: {reason}"
    slice_id = slice_.pk if slice_ else None
    event_record(kind="alert_silence.created", message=message, at=now, actor=actor, slice_id=slice_id, data={"silence": str(silence.pk)})
    _hint(slice_)
    return silence


@transaction.atomic
def silence_end(*, silence: AlertSilence, actor: User, now: datetime) -> None:
    """Raises Conflict when it is over."""
    rows = AlertSilence.objects.filter(pk=silence.pk, ends_at__gt=now)
    if not rows.update(ends_at=max(now, silence.starts_at)):
        raise Conflict("This silence is over.")
    message = f"{actor.name} ended the silence of {silence_words(silence)}."
    event_record(kind="alert_silence.ended", message=message, at=now, actor=actor, slice_id=silence.slice_id)
    _hint(silence.slice)


def silence_words(silence: AlertSilence) -> str:
    """Returns e.g. `alerts of the rule GPU is hot on node n-1`."""
    if silence.alert is not None:
        return f"the alert {silence.alert.rule.name}: {silence.alert.places}"
    rule = f" of the rule {silence.rule.name}" if silence.rule is not None else ""
    cluster = f" in cluster {silence.cluster.name}" if silence.cluster is not None else ""
    node = f" on node {silence.node.name}" if silence.node is not None else ""
    whose = f" of workspace {silence.slice.name}" if silence.slice is not None else ""
    return f"{'alerts' if rule or cluster or node else 'all alerts'}{rule}{cluster}{node}{whose}"


def _check(rule: AlertRule) -> None:
    """Raises InvalidInput."""
    signal = SIGNALS.get(rule.signal)
    if signal is None or (rule.slice_id is not None and not signal.is_of_box):
        known = ", ".join(one.name for one in SIGNALS.values() if rule.slice_id is None or one.is_of_box)
        raise InvalidInput({"signal": [f"There is no such signal here. There are: {known}."]})
    faults: dict[str, list[str]] = {}
    if rule.kind not in signal.kinds:
        faults["kind"] = [f"For {signal.name} it may be: {', '.join(signal.kinds)}."]
    if rule.kind in (RuleKind.RATE, RuleKind.ABSENCE) and (rule.direction != Direction.ABOVE or rule.level <= 0):
        faults["level"] = ["Must be more than 0, with the direction above."]
    if not rule.is_clear_beyond_level():
        faults["clear_level"] = [f"Must be {'at most' if rule.direction == Direction.ABOVE else 'at least'} the level."]
    if rule.severe_level is not None and not rule.is_worse(rule.severe_level, rule.level):
        faults["severe_level"] = ["Must be worse than the level."]
    if not WINDOW_LEAST_S <= rule.window_s <= WINDOW_MOST_S:
        faults["window_s"] = [f"Must be from {WINDOW_LEAST_S} to {WINDOW_MOST_S}."]
    for name in ("hold_s", "clear_s"):
        if getattr(rule, name) > HOLD_MOST_S:
            faults[name] = [f"Must be {HOLD_MOST_S} at most."]
    if rule.slice_id is not None and rule.tells != Tells.BOX:
        faults["tells"] = ["A rule of a workspace tells its people."]
    if faults:
        raise InvalidInput(faults)


def _check_shape(rule: AlertRule) -> None:
    """A rule of a shape that nobody has would never fire. Raises InvalidInput."""
    known = shapes_of(rule.slice) if rule.slice is not None else sorted(shapes_known())
    if rule.shape and rule.shape not in known:
        raise InvalidInput({"shape": [f"There is no such shape here. There are: {', '.join(known) or 'none yet'}."]})


def _record_rule(rule: AlertRule, what: str, message: str, actor: User, now: datetime, changed: Mapping[str, Any] | None = None) -> None:
    event_record(
        kind=f"alert_rule.{what}",
        message=message,
        at=now,
        actor=actor,
        slice_id=rule.slice_id,
        data={"rule": str(rule.pk), "code": rule.code, **(changed or {})},
    )
    _hint(rule.slice)


def _hint(slice_: Slice | None) -> None:
    hint(slice_topic(slice_.pk) if slice_ is not None else ALERTS)
