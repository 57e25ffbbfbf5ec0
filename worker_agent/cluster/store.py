"""Stores documents of a simulated cluster. A kill -9 never tears a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Store(Protocol):
    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, body: bytes) -> None: ...


class MemoryStore:
    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._bodies.get(name)

    def write(self, name: str, body: bytes) -> None:
        self._bodies[name] = body


class FileStore:
    def __init__(self, directory: Path) -> None:
        # Only the owner may read it, since it holds the agent's credential.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, body: bytes) -> None:
        new = self._directory / f".{name}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._directory / name)
