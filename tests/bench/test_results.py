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
    assert "| hub | a tick | 0.5 s |  | <= 1 | 2026-11-27 |" in text
