"""Past promises give p50 and p90 of new ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from planner.promises.ranges import ENOUGH_COUNT, ForecastRanges, WaitForecast

NONE_YET = (0, 0)


def asked(
    number: int, *, made_s: int = 0, promised_s: int = 1000, expected_s: int = 500, length_s: int = 3600, gpus: int = 1
) -> WaitForecast:
    return WaitForecast(f"f{number}", made_s, length_s, gpus, expected_s, promised_s, NONE_YET)


def live(learned: ForecastRanges, waits_s: list[int], *, gap_s: int = 10, promised_s: int = 1000) -> list[WaitForecast]:
    """One comes every `gap_s`, and each starts after its wait; answers what they were told."""
    told: dict[str, WaitForecast] = {}
    events = sorted(event for i, wait_s in enumerate(waits_s) for event in ((i * gap_s, 1, i), (i * gap_s + wait_s, 0, i)))
    for at_s, kind, i in events:
        if kind == 1:
            told[f"f{i}"] = learned.forecast(asked(i, made_s=at_s, promised_s=promised_s))
        else:
            learned.started(f"f{i}", at_s)
    return list(told.values())


def test_with_too_little_history_the_bounds_are_the_promise() -> None:
    learned = ForecastRanges()
    live(learned, [10] * (ENOUGH_COUNT - 1))

    assert learned.forecast(asked(99, made_s=10_000)).bounds_s == (1000, 1000)


def test_the_bounds_follow_what_happened_and_never_pass_the_promise() -> None:
    learned = ForecastRanges()
    live(learned, [100] * 60)

    p50_s, p90_s = learned.forecast(asked(99, made_s=10_000, promised_s=400)).bounds_s

    assert p50_s <= p90_s <= 400
    assert (p50_s, p90_s) == (40, 40)  # a tenth of what was promised


@pytest.mark.parametrize("seed", range(4))
def test_nine_of_ten_start_within_their_p90_and_half_within_their_p50(seed: int) -> None:
    dice = random.Random(seed)
    # Halfway everything becomes slower: bounds that only looked back would miss for long.
    waits_s = [1 + int(1000 * dice.random() ** (3 if i < 2_000 else 1)) for i in range(4_000)]

    told = live(ForecastRanges(), waits_s)

    for i, target in enumerate((0.5, 0.9)):
        hits = [wait_s <= forecast.bounds_s[i] for wait_s, forecast in zip(waits_s, told, strict=True)]
        assert sum(hits) / len(hits) == pytest.approx(target, abs=0.02)


def test_a_miss_counts_when_the_clock_passes_the_bound_not_when_the_box_starts() -> None:
    learned, other = ForecastRanges(), ForecastRanges()
    for one in (learned, other):
        live(one, [100 + i for i in range(60)])
        one.forecast(asked(70, made_s=10_000))

    learned.forecast(asked(71, made_s=19_000))  # the first of them waits still, far beyond its bound
    other.dropped("f70")
    other.forecast(asked(71, made_s=19_000))

    late, calm = (one.forecast(asked(72, made_s=19_000, promised_s=100_000)).bounds_s for one in (learned, other))
    assert late > calm


def test_long_and_short_boxes_learn_from_their_own() -> None:
    learned = ForecastRanges()
    for i in range(60):
        learned.forecast(asked(i, made_s=1000 * i, length_s=600 if i % 2 else 60_000))
        learned.started(f"f{i}", 1000 * i + (100 if i % 2 else 800))

    short, long = (learned.forecast(asked(99 + n, made_s=100_000, length_s=n)).bounds_s for n in (600, 60_000))

    assert short[1] == 100
    assert long[1] == 800


def test_those_that_were_promised_as_long_a_wait_are_asked_first_and_else_the_whole_kind() -> None:
    learned = ForecastRanges()
    for i in range(60):
        promised_s = 1000 if i % 2 else 100_000
        learned.forecast(asked(i, made_s=100_000 * i, promised_s=promised_s, expected_s=0))
        learned.started(f"f{i}", 100_000 * i + (promised_s // 10 if i % 2 else promised_s // 2))

    bounds_s = [learned.forecast(asked(99 + n, made_s=10_000_000, promised_s=n, expected_s=0)).bounds_s for n in (1000, 100_000, 10_000)]

    assert bounds_s[0] == (100, 100)
    assert bounds_s[1] == (50_000, 50_000)
    assert bounds_s[2][0] < bounds_s[2][1]  # nobody was promised as long: it learns from both


def test_history_read_from_a_store_gives_the_same_bounds_as_history_lived() -> None:
    lived = ForecastRanges()
    waits_s = [random.Random(5).randrange(900) for _ in range(80)]
    told = live(lived, waits_s, gap_s=1000)

    read = ForecastRanges([replace(forecast, wait_s=wait_s) for forecast, wait_s in zip(told, waits_s, strict=True)])

    new = asked(99, made_s=200_000)
    assert read.forecast(new) == lived.forecast(new)
