"""A benchmark's record replaces the old figures by today's, and names missed goals."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from bench import results
from bench.figures import Figure

DAY = date(2026, 11, 27)


@pytest.mark.parametrize(
    ("goal", "ours", "peer", "is_met"),
    [
        ("<= 0.3 at 10,000", 0.3, None, True),
        ("<= 0.3", 0.31, None, False),
        (">= 250", 249.0, None, False),
        ("<= 1.5 x fifo", 29.0, 20.0, True),
        ("<= 1.5 x fifo", 31.0, 20.0, False),
        ("0.90 +- 0.01", 0.885, None, False),
        ("1", 1.0, None, True),
        ("0", 3.0, None, False),
    ],
)
def test_a_goal_is_met_or_missed_as_it_says(goal: str, ours: float, peer: float | None, is_met: bool) -> None:
    assert results.is_met(Figure("b", "c", "s", ours, "fifo", peer, goal)) == is_met


def test_a_bench_that_ran_again_has_its_new_figures_alone_and_others_keep_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(results, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text(f"Before.\n{results.BEGIN}{results.END}\nBehind.\n")
    results.record([Figure("hub", "a tick", "s", 2.0, goal="<= 1"), Figure("hub", "gone", "s", 1.0)], today=date(2026, 1, 1))
    results.record([Figure("live", "hint", "s", 0.5, goal="<= 1")], today=date(2026, 2, 2))

    results.record([Figure("hub", "a tick", "s", 0.5, goal="<= 1")], today=DAY)

    assert [(row["bench"], row["ours"], row["date"]) for row in json.loads((tmp_path / "results.json").read_text())] == [
        ("hub", 0.5, "2026-11-27"),
        ("live", 0.5, "2026-02-02"),
    ]
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("\nBehind.\n")
    assert "hub | a tick | 0.5 s | <= 1\n" in text
    assert "Measured on 2026-02-02: live; 2026-11-27: hub." in text


def test_equal_goals_that_are_met_share_the_line_of_the_worst_and_each_missed_one_has_its_own() -> None:
    figures = [
        Figure("hub", "page: a", "ms", 20, goal="<= 200"),
        Figure("hub", "page: b", "ms", 199, goal="<= 200"),
        Figure("hub", "page: c", "ms", 201, goal="<= 200"),
        Figure("hub", "page: d", "ms", 300, "peer", 100, goal="<= 200"),
        Figure("live", "page: a", "ms", 2, goal="<= 200"),
        Figure("live", "no goal", "ms", 2),
    ]

    table = results.table_of([{"date": DAY.isoformat(), **figure.as_dict()} for figure in figures])

    assert table.splitlines()[2:-2] == [
        "hub | page: b (the worst of 2) | 199 ms | <= 200",
        "hub | … c | 201 ms | <= 200, **missed**",
        "hub | … d | 300 ms beside 100 ms (peer) | <= 200, **missed**",
        "live | page: a | 2 ms | <= 200",
    ]


def test_the_readme_shows_the_recorded_figures_in_1200_words_at_most() -> None:
    text = results.README.read_text()

    assert results.table_of(json.loads(results.RESULTS.read_text())) in text
    assert len(text.split()) <= 1200
