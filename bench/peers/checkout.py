"""Builds other projects' programs from a checkout that a variable names, to run them beside ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.figures import NotRun


def folder_of(name: str, wanted: Iterable[str]) -> Path:
    """Returns the folder that the variable names. Raises NotRun where it names none, or one without these."""
    given = os.environ.get(name)
    if not given:
        raise NotRun(f"{name} names no folder")
    folder = Path(given)
    missing = [each for each in wanted if not (folder / each).exists()]
    if missing:
        raise NotRun(f"{name}: there is no {', '.join(missing)} in {folder}")
    return folder


def built(who: str, source: Path, packages: Mapping[str, str], out: Path) -> Path:
    """The folder `out`, with a program of Go for each name, from its package in the checkout. Raises NotRun where a build fails."""
    for name, package in packages.items():
        said(f"the build of {who}", ["go", "-C", str(source), "build", "-o", str(out / name), f"./{package}"])
    return out


def said(who: str, command: Sequence[str], **settings: str) -> str:
    """Returns what the command prints. Raises NotRun with its last words when it fails."""
    try:
        done = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise NotRun(f"{who}: {error}") from error
    if done.returncode:
        raise NotRun(f"{who} failed: {done.stdout[-400:].strip()}")
    return done.stdout
