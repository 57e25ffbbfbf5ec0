"""Reads the terms of a policy as input."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from core.rest.fields import Flag, StrictSerializer, Text, WholeNumber, Word
from slices.namespaces.naming import PATTERN, PATTERN_MUST
from slices.policies.terms import PATTERNS_MAX, SHAPES_MAX, TERMS, Term, Unit


def _field(term: Term) -> serializers.Field[Any, Any, Any, Any]:
    given: dict[str, Any] = {"required": False, "allow_null": True, "help_text": term.help}
    if term.unit == Unit.FLAG:
        return Flag(**given)
    if term.unit == Unit.SHAPES:
        return serializers.ListField(child=Text(max_length=63), allow_empty=True, max_length=SHAPES_MAX, **given)
    if term.unit == Unit.PATTERNS:
        child = Word(PATTERN, must=PATTERN_MUST)
        return serializers.ListField(child=child, allow_empty=True, max_length=PATTERNS_MAX, **given)
    return WholeNumber(min_value=term.least, max_value=term.most, **given)


class PolicyTerms(StrictSerializer):
    """Omitted fields stay as they are; null means inherited."""

    def get_fields(self) -> dict[str, Any]:
        return {**{name: _field(term) for name, term in TERMS.items()}, **super().get_fields()}


def split_terms(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the terms, and the other fields."""
    return {name: data[name] for name in data if name in TERMS}, {name: data[name] for name in data if name not in TERMS}
