"""Declares the planner's kernels: functions that numba compiles, since plain Python misses the goals for speed by far (bench/README.md).

Lives here: the decorators, the list of all kernels, and the folder in which their machine code is kept for the next process.
Must not live here: numba elsewhere. What one of these decorators declares is on the list, so that planner.compile compiles it
beforehand: a kernel that is first compiled when somebody waits for it takes seconds, while the planner's lock is held.

To a reader kernels are ordinary Python, and with NUMBA_DISABLE_JIT=1 they run as such. The annotations of their arguments are the types
that they are compiled for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from numba.core.caching import InTreeCacheLocator

Function = TypeVar("Function", bound=Callable[..., Any])

# Every kernel of every module that was imported, in the order of their definitions.
KERNELS: Final[list[Any]] = []
_DECLARED: Final = re.compile(rb"^@(compiled|lean|spliced)$", re.MULTILINE)


def kernels_dir(base: str, folder: Path) -> Path:
    """Where the machine code of these very sources is kept, below `base` or in the user's cache: all checkouts of them share it.

    A kernel has those of other modules that it calls built in, and would be used as it was when one of them has changed: numba looks at
    its own module alone.
    """
    texts = (path.read_bytes() for path in sorted(folder.rglob("*.py")))
    digest = sha256(b"".join(text for text in texts if _DECLARED.search(text))).hexdigest()[:16]
    return Path(base or _cache_of_user() or folder / "__pycache__") / f"kernels-{digest}"


def _cache_of_user() -> Path | None:
    """None where there is no home that can be written to."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egs-kernels"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None


_FOLDER: Final = Path(__file__).parent
KERNELS_DIR: Final = kernels_dir(numba.config.CACHE_DIR, _FOLDER)  # type: ignore[attr-defined]  # made as it loads


class Locator(InTreeCacheLocator):
    """Where numba keeps one kernel: its own would put the path of the checkout into it."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        self._cache_path = str(KERNELS_DIR)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """None for what is no kernel."""
        return super().from_function(py_func, py_file) if _FOLDER in Path(py_file).parents else None  # type: ignore[no-untyped-call]


numba.config.CACHE_LOCATOR_CLASSES = ",".join(  # type: ignore[attr-defined]
    [f"{__name__}.Locator", "UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator"]
)


def compiled(function: Function) -> Function:
    """Loads the machine code from disk on the first call, or compiles it and keeps it there."""
    return _kernel(function)


def lean(function: Function) -> Function:
    """Compiles like `compiled`, but counts no references to arrays: each call would count its arguments, for half the time of a plan.

    So it may neither make arrays or lists, nor call what is `compiled` and answers with one; numbers alone are answered. It may make
    views and call what is `spliced`. Else memory is lost, or freed too early: tests/planner/test_memory.py looks for that.
    """
    return _kernel(function, _nrt=False)


def spliced(function: Function) -> Function:
    """Made part of each kernel that calls it, and as lean as that: for what answers with views."""
    return _kernel(function, inline="always")


def _kernel(function: Function, **options: Any) -> Function:
    kernel = numba.njit(cache=True, **options)(function)
    if kernel is not function:  # it is, with NUMBA_DISABLE_JIT
        KERNELS.append(kernel)
    return cast("Function", kernel)


def compiled_here() -> list[str]:
    """The kernels that this process has compiled, instead of loading them."""
    return [kernel.py_func.__name__ for kernel in KERNELS for _ in kernel.stats.cache_misses]
