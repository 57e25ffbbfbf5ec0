"""Has the forms of what limits a workspace: its policy, its budgets, its end."""

from __future__ import annotations

import re
from typing import Any, Final

from django import forms
from django.http import QueryDict

from core.pages import words
from inventory.selectors import shapes_known
from portal_shared.forms.fields import DURATION_HINT, IdleField, MomentField, PlainTextField, SpanField, UnseenNumber
from slices.models import AtLimit, Period
from slices.namespaces.naming import PATTERN, PATTERN_MUST
from slices.policies.terms import PATTERNS_MAX, Term, Unit

WHY_MAX_CHARS: Final = 150
GPUS_MAX: Final = 2**31 - 1
ALL_SHAPES: Final = ("", "GPUs of all shapes")


def reason_field(hint: str, *, required: bool) -> forms.CharField:
    return PlainTextField(label="Reason", max_length=WHY_MAX_CHARS, required=required, help_text=hint)


class OptionalReasonForm(forms.Form):
    why = reason_field("Recorded with your name.", required=False)


class EndForm(forms.Form):
    ends_at = MomentField(label="End", required=False, help_text="Empty: without end.")


class CloseForm(OptionalReasonForm):
    drain = forms.ChoiceField(label="What runs", choices=[("", "Runs to its end"), ("now", "Is ended now")], required=False)
    field_order = ("drain", "why")

    def clean_drain(self) -> bool:
        return bool(self.cleaned_data["drain"])


class InheritForm(OptionalReasonForm):
    """`version` is that of the policy that the administrator saw."""

    version = UnseenNumber(min_value=0)


class TermForm(InheritForm):
    field_order = ("version", "value", "why")

    def __init__(self, data: QueryDict | None, *, term: Term, initial: dict[str, Any]) -> None:
        value = initial["value"]
        if term.unit == Unit.DURATION:
            value = words.duration_exact(value) if value else "0 s"
        elif term.unit == Unit.TIMEOUT:
            value = IdleField.typed(value)
        elif term.unit == Unit.PATTERNS:
            value = ", ".join(value)
        elif term.unit == Unit.FLAG:
            value = "yes" if value else "no"
        super().__init__(data, initial={**initial, "value": value})
        self.fields["value"] = _value_field(term)
        self.order_fields(self.field_order)
        self._term = term

    def clean_value(self) -> Any:
        value = self.cleaned_data["value"]
        if self._term.unit == Unit.FLAG:
            return value == "yes"
        if self._term.unit == Unit.PATTERNS:
            return _patterns(value)
        if self._term.unit in (Unit.DURATION, Unit.TIMEOUT) and not self._term.least <= value <= self._term.most:
            least, most = words.duration_exact(self._term.least), words.duration_exact(self._term.most)
            raise forms.ValidationError(f"Must be from {least or '0 s'} to {most}.")
        return value


def _value_field(term: Term) -> forms.Field:
    match term.unit:
        case Unit.DURATION:
            return SpanField(label=term.label, help_text=DURATION_HINT)
        case Unit.TIMEOUT:
            return IdleField(label=term.label, help_text="E.g. 2 h, or “never”.")
        case Unit.FLAG:
            return forms.ChoiceField(label=term.label, choices=[("yes", "Yes"), ("no", "No")])
        case Unit.SHAPES:
            return forms.MultipleChoiceField(label=term.label, choices=shape_choices(), required=False, help_text="None chosen: all.")
        case Unit.PATTERNS:
            return PlainTextField(
                label=term.label, required=False, max_length=2_000, help_text="Separated by commas, e.g. vision, vision-*."
            )
    return forms.IntegerField(label=term.label, min_value=term.least, max_value=term.most)


def _patterns(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > PATTERNS_MAX or not all(re.fullmatch(PATTERN, name) for name in names):
        raise forms.ValidationError(PATTERN_MUST)
    return names


class BudgetTermsForm(OptionalReasonForm):
    gpu_hours = forms.IntegerField(label="GPU-hours", min_value=1, max_value=GPUS_MAX, help_text="The most in each period.")
    starts_at = MomentField(label="From", required=False, help_text="Only for a range of dates.")
    ends_at = MomentField(label="To", required=False, help_text="Only for a range of dates.")
    at_limit = forms.ChoiceField(label="Beyond it", choices=AtLimit.choices, help_text="The fate of a request that does not fit.")
    field_order: tuple[str, ...] = ("shape", "period", "gpu_hours", "starts_at", "ends_at", "at_limit", "why")


class NewBudgetForm(BudgetTermsForm):
    shape = forms.ChoiceField(label="Shape", required=False)
    period = forms.ChoiceField(label="Period", choices=Period.choices)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["shape"].choices = [ALL_SHAPES, *shape_choices()]  # type: ignore[attr-defined]


def shape_choices() -> list[tuple[str, str]]:
    return [(shape, shape) for shape in sorted(shapes_known())]
