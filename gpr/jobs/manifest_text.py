"""Reads a manifest that people typed: each mistake with its line and its field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from core.errors import InvalidInput
from gpr.jobs.pod_security import pods_fault
from protocol.manifests.text import Document, documents_read, field_name
from protocol.tenancy.workloads import MANIFEST_MAX_CHARS, object_fault

TOLD: Final = 10  # mistakes


def objects_of_text(text: str) -> list[dict[str, Any]]:
    """Raises InvalidInput. The check of the job covers rules about all objects together."""
    if len(text) > MANIFEST_MAX_CHARS:
        raise InvalidInput({"manifest": [f"It is longer than {MANIFEST_MAX_CHARS} characters."]})
    documents, unread = documents_read("", text)
    found = [_told(fault.line, fault.field, fault.detail) for fault in unread]
    found += [_told(*fault) for document in documents for fault in _faults(document)]
    if found:
        raise InvalidInput({"manifest": found[:TOLD]})
    return [document.data for document in documents]


def _faults(document: Document) -> Iterator[tuple[int, str, str]]:
    if fault := object_fault(document.data) or pods_fault(document.data):
        yield document.line_of(fault.path), field_name(fault.path), fault.text


def _told(line: int, field: str, text: str) -> str:
    return f"Line {line}{f', {field}' if field else ''}: {text}"
