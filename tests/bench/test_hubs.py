"""The benchmarks that drive a whole hub bring every request where they say, on any database."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from bench.hub import speed_hub
from bench.peers.kueue_hub import SETTINGS, figures_of
from bench.peers.kueue_scenarios import Kind, Scenario
from gpr.models import Gpr, GprState, Promise

# Each day: tests/simulation; what is here only a benchmark uses
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


def test_kueues_workloads_are_all_done_in_the_end_on_a_clock_that_jumps(settings: Settings) -> None:
    for name, value in SETTINGS.items():
        setattr(settings, name, value)
    long, short = Kind("long", 2, 1, 5000, 50, 4, 0.0), Kind("short", 1, 100, 50, 200, 4, 0.0)

    figures = figures_of(Scenario("pair", 1, 2, 4, (long, short), 0.0))

    assert Gpr.objects.count() == 6
    assert set(Gpr.objects.values_list("state", flat=True)) == {GprState.COMPLETED}
    assert [figure.unit for figure in figures] == ["/s", "s", ""]


def test_the_gang_of_the_speed_benchmark_becomes_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_hub, "GANG_NODES", 3)

    figures = speed_hub.CASES["gang"]()

    assert Gpr.objects.get().state == GprState.ACTIVE
    assert all(figure.ours > 0 for figure in figures)


def test_the_deep_queue_of_the_speed_benchmark_is_planned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_hub, "DEEP_NODES", 20)
    monkeypatch.setattr(speed_hub, "DEEP_QUEUE", 5)

    figures = speed_hub.CASES["deep"]()

    assert figures[0].ours == 5 == Promise.objects.filter(gpr__state=GprState.QUEUED).count()
