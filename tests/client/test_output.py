"""What commands print on and on, while somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from egs_client.cli import output
from egs_client.cli.commands.gpr import COLUMNS
from egs_client.cli.exits import Refused
from egs_client.cli.jsonpath import jsonpath
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


ROWS = {"items": [{"name": "a", "n": 1, "on": {"x": True}}, {"name": "b", "n": 2, "on": {"x": False}}, {"name": "c", "n": None}]}


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{.items[*].name}", "a b c"),
        ("{.items[-1].name}", "c"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[1:].name}", "b c"),
        ('{.items[?(@.name=="b")].n}', "2"),
        ("{.items[?(@.name != 'b')].name}", "a c"),
        ("{.items[?(@.n>1)].name}", "b"),
        ("{.items[?(@.on.x==true)].name}", "a"),
        ("{.items[?(@.on)].name}", "a b"),
        ('{range .items[?(@.n<=2)]}{.name}{"\\n"}{end}', "a\nb\n"),
        ("{.items[0].on.*}", "true"),
        ("{.items[9].name}{.nothing}", ""),
    ],
)
def test_a_json_path_is_read_as_kubectl_reads_it(template: str, shown: str) -> None:
    assert jsonpath(template, ROWS) == shown


@pytest.mark.parametrize("template", ["{.items[*]", "{.items[?(@.n=1)]}", "{.items[?(@.n==x)]}", "{.a b}", "{range .items[*]}"])
def test_what_is_no_json_path_is_refused(template: str) -> None:
    with pytest.raises(Refused, match="JSONPath"):
        jsonpath(template, ROWS)


def test_a_usual_list_of_requests_fits_into_80_columns_uncut() -> None:
    start = datetime.now(UTC) + timedelta(hours=22, minutes=23, seconds=30)
    box = {"shape": "H100-80GB", "nodes": 2, "gpus_per_node": None, "min_gpu_memory_gib": None, "ends_at": None, "ended_at": None}
    rows: list[Any] = [
        SimpleNamespace(name="video-scale-up", state="PENDING_APPROVAL", duration_s=691_200, estimate=None, position=None, **box),
        SimpleNamespace(
            name="release-eval-1", state="QUEUED", duration_s=3600, estimate=SimpleNamespace(start_at=start), position=12, **box
        ),
    ]
    columns = [column for column in COLUMNS if not column.is_wide]

    widths = [max(len(column.title), *(len(column.text(row)) for row in rows)) for column in columns]

    assert sum(widths) + 2 * (len(widths) - 1) <= 80, widths


def test_one_step_is_no_steps() -> None:
    assert [counted(number, "step") for number in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
