"""`booking-series/`: repeated bookings; each occurrence is a GPR under `gprs/`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import Scope, User
from core.rest.fields import Text, ToldNumber
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from gpr.bookings.recurrence import OCCURRENCES_MAX
from gpr.bookings.services import SeriesTerms, series_cancel, series_create
from gpr.models import BookingOccurrence, BookingSeries, GprState, RepeatRule
from gpr.requests.filters import BookingSeriesFilter
from gpr.requests.inputs import GprCreate, spec_of_create
from gpr.requests.selectors import series_for, series_visible_to

TIMING = ("first_start_at", "rule", "zone", "until_at", "count")


class BookingSeriesCreate(GprCreate):
    """Takes the fields of a request to `gprs/`, and the rule by which it repeats."""

    earliest_start_at = None  # type: ignore[assignment]
    is_booking = None  # type: ignore[assignment]
    after = None  # type: ignore[assignment]
    after_condition = None  # type: ignore[assignment]
    template = None  # type: ignore[assignment]
    first_start_at = serializers.DateTimeField()
    rule = serializers.ChoiceField(choices=RepeatRule.choices)
    zone = Text(max_length=64, default="UTC", help_text="The time zone, e.g. Europe/Berlin. Every booking starts at the same local time.")
    until_at = serializers.DateTimeField(required=False, allow_null=True, help_text="No booking starts later. Give this or `count`.")
    count = ToldNumber(bounds=(1, OCCURRENCES_MAX), required=False, allow_null=True, help_text="The number of bookings, 200 at most.")


class OccurrenceSerializer(ModelOutputSerializer[BookingOccurrence]):
    gpr_id = serializers.UUIDField(
        allow_null=True, help_text="Null: it did not fit. EGS tries again about every ten minutes, and less often if many are refused."
    )
    state = serializers.SerializerMethodField(help_text="The state of its GPR; null without a GPR.")

    class Meta:
        model = BookingOccurrence
        fields = ["starts_at", "gpr_id", "state", "refusal", "nearest_before_at", "nearest_after_at"]

    @extend_schema_field(serializers.ChoiceField(choices=GprState.choices, allow_null=True))
    def get_state(self, row: BookingOccurrence) -> str | None:
        return row.gpr.state if row.gpr else None


class BookingSeriesSerializer(ModelOutputSerializer[BookingSeries]):
    asked = serializers.DictField(help_text="The fields of the request that each booking makes.")

    class Meta:
        model = BookingSeries
        fields = ["id", "name", "slice", "slice_id", "owner", "owner_id", "asked", *TIMING, "next_start_at", "created_at", "canceled_at"]


class BookingSeriesDetailSerializer(BookingSeriesSerializer):
    occurrences = OccurrenceSerializer(many=True, help_text="The bookings up to four weeks from now, past ones included.")

    class Meta(BookingSeriesSerializer.Meta):
        fields = [*BookingSeriesSerializer.Meta.fields, "occurrences"]


class BookingSeriesViewSet(mixins.ListModelMixin, ApiViewSet[Any]):
    queryset = BookingSeries.objects.none()
    serializer_class = BookingSeriesSerializer
    filterset_class = BookingSeriesFilter
    write_scope = Scope.GPR_WRITE
    lookup_url_kwarg = "ref"

    def get_queryset(self) -> QuerySet[BookingSeries]:
        return series_visible_to(actor_of(self.request))

    @extend_schema(responses=BookingSeriesDetailSerializer)
    def retrieve(self, request: Request, ref: str) -> Response:
        return self._answer(ref)

    @extend_schema(request=BookingSeriesCreate, responses={201: BookingSeriesDetailSerializer})
    def create(self, request: Request) -> Response:
        """Create a series and book its first four weeks. Bookings that do not fit are listed with the nearest times."""
        data, actor = self.body(BookingSeriesCreate), actor_of(request)
        made = series_create(actor=actor, ask=_ask_of(data, actor=actor), now=self.now)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, ref: str) -> Response:
        """Cancel the series and its waiting requests. Running requests continue to their end, and the series stays in the list."""
        actor = actor_of(request)
        series_cancel(series=series_for(actor, ref, write=True), actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        series = series_for(actor_of(self.request), pk)
        told: Any = BookingSeriesDetailSerializer(series).data
        return Response(told, **kwargs)


def _ask_of(data: dict[str, Any], *, actor: User) -> SeriesTerms:
    timing = {name: data[name] for name in TIMING if name in data}
    spec = spec_of_create({name: value for name, value in data.items() if name not in TIMING}, actor=actor)
    return SeriesTerms(spec=spec, **{**timing, "rule": RepeatRule(timing["rule"])})
