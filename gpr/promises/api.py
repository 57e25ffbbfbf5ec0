"""`insights/`: how promises and ranges turned out, by the same selector as the pages."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import StrictSerializer
from core.rest.views import ApiViewSet
from gpr.models import PromiseOutcome
from gpr.promises.calibration import DAYS, DAYS_DEFAULT, calibration_for
from gpr.requests.outputs import CAUSES, MoveSerializer


class InsightsQuery(StrictSerializer):
    days = serializers.ChoiceField(
        choices=DAYS, default=DAYS_DEFAULT, help_text="By UTC, up to today for administrators and up to yesterday for everybody else."
    )


class AccuracySerializer(serializers.Serializer[Any]):
    median_error_s = serializers.FloatField(allow_null=True, help_text="Without its sign.")
    within_1min = serializers.FloatField(allow_null=True)
    within_10min = serializers.FloatField(allow_null=True)


class ScoreSerializer(serializers.Serializer[Any]):
    """Shares are from 0 to 1. Null: nothing to measure, or too little for who asks."""

    due_count = serializers.IntegerField(
        allow_null=True, help_text="Promises that came due: settled, or overdue. In tens for who is no administrator."
    )
    kept_count = serializers.IntegerField(allow_null=True, help_text="For administrators.")
    kept_share = serializers.FloatField(allow_null=True, help_text="Started no later than a minute after the time promised first.")
    moved_count = serializers.IntegerField(allow_null=True, help_text="For administrators.")
    moved_share = serializers.FloatField(allow_null=True)
    waited_count = serializers.IntegerField(allow_null=True, help_text="Who had to wait. Margin and accuracy are over these.")
    margin_p50_s = serializers.FloatField(allow_null=True, help_text="Promised start minus real start.")
    margin_p90_s = serializers.FloatField(allow_null=True)
    expected = AccuracySerializer(help_text="Of the start by the queue as it stood.")
    promise = AccuracySerializer(help_text="Of the promised start, which is a bound and meant to be beaten.")
    ranged_count = serializers.IntegerField(
        allow_null=True, help_text="Who was told a range that was learned. Coverage and width are over these."
    )
    p50_coverage = serializers.FloatField(allow_null=True, help_text="Who started by p50; the target is 0.5.")
    p90_coverage = serializers.FloatField(allow_null=True, help_text="Who started by p90; the target is 0.9.")
    width_p50_s = serializers.FloatField(allow_null=True, help_text="Median of p90 - p50.")


class CauseShareSerializer(serializers.Serializer[Any]):
    cause = serializers.ChoiceField(choices=CAUSES)
    count = serializers.IntegerField(allow_null=True, help_text="For administrators.")
    share = serializers.FloatField(allow_null=True, help_text="Of all that came due.")


class ClassScoreSerializer(serializers.Serializer[Any]):
    length_from_s = serializers.IntegerField(help_text="Of the box, entry and exit included.")
    length_below_s = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    is_gang = serializers.BooleanField(help_text="On several nodes.")
    score = ScoreSerializer()


class SpanScoreSerializer(serializers.Serializer[Any]):
    from_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField()
    score = ScoreSerializer()


class SettledSerializer(serializers.Serializer[Any]):
    gpr_id = serializers.UUIDField()
    gpr = serializers.CharField()
    slice = serializers.CharField(source="slice.name")
    promised_start_at = serializers.DateTimeField(help_text="As promised first.")
    started_at = serializers.DateTimeField(allow_null=True, help_text="Null: it was withdrawn when it was overdue.")
    settled_at = serializers.DateTimeField()
    margin_s = serializers.IntegerField(help_text="Negative: late.")
    is_kept = serializers.BooleanField()
    moves = MoveSerializer(many=True)


class CalibrationSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField()
    since_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField()
    is_cut = serializers.BooleanField(help_text="There were more outcomes than are read, so it begins later than was asked.")
    total = ScoreSerializer()
    causes = CauseShareSerializer(many=True, help_text="What moved promises, the most frequent cause first.")
    classes = ClassScoreSerializer(many=True, help_text="By length and size, those with twenty outcomes and more.")
    spans = SpanScoreSerializer(many=True, help_text="By the day; of more than a month by the week.")
    last = SettledSerializer(many=True, help_text="The newest that the caller may know of.")
    worst = SettledSerializer(many=True, help_text="The latest starts, for administrators.")


class InsightsSerializer(serializers.Serializer[Any]):
    promises = CalibrationSerializer()


class InsightsViewSet(ApiViewSet[Any]):
    queryset = PromiseOutcome.objects.none()
    serializer_class = InsightsSerializer

    @extend_schema(parameters=[InsightsQuery])
    def retrieve(self, request: Request) -> Response:
        """How promises and ranges turned out.

        Who is no administrator reads round figures of all workspaces together, of days that are over and only where they tell nothing of
        any one, and the promises of his own.
        """
        asked = InsightsQuery(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        promises = calibration_for(actor_of(request), days=asked.validated_data["days"], now=self.now)
        return Response(InsightsSerializer({"promises": promises}).data)
