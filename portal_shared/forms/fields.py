"""Defines form fields with the API's rules."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, TypeVar

from django import forms
from django.utils import timezone

from core.errors import BookingDoesNotFit, EgsError, InvalidInput, NameTaken, OverPolicy
from core.names import name_fault, text_fault
from core.pages import words
from portal_shared.forms.refusals import in_zone, refusal_of

DURATION_HINT = "Write 90 min, 1h30m, 2 d or PT90M."
FormT = TypeVar("FormT", bound=forms.Form)
# Maps services' field names to form fields.
FORM_FIELDS = {
    "duration_s": "duration",
    "idle_timeout_s": "idle_timeout",
    "lead_time_s": "lead_time",
    "gain_s": "gain",
    "extra_s": "extra",
    "model": "model_parameters",
    "first_start_at": "earliest_start_at",
    "until_at": "until",
    "most_gpus": "nodes",
    "duration_max_s": "duration",
}
NEVER = "never"


class PlainTextField(forms.CharField):
    """Refuses control and invisible characters."""

    def clean(self, value: Any) -> str:
        text = str(super().clean(value))
        if fault := text_fault(text):
            raise forms.ValidationError(fault)
        return text


class CheckboxesField(forms.MultipleChoiceField):
    """Shows checkboxes; see templates/components/forms/checks.html."""

    def __init__(self, *, required: bool = False, **kwargs: Any) -> None:
        super().__init__(required=required, widget=forms.CheckboxSelectMultiple, **kwargs)


class NameField(forms.CharField):
    """Takes what may be the name of a new object."""

    def clean(self, value: Any) -> str:
        name = str(super().clean(value))
        if name and (fault := name_fault(name)):
            raise forms.ValidationError(fault)
        return name


class SpanField(forms.CharField):
    """Parses a duration to seconds."""

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return words.duration_parse(text)
        except ValueError:
            raise forms.ValidationError(DURATION_HINT) from None


class IdleField(SpanField):
    """Takes a duration, or `never`, which is 0."""

    def clean(self, value: Any) -> int | None:
        return 0 if str(value or "").strip().lower() == NEVER else super().clean(value)

    @staticmethod
    def typed(timeout_s: int | None) -> str:
        return "" if timeout_s is None else words.duration_exact(timeout_s) if timeout_s else NEVER


class _Unseen(forms.Field):
    """It is a hidden field: an invalid value counts as missing."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, widget=forms.HiddenInput, **kwargs)

    def clean(self, value: Any) -> Any:
        try:
            return super().clean(value)
        except forms.ValidationError:
            return super().clean("")


class UnseenNumber(_Unseen, forms.IntegerField):
    pass


class UnseenText(_Unseen, forms.CharField):
    pass


class UnseenMoment(_Unseen, forms.DateTimeField):
    pass


class MomentField(forms.DateTimeField):
    """The hint names the reader's time zone."""

    def __init__(self, **kwargs: Any) -> None:
        self.hint = kwargs.pop("help_text", "")
        super().__init__(widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"), **kwargs)

    def get_bound_field(self, form: Any, field_name: str) -> forms.BoundField:
        self.help_text = f"{self.hint} Time zone: {timezone.get_current_timezone_name()}.".strip()
        return super().get_bound_field(form, field_name)


def errors_placed(form: forms.Form, error: EgsError, fields: Mapping[str, str] | None = None) -> bool:
    """Add a service's error to its fields. False if it concerns none. `fields` maps service names to form names."""
    names = {**FORM_FIELDS, **(fields or {})}
    if isinstance(error, InvalidInput):
        for name, texts in error.extra["errors"].items():
            field = names.get(name, name)
            form.add_error(field if field in form.fields else None, [in_zone(text) for text in texts])
        return True
    at = next((name for name in _fields_of(error) if name in form.fields), None)
    if at is not None:
        form.add_error(at, refusal_of(error).detail)
    return at is not None


def _fields_of(error: EgsError) -> tuple[str, ...]:
    """Returns fields in order of preference."""
    match error:
        case NameTaken():
            return ("name",)
        case BookingDoesNotFit():
            return ("earliest_start_at",)
        case OverPolicy():
            limit = error.extra.get("limit", "duration")
            return (FORM_FIELDS.get(limit, limit), "extra", *(("duration",) if limit == "gpu_hours" else ()))
    return ()


def rebound(form: FormT, **changes: Any) -> FormT:
    """Returns a copy with some values changed."""
    again = copy(form)
    again.data = data = form.data.copy()  # type: ignore[attr-defined]
    for name, value in changes.items():
        data[name] = value
    again._errors, again._bound_fields_cache = None, {}  # type: ignore[attr-defined]
    return again
