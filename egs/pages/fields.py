"""Form fields that both portals use; the rules are the API's."""

from __future__ import annotations

from typing import Any

from django import forms

from egs.names import text_fault
from egs.pages import words

DURATION_HINT = "Write 90 min, 1h30m, 2 d or PT90M."


class PlainTextField(forms.CharField):
    """One line, without control or invisible characters: it is shown to others."""

    def clean(self, value: Any) -> str:
        text = str(super().clean(value))
        if fault := text_fault(text):
            raise forms.ValidationError(fault)
        return text


class SpanField(forms.CharField):
    """A length of time as people write it; seconds."""

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return words.duration_parse(text)
        except ValueError:
            raise forms.ValidationError(DURATION_HINT) from None
