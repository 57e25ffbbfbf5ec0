"""The planner's compiled functions are kept on disk, and never used with other sources than they were made of."""

from __future__ import annotations

from pathlib import Path

from gpr.planner.lines import kernels_dir

KERNEL = "@lean\ndef double(number: int) -> int:\n    return {}\n"


def test_a_change_of_any_compiled_function_is_one_of_all_for_each_has_those_that_it_calls_built_in(tmp_path: Path) -> None:
    (tmp_path / "ground.py").write_text(KERNEL.format("2 * number"))
    (tmp_path / "passes.py").write_text(KERNEL.format("number + number"))
    before = kernels_dir("", tmp_path)

    (tmp_path / "ground.py").write_text(KERNEL.format("number << 1"))

    assert kernels_dir("", tmp_path) != before


def test_a_change_of_what_is_not_compiled_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "ground.py").write_text(KERNEL.format("2 * number"))
    before = kernels_dir("", tmp_path)

    (tmp_path / "claims.py").write_text("def lean() -> None: ...\n")

    assert kernels_dir("", tmp_path) == before


def test_they_are_kept_where_the_operator_says(tmp_path: Path) -> None:
    assert Path(kernels_dir("/var/lib/egs/kernels", tmp_path)).parent == Path("/var/lib/egs/kernels")
    assert Path(kernels_dir("", tmp_path)).parent == tmp_path / "__pycache__"
