"""Makes all files of `egs_client` that nobody writes by hand, among them a copy of protocol/manifests and what it imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from egs.sdk.schema import api_of, document
from egs.sdk.sync import sync_of
from egs.sdk.write import MADE, formatted, models_of, operations_of


def files_made(package: Path) -> dict[Path, str]:
    """Returns texts by path. `package` is egs_client, whose async half it reads."""
    api = api_of(document())
    operations = operations_of(api)
    texts = {f"models/{name}": text for name, text in models_of(api).items()}
    texts |= {f"aio/api/{name}": text for name, text in operations.items()}
    texts |= {f"sync/api/{name}": sync_of(text) for name, text in operations.items()}
    texts |= {f"sync/{path.name}": MADE + sync_of(path.read_text()) for path in (package / "aio").glob("*.py")}
    texts |= {f"manifests/{path.name}": MADE + _own(path.read_text()) for path in _copied(package.parent / "protocol")}
    return {package / name: text for name, text in formatted(texts).items()}


def _copied(protocol: Path) -> Iterator[Path]:
    yield from (protocol / "manifests").glob("*.py")
    yield protocol / "references.py"


def _own(text: str) -> str:
    """The wheel has nothing of `protocol`, so it has a copy."""
    own = text.replace("from protocol.references", "from egs_client.manifests.references")
    return own.replace("from protocol.manifests", "from egs_client.manifests")


def files_left_over(package: Path, made: dict[Path, str]) -> list[Path]:
    """Files of earlier runs for which there is no operation any more."""
    folders = (package / "models", package / "aio" / "api", package / "sync", package / "sync" / "api", package / "manifests")
    return [path for folder in folders for path in folder.glob("*.py") if path not in made and path.name != "__init__.py"]
