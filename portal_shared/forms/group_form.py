from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from accounts.oidc.providers import providers
from portal_shared.forms.fields import PlainTextField


class GroupForm(forms.Form):
    """Gives a group of an identity provider a role."""

    provider = forms.ChoiceField(label="Identity provider")
    group = PlainTextField(label="Group", max_length=255, help_text="The provider's name for the group.")
    role = forms.ChoiceField(label="Role")

    def __init__(self, *args: Any, roles: Sequence[tuple[Any, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["provider"].choices = [(each.key, each.label) for each in providers()]  # type: ignore[attr-defined]
        self.fields["role"].choices = roles  # type: ignore[attr-defined]
