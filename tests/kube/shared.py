"""Control planes that all processes of one test run share: the first who needs one starts it, the last who leaves ends it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kube.cluster import Cluster, deploy_kube, started


@contextmanager
def shared(name: str, folder: Path, prepare: Callable[[Cluster], object]) -> Iterator[Cluster]:
    """All who share name the same `folder`. `prepare` is called with it once, before anybody uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # let go by the kernel, however this process ends
        with (folder / f"{name}.start").open("a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            (made,) = started(name, folder=folder / "kube")
            mark = made.folder / "prepared"
            if not mark.exists():
                prepare(made)
                mark.touch()
        try:
            yield made
        finally:
            with suppress(BlockingIOError):  # somebody else uses it still
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                deploy_kube("down", name, folder=folder / "kube")
