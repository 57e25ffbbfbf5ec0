"""Serializer fields are strict here: `true` is no number, and `5` is no text. DRF's own fields are lenient."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.utils.serializer_helpers import BindingDict

from core.errors import InvalidInput
from core.names import MUST, PATTERN, name_fault, text_fault
from core.rest.sentences import with_choices
from protocol.manifests.text import quoted

# The largest integer that every JSON parser reads exactly.
NUMBER_MAX = 2**53 - 1
COUNT = {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}  # as a parameter of a URL
ECHO_MAX_CHARS = 60
_DIGITS = re.compile(r"-?[0-9]{1,40}\Z", re.ASCII)


def whole_number(text: str) -> int:
    """Read a whole number exactly. Raises ValueError."""
    if not _DIGITS.match(text) or abs(number := int(text)) > NUMBER_MAX:
        raise ValueError(text[:ECHO_MAX_CHARS])
    return number


def count_given(asked: Mapping[str, str], name: str) -> int | None:
    """Reads a count from the query of a URL. Raises InvalidInput."""
    text = asked.get(name)
    try:
        count = None if text is None else whole_number(text)
    except ValueError:
        count = -1
    if count is not None and count < 0:
        raise InvalidInput({name: ["Must be a whole number, 0 or more."]})
    return count


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields, and tells them together with all other errors."""

    # DRF copies all fields for each serializer. Those of a class share theirs, which get no context.
    @property
    def fields(self) -> Any:
        return _fields_of(type(self))

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({"non_field_errors": ["Send a JSON object."]})
        writable = {name for name, field in self.fields.items() if not field.read_only}
        errors: dict[str, Any] = {str(key)[:ECHO_MAX_CHARS]: ["There is no such field here."] for key in data if key not in writable}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            detail = error.detail if isinstance(error.detail, dict) else {"non_field_errors": error.detail}
            errors.update({name: with_choices(self.fields.get(name), each) for name, each in detail.items()})
        if errors:
            raise serializers.ValidationError(errors)
        return value


@cache
def _fields_of(kind: type[StrictSerializer]) -> Any:
    made = kind()
    fields: Any = BindingDict(made)
    for name, field in made.get_fields().items():
        fields[name] = field
    return fields


class Nothing(StrictSerializer):
    pass


class WholeNumber(serializers.IntegerField):
    """Accepts a JSON number without a fraction."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float) or (isinstance(data, float) and not data.is_integer()):
            raise serializers.ValidationError("Must be a whole number.")
        if abs(data) > NUMBER_MAX:
            raise serializers.ValidationError(f"Must be from -{NUMBER_MAX} to {NUMBER_MAX}.")
        return int(data)


class ToldNumber(WholeNumber):
    """Has its bounds in the schema; a service checks them, together with all else."""

    def __init__(self, *, bounds: tuple[int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._spectacular_annotation = {"field": {"type": "integer", "minimum": bounds[0], "maximum": bounds[1]}}


class Flag(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            raise serializers.ValidationError("Must be true or false.")
        return data


class Verbatim(serializers.CharField):
    """Accepts text of any lines, and changes nothing of it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"trim_whitespace": False, "allow_blank": True} | kwargs))

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(f"Must be text.{quoted(data)}")
        return super().to_internal_value(data)


class Text(Verbatim):
    """Accepts one line, without control or invisible characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"trim_whitespace": True, "allow_blank": False} | kwargs))

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if fault := text_fault(data):
            raise serializers.ValidationError(fault)
        return text


class Word(serializers.RegexField):
    """Accepts text that matches a pattern, without invisible characters; nothing is trimmed."""

    def __init__(self, regex: str, *, must: str, **kwargs: Any) -> None:
        super().__init__(regex, trim_whitespace=False, error_messages={"invalid": must}, **{"help_text": must, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or text_fault(data):
            self.fail("invalid")
        return super().to_internal_value(data)


class NewName(Word):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(PATTERN, must=MUST, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if fault := name_fault(name):
            raise serializers.ValidationError(fault)
        return name


class Id(serializers.UUIDField):
    def to_internal_value(self, data: Any) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class Reference(serializers.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"max_length": 253} | kwargs))

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(f"Must be an id or a name.{quoted(data)}")
        return super().to_internal_value(data)


@extend_schema_field(OpenApiTypes.OBJECT)
class FreeForm(serializers.DictField):
    """Takes a JSON object of any content that the database can store."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise serializers.ValidationError("Must be a JSON object.")
        _check_kept(data)
        return data


def _check_kept(value: Any) -> None:
    if isinstance(value, str) and "\x00" in value:
        raise serializers.ValidationError("Must not hold NUL characters.")
    if isinstance(value, int) and abs(value) > NUMBER_MAX:
        raise serializers.ValidationError(f"Must hold no whole number beyond {NUMBER_MAX}.")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_kept(key)
            _check_kept(item)
    elif isinstance(value, list):
        for item in value:
            _check_kept(item)
