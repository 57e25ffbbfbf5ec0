"""Names from the server for the shell's completion, kept for half a minute. It never fails and never waits for long."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from egs_client.gprs import workspace_meant

if TYPE_CHECKING:
    from egs_client.sync.client import Client

FRESH_S = 30.0
TIMEOUT_S = 2.0


def completer(kind: str, read: Callable[[Client], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in _names(kind, read) if name.startswith(incomplete)]

    return complete


def _service_accounts(client: Client) -> list[str]:
    """Returns those of the workspace that commands mean when they name none, without its name."""
    slice_ = client.workspace or workspace_meant(client.me.get().slices)
    rows = client.slices.service_accounts.list(slice_).all(limit=100) if slice_ else []
    return [row.name.removeprefix(f"{slice_}:") for row in rows]


gprs = completer("gprs", lambda client: [gpr.name for gpr in client.gprs.list(ended=False, page_size=100).all(limit=100)])
jobs = completer("jobs", lambda client: [job.name for job in client.jobs.list(page_size=100).all(limit=100)])
notebooks = completer("notebooks", lambda client: [job.name for job in client.notebooks.list(page_size=100).all(limit=100)])
workspaces = completer("workspaces", lambda client: [own.name for own in client.me.get().slices])
service_accounts = completer("service-accounts", _service_accounts)
shapes = completer("shapes", lambda client: [shape.name for shape in client.shapes.list().all()])
clusters = completer("clusters", lambda client: [cluster.name for cluster in client.clusters.list().all()])
nodes = completer("nodes", lambda client: [node.name for node in client.nodes.list(page_size=500).all(limit=500)])
templates = completer("templates", lambda client: [template.name for template in client.templates.list().all()])


def objects(word: str) -> Callable[[str], list[str]]:
    """Names of objects of a kind of manifest, as `workspaces`."""
    from egs_client.manifests.kinds import kind_of_word
    from egs_client.manifests.text import documents_read

    kind = kind_of_word(word)
    if kind is None or not kind.name_field:
        return lambda incomplete: []

    def read(client: Client) -> list[str]:
        rows = [document.data for document in documents_read("", client.manifests.export(kind=kind.name).text)[0]]
        return [str(row["metadata"]["name"]) for row in rows]

    return completer(kind.name, read)


def one_of(*words: str) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _names(kind: str, read: Callable[[Client], list[str]]) -> list[str]:
    from egs_client.config import access
    from egs_client.errors import EgsError

    try:
        found = access()
    except EgsError:
        return []
    path = _folder() / f"{found.profile or 'env'}-{kind}.json"
    with contextlib.suppress(OSError, ValueError):
        if time.time() - path.stat().st_mtime < FRESH_S:
            kept: list[str] = json.loads(path.read_text())
            return kept
    from egs_client.sync.client import Client

    logging.getLogger("egs_client").setLevel(logging.ERROR)  # nothing but names belongs at the prompt
    try:
        with Client(found.url, found.token, patience_s=0, timeout_s=TIMEOUT_S) as client:
            names = read(client)
    except EgsError:
        return []
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(json.dumps(names))
    return names


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egs"
