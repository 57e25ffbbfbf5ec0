"""Has the forms of alerts, rules and silences. The services hold the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from django import forms

from journal.models import Severity
from observability.alerts.models import RUNBOOK_MAX_CHARS, AlertRule, Direction, RuleKind, Tells
from observability.alerts.signals import SIGNALS
from portal_shared.forms.fields import PlainTextField, SpanField

NAME_MAX_CHARS, NOTE_MAX_CHARS = 80, 200
KIND_WORDS: Final = {
    RuleKind.THRESHOLD: "level",
    RuleKind.RATE: "count within a window",
    RuleKind.TREND: "change within a window",
    RuleKind.FORECAST: "forecast",
    RuleKind.ABSENCE: "nothing heard",
}


class AcknowledgeForm(forms.Form):
    note = PlainTextField(label="What you do about it", max_length=NOTE_MAX_CHARS, required=False, help_text="Others see it.")


class SilenceForm(forms.Form):
    what = forms.ChoiceField(label="What is silent")
    length = SpanField(label="For how long", max_length=40, initial="2 h", help_text="Write 90 min, 4 h or 2 d; 30 days at most.")
    reason = PlainTextField(label="Reason", max_length=NOTE_MAX_CHARS, help_text="Recorded with your name.")

    def __init__(self, *args: Any, choices: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["what"].choices = choices  # type: ignore[attr-defined]  # of a ChoiceField


class NewSilenceForm(SilenceForm):
    """`of` are the workspaces to choose from; without any it is a silence of the platform's alerts, on a cluster or node."""

    slice = forms.ChoiceField(label="Workspace")
    rule = forms.ChoiceField(label="Rule", required=False)
    cluster = forms.ChoiceField(label="Cluster", required=False)
    node = PlainTextField(label="Node", max_length=NAME_MAX_CHARS, required=False, help_text="Its name. Empty: all nodes.")

    def __init__(
        self, *args: Any, of: Sequence[tuple[str, str]], rules: Iterable[tuple[str, str]], clusters: Iterable[str], **kwargs: Any
    ) -> None:
        super().__init__(*args, choices=(), **kwargs)
        del self.fields["what"]
        choices = {"slice": of, "rule": [("", "All rules"), *rules], "cluster": [("", "All clusters"), *((one, one) for one in clusters)]}
        for name, known in choices.items():
            self.fields[name].choices = known  # type: ignore[attr-defined]
        for name in ("cluster", "node") if of else ("slice",):
            del self.fields[name]
        self.order_fields(["slice", "rule", "cluster", "node", "length", "reason"])


class RuleForm(forms.Form):
    """`watches` is `signal:kind`. `of` are the workspaces to choose from; without any it is a rule of the platform. `clusters` and `shapes`
    are names.
    """

    slice = forms.ChoiceField(label="Workspace")
    name = PlainTextField(label="Name", max_length=NAME_MAX_CHARS)
    watches = forms.ChoiceField(label="What it watches")
    direction = forms.ChoiceField(label="It fires", choices=Direction.choices, initial=Direction.ABOVE)
    level = forms.FloatField(label="Level", help_text="In the unit of its signal.")
    clear_level = forms.FloatField(
        label="It ends beyond", required=False, help_text="Empty: the level. A little apart, noise does not end it."
    )
    severe_level = forms.FloatField(label="It is an error from", required=False, help_text="Empty: never.")
    window_s = SpanField(
        label="Window", max_length=40, required=False, help_text="Counts, changes and forecasts look back so far, e.g. 1 h."
    )
    hold_s = SpanField(label="It has to last", max_length=40, required=False, help_text="Before it fires, e.g. 2 min. Empty: not at all.")
    clear_s = SpanField(label="It has to be over for", max_length=40, required=False, help_text="Before it is resolved. Empty: not at all.")
    severity = forms.ChoiceField(label="Severity", choices=Severity.choices, initial=Severity.WARNING)
    cluster = forms.ChoiceField(label="Cluster", required=False)
    shape = forms.ChoiceField(label="Shape", required=False)
    tells = forms.ChoiceField(label="Whom it tells", choices=Tells.choices, initial=Tells.ADMINS)
    is_on = forms.ChoiceField(label="Switched", choices=[("on", "On"), ("", "Off")], initial="on", required=False)
    runbook = PlainTextField(label="What to do", max_length=RUNBOOK_MAX_CHARS, required=False, help_text="Told with the alert.")

    def __init__(
        self,
        *args: Any,
        of: Sequence[tuple[str, str]],
        clusters: Iterable[str],
        shapes: Iterable[str],
        rule: AlertRule | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        for name, every, known in (("cluster", "All clusters", clusters), ("shape", "All shapes", shapes)):
            self.fields[name].choices = [("", every), *((one, one) for one in known)]  # type: ignore[attr-defined]
        is_own = bool(of) or (rule is not None and rule.slice_id is not None)
        if of:
            self.fields["slice"].choices = of  # type: ignore[attr-defined]
        left_out = {"slice"} if not of else set()
        left_out |= {"tells"} if is_own else set()
        left_out |= {"watches"} if rule is not None and rule.code else set()
        for name in left_out:
            del self.fields[name]
        if "watches" in self.fields:
            self.fields["watches"].choices = watches_choices(is_own=is_own)  # type: ignore[attr-defined]

    def clean_is_on(self) -> bool:
        return bool(self.cleaned_data["is_on"])

    def clean(self) -> dict[str, Any]:
        given = dict(super().clean() or self.cleaned_data)
        if "watches" in given:
            given["signal"], given["kind"] = given.pop("watches").split(":")
        if given.get("clear_level") is None:
            given["clear_level"] = given.get("level")
        for name in ("hold_s", "clear_s"):
            given[name] = given.get(name) or 0
        if given.get("window_s") is None:
            given.pop("window_s", None)
        return given


def watches_choices(*, is_own: bool) -> list[tuple[str, str]]:
    return [
        (f"{signal.name}:{kind}", f"{signal.label} ({KIND_WORDS[kind]}{f', {signal.unit}' if signal.unit else ''})")
        for signal in SIGNALS.values()
        if signal.is_of_box or not is_own
        for kind in signal.kinds
    ]
