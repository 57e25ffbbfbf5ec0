"""Reads manifests from files, folders and standard input."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli.exits import REFUSED, Refused, say

if TYPE_CHECKING:
    from egs_client.manifests.text import Document

MOST_BYTES = 900_000  # the server takes a mebibyte, and a line's end takes two bytes on the way there
ENDINGS = (".yaml", ".yml")
RESOURCES = "kustomization.yaml"
SECRET_PREFIX = "EGS_SECRET_"  # noqa: S105 - of names

Files = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", help="A file, a folder with all *.yaml below it, or - for standard input; may be repeated."),
]
Folder = Annotated[str | None, typer.Option("--kustomize", "-k", help="A folder whose kustomization.yaml lists `resources`.")]


def texts_of(files: Iterable[str] | None, folder: str | None = None) -> dict[str, str]:
    """Returns the texts by name. Raises Refused, or Exit after it told a mistake."""
    from egs_client.manifests.faults import Fault
    from egs_client.manifests.text import NO_TEXT

    texts: dict[str, str] = {}
    for name, raw in _raw([*(files or ()), *(_resources(Path(folder)) if folder else ())]):
        if sum(map(len, texts.values())) + len(raw) > MOST_BYTES:
            raise Refused(f"{name}: all manifests together may have {MOST_BYTES} bytes. Give fewer at once.")
        try:
            texts[name] = raw.decode()
        except UnicodeDecodeError as error:
            raise Refused(f"{name} is not UTF-8: {error.reason} at byte {error.start}.") from None
        if (at := texts[name].find("\0")) >= 0:
            fail([Fault(name, texts[name].count("\n", 0, at) + 1, "", "malformed_yaml", NO_TEXT)])
    if not texts:
        raise Refused("Name manifests: -f FILE, -f FOLDER, -f - or -k FOLDER.")
    return texts


def _raw(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if name == "-":
            yield "-", sys.stdin.buffer.read(MOST_BYTES + 1)
            continue
        path = Path(name)
        found = [each for each in sorted(path.rglob("*")) if _is_manifest(each, path)] if path.is_dir() else [path]
        if not found:
            raise Refused(f"{name} has no files that end with {' or '.join(ENDINGS)}.")
        for each in found:
            try:
                with each.open("rb") as file:
                    yield str(each), file.read(MOST_BYTES + 1)
            except OSError as error:
                raise Refused(f"{each} cannot be read: {error.strerror}.") from None


def _is_manifest(path: Path, below: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(below).parts)
    return path.suffix in ENDINGS and path.name != RESOURCES and not is_hidden and path.is_file()


def _resources(folder: Path) -> list[str]:
    from egs_client.manifests.text import documents_read

    ((name, raw),) = _raw([str(folder / RESOURCES)])
    documents, faults = documents_read(name, raw.decode(errors="replace"))
    data: Any = documents[0].data if len(documents) == 1 and not faults else None
    if not isinstance(data, dict) or not isinstance(data.get("resources"), list):
        raise Refused(f"{name} must hold `resources`, a list of files and folders.")
    if other := sorted(data.keys() - {"apiVersion", "kind", "resources"}):
        raise Refused(f"{name}: egs knows `resources` alone, not {', '.join(other)}. Pipe what kustomize builds into egs apply -f -.")
    return [str(folder / str(each)) for each in data["resources"]]


def fail(faults: Sequence[Any]) -> None:
    """Ends the command if there are any: they go to standard error, one a line, as compilers write them."""
    tell(faults)
    if faults:
        raise typer.Exit(REFUSED)


def tell(faults: Iterable[Any]) -> None:
    for fault in sorted(faults, key=lambda fault: (fault.file, fault.line)):
        what = " ".join(filter(None, [fault.kind, fault.name]))
        where = f"{fault.file}:{fault.line}" if fault.file else "pruned"
        say(": ".join(plain(part) for part in (where, what, fault.field, fault.detail) if part))


def plain(text: str) -> str:
    """A manifest may have characters that turn or color what a terminal shows."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def documents_of(texts: dict[str, str]) -> list[Document]:
    from egs_client.manifests.text import documents_read

    return [document for name, text in texts.items() for document in documents_read(name, text)[0]]


def secrets_for(texts: dict[str, str]) -> dict[str, str]:
    """`secretFrom: vision-ops` is read from EGS_SECRET_VISION_OPS."""
    names = {_secret_name(document.data) for document in documents_of(texts)} - {""}
    known = {name: os.environ.get(SECRET_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())) for name in names}
    return {name: secret for name, secret in known.items() if secret}


def _secret_name(data: Any) -> str:
    spec = data.get("spec") if isinstance(data, dict) else None
    name = spec.get("secretFrom") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""
