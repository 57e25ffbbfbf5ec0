"""What commands print on and on, while somebody looks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from egs_client.cli import output
from egs_client.cli.output import Column, show_watching
from egs_client.cli.words import counted


def test_a_watched_row_comes_again_when_it_changes_and_not_while_it_only_counts_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "LOOK_S", 0.0)
    looks: Iterator[str] = iter(["QUEUED  in 2 h", "QUEUED  in 1 h 59 min", "ACTIVE  in 3 h"])

    with pytest.raises(StopIteration):
        show_watching(
            lambda: [next(looks)], [Column("STATE", lambda row: row)], output="table", kind="gpr", key=lambda row: "train"
        )  # fmt: skip

    assert capsys.readouterr().out.splitlines() == ["STATE", "QUEUED  in 2 h", "ACTIVE  in 3 h"]


def test_one_step_is_no_steps() -> None:
    assert [counted(number, "step") for number in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
