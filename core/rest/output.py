"""Has serializers of answers. Each class works out once how to read and format its fields.

DRF's serializers copy all of their fields each time they are made, and work it out anew for each field of each row. These share their
fields, so a serializer that is a field gets no context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

from django.db.models import Model
from rest_framework import serializers

Row = TypeVar("Row")
ModelRow = TypeVar("ModelRow", bound=Model)
# Takes the serializer and the row, and returns the value for the answer.
Teller = Callable[[Any, Any], Any]


class OutputSerializer(serializers.Serializer[Row]):
    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {name: tell(self, instance) for name, tell in _tellers(type(self), isinstance(instance, Mapping))}


class ModelOutputSerializer(OutputSerializer[ModelRow], serializers.ModelSerializer[ModelRow]):
    # It shows a related object by its name, and by its id as e.g. `slice_id`.

    def get_extra_kwargs(self) -> dict[str, Any]:
        model: Any = self.Meta.model
        plain = {field.name for field in model._meta.concrete_fields if not field.is_relation}
        return {name: {"read_only": True} for name in self.Meta.fields if name in plain}

    def get_uniqueness_extra_kwargs(self, field_names: Any, declared_fields: Any, extra_kwargs: Any) -> Any:
        return extra_kwargs, {}

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        may_lack = {"default": None, "allow_null": True} if relation_info.model_field.null else {}
        return serializers.CharField, {"source": f"{field_name}.name", **may_lack}

    def build_property_field(self, field_name: str, model_class: Any) -> Any:
        related = {field.attname: field for field in model_class._meta.concrete_fields if field.is_relation}
        if field_name not in related:
            return super().build_property_field(field_name, model_class)
        return serializers.UUIDField, {"allow_null": True} if related[field_name].null else {}


def utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Does the same as these methods of DRF's fields, sooner.
FORMATS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    serializers.BooleanField.to_representation: bool,
    serializers.CharField.to_representation: str,
    serializers.DateTimeField.to_representation: utc_text,
    serializers.IntegerField.to_representation: int,
    serializers.UUIDField.to_representation: str,
}


@cache
def _tellers(kind: type[OutputSerializer[Any]], is_mapping: bool) -> list[tuple[str, Teller]]:
    getter = itemgetter if is_mapping else attrgetter
    return [(name, _teller(kind, field, getter(str(field.source)))) for name, field in kind().fields.items()]


def _teller(kind: type[OutputSerializer[Any]], field: Any, read: Callable[[Any], Any]) -> Teller:
    if isinstance(field, serializers.SerializerMethodField):
        method: Teller = getattr(kind, str(field.method_name))
        return method
    form = FORMATS.get(type(field).to_representation, field.to_representation)

    def tell(serializer: Any, row: Any) -> Any:
        try:
            value = read(row)
        except (AttributeError, KeyError):
            value = field.get_attribute(row)  # may have a default
        else:
            value = field.get_attribute(row) if callable(value) else value
        return None if value is None else form(value)

    return tell
