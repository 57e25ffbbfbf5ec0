"""Adds the OpenAPI parts that all endpoints share."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import build_parameter_type, force_instance
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers

from core.rest.deprecations import mark_deprecated, operation_key
from core.rest.fields import NUMBER_MAX, StrictSerializer, Text, WholeNumber
from core.rest.filters import PARAMETER_MAX_CHARS
from core.rest.pagination import OnePage
from core.rest.preconditions import IF_MATCH, takes_if_match

Problem = inline_serializer(
    name="Problem",
    fields={
        "type": serializers.CharField(),
        "status": serializers.IntegerField(),
        "code": serializers.CharField(help_text="A stable code for programs."),
        "title": serializers.CharField(),
        "detail": serializers.CharField(help_text="A text for people: what is wrong and what to do."),
        "errors": serializers.DictField(
            child=serializers.ListField(child=serializers.CharField()),
            required=False,
            help_text="Sentences by field, with the code `invalid_input`.",
        ),
    },
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[ -~]{1,255}$"},
    OpenApiParameter.HEADER,
    description="A request with the same key and body is carried out once. A repetition returns the present object with the header "
    "`Idempotency-Replayed: true`, or 410 if the object no longer exists.",
)


def takes_key(view: Any) -> bool:
    """Tell whether a POST to this action takes an Idempotency-Key."""
    return view.action is not None and view.action not in {*view.read_actions, *view.keyless_actions}


LINE: Final = "line"  # a format: one line, without control or invisible characters
CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
STORABLE: Final = r"^[^\x00]*$"  # a text that PostgreSQL takes


def _bounds_of(field: Any) -> dict[str, Any]:
    """Returns the bounds that the field's class checks and drf-spectacular does not know."""
    match field:
        case Text():
            return {"format": LINE}
        case serializers.CharField():
            return {"pattern": STORABLE}
        case WholeNumber():
            return {"minimum": -NUMBER_MAX, "maximum": NUMBER_MAX}
        case serializers.ListField(allow_empty=False):
            return {"minItems": 1}
    return {}


class ApiSchema(AutoSchema):
    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's own signature; the stubs are of DRF
        text: str = super().get_description() or ""
        view: Any = self.view
        if getattr(view, "pagination_class", None) in {None, OnePage} or not self._is_list_view():
            return text
        order = (f"{name.lstrip('-')}{' (descending)' if name.startswith('-') else ''}".replace("__", ".") for name in view.ordering)
        return f"{text}\n\nSorted by {', '.join(order)}.".strip()

    def get_operation(self, *args: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args)
        return operation and mark_deprecated(operation_key(self.view), operation)

    def get_override_parameters(self) -> list[Any]:
        parameters: list[Any] = super().get_override_parameters()
        parameters += [IDEMPOTENCY_KEY] if self.method == "POST" and takes_key(self.view) else []
        return [*parameters, IF_MATCH] if takes_if_match(self.view) else parameters

    def _get_parameters(self) -> list[dict[str, Any]]:
        parameters: list[dict[str, Any]] = super()._get_parameters()
        for parameter in parameters:
            if parameter["in"] == "query" and parameter["schema"].get("type") == "string" and "format" not in parameter["schema"]:
                parameter["schema"] = {"minLength": 1, "maxLength": PARAMETER_MAX_CHARS, "pattern": STORABLE, **parameter["schema"]}
        return [mark_deprecated(f"{operation_key(self.view)}?{parameter['name']}", parameter) for parameter in parameters]

    def _map_serializer_field(self, field: Any, direction: Any, bypass_extensions: bool = False) -> dict[str, Any]:
        schema: dict[str, Any] = super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        if schema.get("format") == "time":  # for JSON Schema a time of day has an offset; a clock on the wall has none
            del schema["format"]
            schema["pattern"] = CLOCK
        return schema

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> dict[str, Any]:
        schema: dict[str, Any] = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        name = type(force_instance(serializer)).__name__  # type: ignore[no-untyped-call]
        fields = {field: mark_deprecated(f"{name}.{field}", each) for field, each in schema.get("properties", {}).items()}
        return {**schema, "properties": fields} if fields else schema

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> dict[str, Any]:
        schema: dict[str, Any] = super()._map_serializer(serializer, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        is_strict = isinstance(force_instance(serializer), StrictSerializer)  # type: ignore[no-untyped-call]
        return {**schema, "additionalProperties": False} if is_strict else schema

    def _insert_field_validators(self, field: Any, schema: dict[str, Any]) -> None:
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]
        if isinstance(field.root, StrictSerializer):
            for name, bound in _bounds_of(field).items():
                schema.setdefault(name, bound)

    def _resolve_path_parameters(self, variables: list[str]) -> list[dict[str, Any]]:
        return [self._path_parameter(variable) for variable in variables]

    def _path_parameter(self, variable: str) -> dict[str, Any]:
        is_id = variable == "id" or variable.endswith("pk")
        kind = {"type": "string", "format": "uuid"} if is_id else {"type": "string"}
        text = "Its id." if is_id else "Its id or its name."
        parameter: dict[str, Any] = build_parameter_type(name=variable, location=OpenApiParameter.PATH, description=text, schema=kind)
        return parameter

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        problem: dict[str, Any] = self._get_response_for_code(Problem, "default", ["application/problem+json"], direction)  # type: ignore[no-untyped-call]
        return {**bodies, "default": {**problem, "description": "A problem document."}}
