"""Serializers of answers give what DRF's own would give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from rest_framework import serializers

from core.rest.output import OutputSerializer


class _Fields(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    count = serializers.IntegerField(allow_null=True)
    id = serializers.UUIDField()
    is_on = serializers.BooleanField()
    name = serializers.CharField()
    owner = serializers.CharField(source="owner.name", default=None)
    state = serializers.ChoiceField(choices=["A", "B"])
    words = serializers.ListField(child=serializers.CharField())
    called = serializers.CharField(source="call")
    told = serializers.SerializerMethodField()

    def get_told(self, row: Any) -> str:
        return f"{self.context['greeting']}, {row['name'] if isinstance(row, dict) else row.name}"


class _Answer(OutputSerializer[Any], _Fields):
    pass


ROW = {
    "at": datetime(2026, 11, 27, 12, 0, 0, 250, tzinfo=UTC),
    "count": None,
    "id": UUID(int=7),
    "is_on": True,
    "name": "b",
    "owner": SimpleNamespace(name="ada"),
    "state": "A",
    "words": ["x"],
    "call": lambda: "called",
}
EAST = {"at": datetime(2026, 11, 27, 12, tzinfo=timezone(timedelta(hours=2))), "owner": None, "count": 3, "is_on": False}


@pytest.mark.parametrize("row", [SimpleNamespace(**ROW), SimpleNamespace(**ROW | EAST), ROW, ROW | EAST])
def test_an_answer_has_the_values_that_the_fields_describe(row: Any) -> None:
    context = {"greeting": "Good day"}

    assert _Answer(row, context=context).data == _Fields(row, context=context).data
