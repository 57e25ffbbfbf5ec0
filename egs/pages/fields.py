"""Form fields that both portals use; the rules are the API's."""

from __future__ import annotations

from typing import Any

from django import forms
from rest_framework.exceptions import APIException

from egs.rest.fields import Text


class PlainTextField(forms.CharField):
    """One line, without control or invisible characters: it is shown to others."""

    def clean(self, value: Any) -> str:
        text = str(super().clean(value))
        try:
            return str(Text(allow_blank=True).run_validation(text))
        except APIException:
            raise forms.ValidationError("Must not hold control or invisible characters.") from None
