"""`python -m planner.compile` compiles all kernels, so that no request waits for it.

Prints a path that exists as long as the machine code does.
"""

from __future__ import annotations

import pkgutil
import shutil
import sys
from fcntl import LOCK_EX, flock
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import numba
import numpy as np
from numba import types as numba_types

import planner
from planner.kernels import KERNELS, KERNELS_DIR

# Folders of other sources that are kept: other branches, and the previous release, whose processes may still run.
OTHERS_KEPT: Final = 5
types: Final[Any] = numba_types  # numba has no annotations


def compile_all() -> None:
    for module in pkgutil.walk_packages(planner.__path__, "planner."):
        import_module(module.name)
    KERNELS_DIR.mkdir(parents=True, exist_ok=True)
    with (KERNELS_DIR / "lock").open("w") as lock:
        flock(lock, LOCK_EX)  # a second process loads what the first one compiled
        for kernel in KERNELS:
            kernel.compile(signature_of(kernel.py_func))
        _done_mark().touch()
    _drop_old(KERNELS_DIR.parent)


def is_compiled() -> bool:
    return _done_mark().exists()


def signature_of(function: Any) -> tuple[Any, ...]:
    hints = get_type_hints(function, include_extras=True)
    return tuple(_type_of(hint) for name, hint in hints.items() if name != "return")


def _type_of(hint: Any, dimensions: int = 1) -> Any:
    if hint is int:
        return types.int64
    if hint is bool:
        return types.boolean
    origin = get_origin(hint)
    if origin is Annotated:
        return _type_of(*get_args(hint))
    if origin is np.ndarray:
        (scalar,) = get_args(get_args(hint)[1])
        return types.Array(numba.from_dtype(np.dtype(scalar)), dimensions, "C")
    if origin is list:
        return types.List(_type_of(*get_args(hint)))
    if origin is tuple:
        return types.BaseTuple.from_types([_type_of(part) for part in get_args(hint)])
    fields = get_type_hints(hint, include_extras=True)
    return types.BaseTuple.from_types([_type_of(part) for part in fields.values()], hint)


def _done_mark() -> Path:
    return KERNELS_DIR / "all-compiled"


def _drop_old(base: Path) -> None:
    """Deletes old machine code: each change of a kernel leaves some 15 MB behind."""
    others = [folder for folder in base.glob("kernels-*") if folder != KERNELS_DIR]
    others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[OTHERS_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    compile_all()
    sys.stdout.write(f"{_done_mark()}\n")
