"""Serves `insights/`: how promises and ranges turned out, by the same selector as the pages."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import StrictSerializer
from core.rest.output import OutputSerializer
from core.rest.views import ApiViewSet
from gpr.models import PromiseOutcome
from gpr.promises.calibration import DAYS, DAYS_DEFAULT, calibration_for
from gpr.requests.outputs import CAUSES, MoveSerializer


class InsightsQuery(StrictSerializer):
    days = serializers.ChoiceField(
        choices=DAYS, default=DAYS_DEFAULT, help_text="Days in UTC, up to today for administrators and up to yesterday for others."
    )


class AccuracySerializer(OutputSerializer[Any]):
    median_error_s = serializers.FloatField(allow_null=True, help_text="The median of the absolute error.")
    within_1min = serializers.FloatField(allow_null=True)
    within_10min = serializers.FloatField(allow_null=True)


class ScoreSerializer(OutputSerializer[Any]):
    """Shares are from 0 to 1. Null: there is nothing to measure, or too little to show to this reader."""

    due_count = serializers.IntegerField(
        allow_null=True, help_text="Promises that came due: settled or overdue. Rounded to tens unless the reader is an administrator."
    )
    kept_count = serializers.IntegerField(allow_null=True, help_text="For administrators.")
    kept_share = serializers.FloatField(allow_null=True, help_text="Started no later than a minute after the time promised first.")
    moved_count = serializers.IntegerField(allow_null=True, help_text="For administrators.")
    moved_share = serializers.FloatField(allow_null=True)
    waited_count = serializers.IntegerField(allow_null=True, help_text="Requests that had to wait. Margin and accuracy count only these.")
    margin_p50_s = serializers.FloatField(allow_null=True, help_text="Promised start minus real start.")
    margin_p90_s = serializers.FloatField(allow_null=True)
    expected = AccuracySerializer(help_text="The accuracy of the start that the queue predicted at that time.")
    promise = AccuracySerializer(help_text="The accuracy of the promised start, which is an upper bound.")
    ranged_count = serializers.IntegerField(
        allow_null=True, help_text="Requests with a forecast learned from past promises. Coverage and width count only these."
    )
    p50_coverage = serializers.FloatField(allow_null=True, help_text="Share of requests that started by p50; the target is 0.5.")
    p90_coverage = serializers.FloatField(allow_null=True, help_text="Share of requests that started by p90; the target is 0.9.")
    width_p50_s = serializers.FloatField(allow_null=True, help_text="Median of p90 - p50.")


class CauseShareSerializer(OutputSerializer[Any]):
    cause = serializers.ChoiceField(choices=CAUSES)
    count = serializers.IntegerField(allow_null=True, help_text="For administrators.")
    share = serializers.FloatField(allow_null=True, help_text="Share of all promises that came due.")


class ClassScoreSerializer(OutputSerializer[Any]):
    length_from_s = serializers.IntegerField(help_text="The shortest length of such a box, including entry and exit.")
    length_below_s = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    is_gang = serializers.BooleanField(help_text="Whether the request has several nodes.")
    score = ScoreSerializer()


class SpanScoreSerializer(OutputSerializer[Any]):
    from_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField()
    score = ScoreSerializer()


class SettledSerializer(OutputSerializer[Any]):
    gpr_id = serializers.UUIDField()
    gpr = serializers.CharField()
    slice = serializers.CharField(source="slice.name")
    promised_start_at = serializers.DateTimeField(help_text="The first promised start.")
    started_at = serializers.DateTimeField(allow_null=True, help_text="Null: it was overdue and withdrawn.")
    settled_at = serializers.DateTimeField()
    margin_s = serializers.IntegerField(help_text="Promised start minus real start; negative if late.")
    is_kept = serializers.BooleanField()
    moves = MoveSerializer(many=True)


class CalibrationSerializer(OutputSerializer[Any]):
    days = serializers.IntegerField()
    since_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField()
    is_cut = serializers.BooleanField(help_text="Whether there were too many outcomes, so that the figures begin later than asked.")
    total = ScoreSerializer()
    causes = CauseShareSerializer(many=True, help_text="The causes that moved promises, the most frequent first.")
    classes = ClassScoreSerializer(many=True, help_text="Figures by length and size, where there are at least twenty outcomes.")
    spans = SpanScoreSerializer(many=True, help_text="Figures by day, or by week if there is more than a month.")
    last = SettledSerializer(many=True, help_text="The newest outcomes that the caller may see.")
    worst = SettledSerializer(many=True, help_text="The starts that were most late, for administrators.")


class InsightsSerializer(OutputSerializer[Any]):
    promises = CalibrationSerializer()


class InsightsViewSet(ApiViewSet[Any]):
    queryset = PromiseOutcome.objects.none()
    serializer_class = InsightsSerializer

    @extend_schema(parameters=[InsightsQuery])
    def retrieve(self, request: Request) -> Response:
        """Show how promises and forecasts turned out.

        Administrators get exact figures. Others get the promises of their own workspaces, and rounded figures of all workspaces together
        for past days, unless these figures would reveal a single workspace.
        """
        asked = InsightsQuery(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        promises = calibration_for(actor_of(request), days=asked.validated_data["days"], now=self.now)
        return Response(InsightsSerializer({"promises": promises}).data)
