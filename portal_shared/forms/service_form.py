"""This is the base of forms whose rules a service holds."""

from __future__ import annotations

from typing import Any

from django import forms

from core.errors import EgsError
from portal_shared.forms.fields import errors_placed
from portal_shared.forms.refusals import refusal_of


class ServiceForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "name" in self.fields and not self.is_bound:
            self.fields["name"].widget.attrs["autofocus"] = True

    def refuse(self, error: EgsError) -> None:
        if not errors_placed(self, error):
            self.add_error(None, refusal_of(error).detail)
