"""Words the refusals of a field in place of Django REST framework: what is wrong, and what to send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rest_framework import serializers

from protocol.manifests.faults import nearest

MISSING: Final = "Is missing: give a value."
NO_SUCH_CHOICE: Final = "invalid_choice"
AT_MOST: Final = "Must be {max_value} at most."
AT_LEAST: Final = "Must be {min_value} at least."
RANGE: Final = {"max_value": AT_MOST, "min_value": AT_LEAST, "max_string_length": "Has too many digits."}
LIST: Final = {
    "not_a_list": "Must be a list, as [...].",
    "empty": "Must have one item at least.",
    "min_length": "Must have {min_length} items at least.",
    "max_length": "Must have {max_length} items at most.",
}
SENTENCES: Final[Mapping[type[Any], Mapping[str, str]]] = {
    serializers.Field: {"required": MISSING, "null": "Must not be null: give a value, or leave it out."},
    serializers.BooleanField: {"invalid": "Must be true or false."},
    serializers.CharField: {
        "invalid": "Must be text.",
        "blank": "Must not be empty.",
        "max_length": "Must have {max_length} characters at most.",
        "min_length": "Must have {min_length} characters at least.",
    },
    serializers.EmailField: {"invalid": "Must be a mail address, as ada@example.com."},
    serializers.RegexField: {"invalid": "Has another form than this field takes."},
    serializers.UUIDField: {"invalid": "Must be an id, as 0b5f3c1e-6f0e-4d3a-9c57-1d2e3f405162."},
    serializers.IntegerField: {"invalid": "Must be a whole number.", **RANGE},
    serializers.FloatField: {"invalid": "Must be a number.", "overflow": "Is too large.", **RANGE},
    serializers.DecimalField: {
        "invalid": "Must be a number.",
        "max_digits": "Must have {max_digits} digits at most.",
        "max_decimal_places": "Must have {max_decimal_places} decimal places at most.",
        "max_whole_digits": "Must have {max_whole_digits} digits before the point at most.",
        **RANGE,
    },
    serializers.DateTimeField: {
        "invalid": "Must be a time, as 2027-01-31T12:00:00Z.",
        "date": "Must be a time, as 2027-01-31T12:00:00Z, and not a day alone.",
        "make_aware": "There is no such time in the zone {timezone}.",
        "overflow": "Is too far away.",
    },
    serializers.DateField: {"invalid": "Must be a day, as 2027-01-31.", "datetime": "Must be a day, as 2027-01-31."},
    serializers.TimeField: {"invalid": "Must be a time of day, as 08:30."},
    serializers.ChoiceField: {NO_SUCH_CHOICE: "There is no {input!s:.60} here."},
    serializers.ListField: LIST,
    serializers.DictField: {"not_a_dict": "Must be a JSON object, as {{...}}.", "empty": "Must have one entry at least."},
    serializers.JSONField: {"invalid": "Must be JSON."},
    serializers.Serializer: {"invalid": "Must be a JSON object, as {{...}}."},
    serializers.ListSerializer: LIST,
}


def with_choices(field: Any, detail: Any) -> Any:
    """Tells the nearest choice, or all that there are, behind the refusal of a word that is none of them."""
    if isinstance(detail, dict):
        return {key: with_choices(getattr(field, "child", None), each) for key, each in detail.items()}
    if not isinstance(field, serializers.ChoiceField) or not isinstance(detail, list):
        return detail
    return [f"{each}{_there_are(field, each)}" if getattr(each, "code", "") == NO_SUCH_CHOICE else each for each in detail]


def _there_are(field: serializers.ChoiceField, refusal: str) -> str:
    words = [str(choice) for choice in field.choices if choice != ""]
    return nearest(refusal.removeprefix("There is no ").removesuffix(" here."), words) or f" There are {', '.join(words)}."


def speak_plainly() -> None:
    """Every field takes its words from its class, also where a serializer gives some of its own."""
    for kind, texts in SENTENCES.items():
        kind.default_error_messages = {**kind.default_error_messages, **texts}
