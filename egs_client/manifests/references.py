# `make client` writes this file. Do not edit it.
"""Checks the syntax of image references and object names in Kubernetes."""

from __future__ import annotations

import re
from typing import Final

NAME_MAX_CHARS: Final = 255  # of an image's name, without tag and digest
OBJECT_NAME_MAX_CHARS: Final = 253

# [registry[:port]/]path[:tag][@digest], the grammar of container runtimes
_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PART: Final = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_DIGEST: Final = r"(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})"
_IMAGE: Final = re.compile(rf"(?P<name>(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*)(?::\w[\w.-]{{0,127}})?(?:@{_DIGEST})?", re.ASCII)
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def is_image(text: str) -> bool:
    found = _IMAGE.fullmatch(text)
    return found is not None and len(found["name"]) <= NAME_MAX_CHARS


def is_object_name(text: str) -> bool:
    return len(text) <= OBJECT_NAME_MAX_CHARS and _OBJECT_NAME.fullmatch(text) is not None
