"""The client has every operation of the API, and what takes several of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from egs_client.aio.api import AsyncApi
from egs_client.aio.transport import PATIENCE_S, TIMEOUT_S
from egs_client.aio.watch import gpr_end, gpr_wait, watch_events, watch_gpr
from egs_client.config import access
from egs_client.models.gpr import Event, GprDetail


class AsyncClient(AsyncApi):
    """Without `url` and `token` it uses those that `egs login` stored, or that EGS_URL and EGS_TOKEN name."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        profile: str | None = None,
        workspace: str = "",
        patience_s: float = PATIENCE_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if url is None or token is None:
            found = access(profile)
            url, token, workspace = found.url, found.token, workspace or found.workspace
        self.workspace = workspace
        super().__init__(url, token, patience_s=patience_s, timeout_s=timeout_s)

    def watch_gpr(self, id: str, *, away_max_s: float | None = None, look_s: float | None = None) -> AsyncIterator[GprDetail]:
        """Yields the GPR now, then after each change until it has ended; with `look_s` also after that time without a change.

        Outages of up to `away_max_s` go by unseen; None: of any length.
        """
        return watch_gpr(self, id, away_max_s=away_max_s, look_s=look_s)

    def watch_events(self, *, since: datetime | str | None = None, away_max_s: float | None = None, **filters: Any) -> AsyncIterator[Event]:
        """Yields Events from `since` on (default: now), oldest first. A later watch goes on from `at` of the last one, which it repeats."""
        return watch_events(self, since=since, away_max_s=away_max_s, **filters)

    async def wait(self, id: str, *, for_s: float | None = None) -> GprDetail:
        """Returns the GPR once it is ACTIVE. Raises Ended or WaitedTooLong."""
        return await gpr_wait(self, id, for_s=for_s)

    async def end(self, id: str) -> GprDetail:
        """Cancels a GPR that waits, releases one that holds nodes; nothing for one that is over."""
        return await gpr_end(self, id)
