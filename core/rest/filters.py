"""Filters lists. An unknown or empty filter is an error, because an unfiltered list would look like an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from core.rest.fields import whole_number
from core.rest.pagination import CURSOR, CURSOR_MAX_CHARS
from core.rest.references import is_object

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)
PARAMETER_MAX_CHARS = 500  # of all values of one parameter in a URL


def check_parameters(view: Any, request: Request) -> None:
    """Raises ValidationError for unknown parameters and for values that none can have. DRF refuses a method that the view does not have."""
    if not request.query_params or not hasattr(view, view.action or ""):
        return
    faults, known = {}, _declared(view)
    if view.action == "list":
        known |= {*_filters_of(view), *(each["name"] for each in view.paginator.get_schema_operation_parameters(view))}
    for name, values in request.query_params.lists():
        most = CURSOR_MAX_CHARS if name == CURSOR else PARAMETER_MAX_CHARS
        if sum(map(len, values)) > most:
            faults[name[:60]] = [f"Must have {most} characters at most."]
        elif name not in known:
            faults[name[:60]] = ["There is no such filter here." if view.action == "list" else "There is no such parameter here."]
        elif not all(values):
            faults[name] = ["Must not be empty."]
        elif any("\x00" in value for value in values):
            faults[name] = ["Null characters are not allowed."]
    if faults:
        raise ValidationError(faults)


def _declared(view: Any) -> set[str]:
    """Returns the query parameters that `extend_schema` gives the action."""
    schema_class = getattr(getattr(view, view.action), "kwargs", {}).get("schema")
    if schema_class is None:
        return set()
    schema = schema_class()
    schema.view, schema.method = view, view.request.method
    names = set(_filters_of(view) if schema.get_filter_backends() else ())
    for each in schema.get_override_parameters():
        names |= {each.name} if isinstance(each, OpenApiParameter) else set(each().fields)
    return names


def _filters_of(view: Any) -> Iterable[str]:
    filterset_class = getattr(view, "filterset_class", None)
    return filterset_class.base_filters if filterset_class else ()


class GivenFilters(filters.DjangoFilterBackend):
    """Builds a form only for a request that gives a filter."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        filterset_class = self.get_filterset_class(view, queryset)
        if filterset_class is None or not filterset_class.base_filters.keys() & request.query_params.keys():
            return queryset
        filtered: QuerySet[Any] = super().filter_queryset(request, queryset, view)
        return filtered


class _CommaList(forms.SelectMultiple):
    """Takes `?state=QUEUED,ACTIVE` as `?state=QUEUED&state=ACTIVE`."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str] | None:
        given = data.getlist(name) if isinstance(data, QueryDict) else [data[name]] if name in data else []
        return [word.strip() for text in given for word in text.split(",")] if given else None


class _WordsField(forms.MultipleChoiceField):
    widget = _CommaList


class Words(filters.MultipleChoiceFilter):
    field_class = _WordsField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"distinct": False, **kwargs})


class Search(filters.CharFilter):
    def __init__(self, *args: Any, max_length: int, label: str, **kwargs: Any) -> None:
        super().__init__(*args, max_length=max_length, label=label, **kwargs)
        extend_schema_field({"type": "string", "maxLength": max_length, "description": label})(self)


class ReferenceFilter(filters.CharFilter):
    """Finds a related object by id or name. `only` limits rows to those whose object the reader may know."""

    def __init__(self, *args: Any, only: Q | None = None, **kwargs: Any) -> None:
        self._only = only or Q()
        super().__init__(*args, **kwargs)

    def filter(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(self._only, is_object(value, path=self.field_name)) if value else rows


class PersonFilter(ReferenceFilter):
    """Takes `me`, too."""

    def filter(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(**{self.field_name: self.parent.request.user}) if value == "me" else super().filter(rows, value)


class KnownFilter(filters.CharFilter):
    """Filters rows that store ids: a name is resolved among the objects that the reader may see now. `known(reader)`: these."""

    def __init__(self, field_name: str, *, known: Callable[[Any], QuerySet[Any]]) -> None:
        self._known = known
        super().__init__(field_name, label="Id or name.")

    def filter(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not value:
            return rows
        return rows.filter(**{f"{self.field_name}__in": self._known(self.parent.request.user).filter(is_object(value)).values("pk")})


class _WholeField(forms.IntegerField):
    def to_python(self, value: Any) -> int | None:
        if value in self.empty_values:
            return None
        try:
            return whole_number(str(value))
        except ValueError:
            raise forms.ValidationError("Must be a whole number.") from None


class Whole(filters.NumberFilter):
    field_class = _WholeField

    def __init__(self, *args: Any, least: int, most: int, **kwargs: Any) -> None:
        super().__init__(*args, min_value=least, max_value=most, **kwargs)
        extend_schema_field({"type": "integer", "minimum": least, "maximum": most})(self)

    def get_max_validator(self) -> None:
        """The field checks the limit."""


class _MomentField(forms.CharField):
    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        try:
            return serializers.DateTimeField().run_validation(value)
        except serializers.ValidationError:
            raise forms.ValidationError("Must be a time, as 2027-01-31T12:00:00Z.") from None


@extend_schema_field(OpenApiTypes.DATETIME)
class Moment(filters.Filter):
    field_class = _MomentField


class _DayField(forms.CharField):
    def to_python(self, value: Any) -> Any:
        try:
            return day_given(value)
        except ValueError:
            raise forms.ValidationError("Must be a day, as 2027-01-31.") from None


@extend_schema_field(OpenApiTypes.DATE)
class Day(filters.Filter):
    field_class = _DayField


def day_given(text: str | None) -> date | None:
    """Returns None for no text. Raises ValueError."""
    if not text:
        return None
    if not _DAY.match(text):
        raise ValueError(text[:PARAMETER_MAX_CHARS])
    return date.fromisoformat(text)


@extend_schema_field(OpenApiTypes.BOOL)
class YesNo(filters.TypedChoiceFilter):
    """`pick(is_true)` returns the condition."""

    def __init__(self, *args: Any, pick: Callable[[bool], Q], **kwargs: Any) -> None:
        self._pick = pick
        super().__init__(*args, choices=[("true", "true"), ("false", "false")], **kwargs)

    def filter(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(self._pick(value == "true")) if value else rows
