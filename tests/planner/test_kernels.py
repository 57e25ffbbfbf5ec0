"""The planner's compiled functions are kept on disk, and never used with other sources than they were made of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from planner.compile import compile_all, signature_of
from planner.kernels import KERNELS, KERNELS_DIR, kernels_dir

KERNEL = "@lean\ndef double(number: int) -> int:\n    return {}\n"


def test_all_kernels_are_compiled_beforehand() -> None:
    """tests/conftest.py fails each test that compiles one later, for other types."""
    compile_all()

    assert [kernel.py_func.__name__ for kernel in KERNELS if signature_of(kernel.py_func) not in kernel.overloads] == []


def test_no_kernel_is_declared_in_another_way() -> None:
    compile_all()
    modules = [module for name, module in sys.modules.items() if name.startswith("planner.")]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}

    assert found == set(KERNELS)


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


def test_they_are_kept_where_the_operator_says_else_in_the_user_s_cache_else_beside_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert kernels_dir("/var/lib/egs/kernels", tmp_path).parent == Path("/var/lib/egs/kernels")
    assert kernels_dir("", tmp_path).parent == tmp_path / "cache" / "egs-kernels"

    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert kernels_dir("", tmp_path).parent == tmp_path / "__pycache__"


def test_all_checkouts_of_the_same_sources_share_them() -> None:
    assert {kernel._cache.cache_path for kernel in KERNELS} == {str(KERNELS_DIR)}
