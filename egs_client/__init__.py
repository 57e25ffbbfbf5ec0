"""This is the Python SDK of EGS, and the `egs` command. It knows the REST API and nothing of the hub.

import egs_client as egs

with egs.gpus("H100-80GB", nodes=2, hours=3) as box:
    print(box.gpr.cluster, box.nodes)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# A name is imported when it is first used, so that `import egs_client` takes no time.
_HOMES = {
    "Client": "egs_client.sync.client",
    "AsyncClient": "egs_client.aio.client",
    "gpus": "egs_client.sync.box",
    "async_gpus": "egs_client.aio.box",
    "errors": "egs_client",
    "models": "egs_client",
}

if TYPE_CHECKING:
    from egs_client import errors, models
    from egs_client.aio.box import async_gpus
    from egs_client.aio.client import AsyncClient
    from egs_client.sync.box import gpus
    from egs_client.sync.client import Client

__all__ = ["AsyncClient", "Client", "async_gpus", "errors", "gpus", "models"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
