# `make client` writes this file. Do not edit it.
"""Checks the objects of Kubernetes that a job makes, and tells each mistake with its field and, in a text, with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from egs_client.manifests.faults import Fault
from egs_client.manifests.objects import MANIFEST_MAX_CHARS, ObjectFault, object_fault, objects_fault, placed
from egs_client.manifests.pods import security_faults
from egs_client.manifests.shapes import shape_faults
from egs_client.manifests.text import Document, documents_read, field_name


def objects_read(file: str, text: str) -> tuple[list[Document], list[Fault]]:
    """Reads objects from a text. Rules about all of them together are those of `objects_fault`."""
    if len(text) > MANIFEST_MAX_CHARS:
        return [], [Fault(file, 1, "", "too_large", f"It is longer than {MANIFEST_MAX_CHARS} characters.")]
    documents, faults = documents_read(file, text)
    for document in documents:
        faults += [
            Fault(file, document.line_of(fault.path), field_name(fault.path), "invalid_input", fault.text)
            for fault in _faults(document.data)
        ]
    if not faults and (together := objects_fault([document.data for document in documents])):
        faults = [Fault(file, 1, "", "invalid_input", together)]
    return documents, faults


def faults_told(objects: Sequence[Any]) -> list[str]:
    """Says what is wrong with objects that came without a text, one sentence each."""
    if refused := objects_fault(objects):
        return [refused]
    return [placed(place, fault) for place, each in enumerate(objects, start=1) for fault in _faults(each)]


def _faults(each: Any) -> Iterator[ObjectFault]:
    if refused := object_fault(each):
        yield refused
    else:
        yield from chain(shape_faults(each), security_faults(each))
