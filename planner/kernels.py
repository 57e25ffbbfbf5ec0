"""Declares kernels: functions that numba compiles, since plain Python misses the goals for speed by far (bench/README.md).

Only this module and compile.py use numba. compile.py compiles everything that is declared here beforehand; otherwise a request
would wait for seconds under the planner's lock.
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

# Every kernel of every imported module, in order of definition.
KERNELS: Final[list[Any]] = []
_DECLARED: Final = re.compile(rb"^@(compiled|lean|spliced)$", re.MULTILINE)


def kernels_dir(base: str, folder: Path) -> Path:
    """Returns the folder of the machine code of these sources, shared by all checkouts.

    Its name has a hash of all modules with kernels: a kernel contains those that it calls, but numba checks its own module only.
    """
    texts = (path.read_bytes() for path in sorted(folder.rglob("*.py")))
    digest = sha256(b"".join(text for text in texts if _DECLARED.search(text))).hexdigest()[:16]
    return Path(base or _cache_of_user() or folder / "__pycache__") / f"kernels-{digest}"


def _cache_of_user() -> Path | None:
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egs-kernels"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None


_FOLDER: Final = Path(__file__).parent
KERNELS_DIR: Final = kernels_dir(numba.config.CACHE_DIR, _FOLDER)  # type: ignore[attr-defined]  # set when numba loads


class Locator(InTreeCacheLocator):
    """numba's own locators use the path of the checkout."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        self._cache_path = str(KERNELS_DIR)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        return super().from_function(py_func, py_file) if _FOLDER in Path(py_file).parents else None  # type: ignore[no-untyped-call]


numba.config.CACHE_LOCATOR_CLASSES = ",".join(  # type: ignore[attr-defined]
    [f"{__name__}.Locator", "UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator"]
)


def compiled(function: Function) -> Function:
    return _kernel(function)


def lean(function: Function) -> Function:
    """Compiles without reference counts for arrays, which cost half the time of a plan.

    It must not make arrays or lists, call a `compiled` function that returns one, or return other than numbers: memory would leak or be
    freed too early. Views and `spliced` functions are safe.
    """
    return _kernel(function, _nrt=False)


def spliced(function: Function) -> Function:
    """Inlines into each kernel that calls it, so that it may return views."""
    return _kernel(function, inline="always")


def _kernel(function: Function, **options: Any) -> Function:
    kernel = numba.njit(cache=True, **options)(function)
    if kernel is not function:  # they are the same with NUMBA_DISABLE_JIT
        KERNELS.append(kernel)
    return cast("Function", kernel)


def compiled_here() -> list[str]:
    return [kernel.py_func.__name__ for kernel in KERNELS for _ in kernel.stats.cache_misses]
