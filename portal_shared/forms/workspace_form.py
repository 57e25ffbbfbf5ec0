"""Has the form of a request for a workspace: people fill it in, and an administrator changes it before an approval."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone

from core.names import name_fault
from portal_shared.forms.fields import PlainTextField
from slices.invitations.services import invitee_fault
from slices.models import Role, WorkspaceRequest
from slices.workspace_requests.services import WorkspaceTerms

SEPARATOR = re.compile(r"[,\s]+")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
ITEMS_MAX = 20


class WorkspaceForm(forms.Form):
    name = PlainTextField(label="Name", max_length=63)
    project = PlainTextField(label="Project", max_length=63, help_text="Your department or team. It is made if it does not exist yet.")
    purpose = PlainTextField(label="Purpose", max_length=500, help_text="The people and the purpose.")
    clusters = PlainTextField(label="Clusters", max_length=500, required=False, help_text="Empty: an administrator chooses.")
    namespaces = PlainTextField(
        label="Namespaces", max_length=500, required=False, help_text="Names of Kubernetes namespaces, with commas between."
    )
    people = PlainTextField(
        label="People",
        max_length=1000,
        required=False,
        help_text="E.g. ben editor, cleo@corp.example viewer. Newcomers are invited by mail address. You own it.",
    )
    quota = PlainTextField(label="Guaranteed GPUs", max_length=500, required=False, help_text="E.g. 16 H100-80GB, 8 A100-80GB.")
    days = forms.IntegerField(label="Needed for days", min_value=1, max_value=3660, required=False, help_text="Empty: without end.")

    @classmethod
    def initial_of(cls, row: WorkspaceRequest) -> dict[str, Any]:
        left = (row.ends_at - timezone.now()).days + 1 if row.ends_at else None
        return {
            "name": row.name,
            "project": row.project,
            "purpose": row.purpose,
            "clusters": ", ".join(row.clusters),
            "namespaces": ", ".join(row.namespaces),
            "people": ", ".join(f"{name} {role}" for name, role in row.people.items()),
            "quota": ", ".join(f"{count} {shape}" for shape, count in row.quota.items()),
            "days": max(left, 1) if left is not None else None,
        }

    def terms(self) -> WorkspaceTerms:
        given = dict(self.cleaned_data)
        days = given.pop("days")
        given.pop("why", None)
        return WorkspaceTerms(**given, ends_at=timezone.now() + timedelta(days=days) if days else None)

    def clean_name(self) -> str:
        return _name(self.cleaned_data["name"])

    def clean_project(self) -> str:
        return _name(self.cleaned_data["project"])

    def clean_clusters(self) -> list[str]:
        return [_name(word) for word in _words(self.cleaned_data["clusters"])]

    def clean_namespaces(self) -> list[str]:
        names = _words(self.cleaned_data["namespaces"])
        if wrong := [name for name in names if not NAMESPACE.fullmatch(name)]:
            raise forms.ValidationError(f"{wrong[0][:63]} is no name of a Kubernetes namespace: small letters, digits and dashes.")
        return names

    def clean_people(self) -> dict[str, str]:
        return _pairs(self.cleaned_data["people"], _person, "Write a name and a role for each, e.g. ben editor, cleo viewer.")

    def clean_quota(self) -> dict[str, int]:
        return _pairs(self.cleaned_data["quota"], _guarantee, "Write a number and a shape for each, e.g. 16 H100-80GB.")


class WorkspaceApprovalForm(WorkspaceForm):
    why = PlainTextField(label="Note", max_length=150, required=False, help_text="The requester reads it.")


def _name(text: str, fault_of: Callable[[str], str] = name_fault) -> str:
    if fault := fault_of(text):
        raise forms.ValidationError(fault)
    return text


def _words(text: str) -> list[str]:
    words = [word for word in SEPARATOR.split(text) if word]
    if len(words) > ITEMS_MAX:
        raise forms.ValidationError(f"At most {ITEMS_MAX}.")
    return words


def _pairs(text: str, read: Callable[[str, str], tuple[str, Any]], how: str) -> dict[str, Any]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, second = part.partition(" ")
        try:
            key, value = read(first, second.strip())
        except ValueError:
            raise forms.ValidationError(how) from None
        found[key] = value
    if len(found) > ITEMS_MAX:
        raise forms.ValidationError(f"At most {ITEMS_MAX}.")
    return found


def _person(name: str, role: str) -> tuple[str, str]:
    return _name(name, invitee_fault), Role(role or Role.EDITOR).value


def _guarantee(count: str, shape: str) -> tuple[str, int]:
    if not shape or not 0 < int(count) <= 1_000_000:
        raise ValueError(count)
    return _name(shape), int(count)
