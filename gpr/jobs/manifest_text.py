"""Reads a manifest that people typed, and tells each mistake with its line and its field."""

from __future__ import annotations

from typing import Any, Final

from core.errors import InvalidInput
from protocol.manifests.faults import Fault
from protocol.manifests.workloads import objects_read

TOLD: Final = 10  # mistakes


def objects_of_text(text: str) -> list[dict[str, Any]]:
    """Raises InvalidInput."""
    documents, faults = objects_read("", text)
    if faults:
        raise InvalidInput({"manifest": [_told(fault) for fault in faults[:TOLD]]})
    return [document.data for document in documents]


def _told(fault: Fault) -> str:
    return f"Line {fault.line}{f', {fault.field}' if fault.field else ''}: {fault.detail}"
