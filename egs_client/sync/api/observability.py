# `make client` writes this file. Do not edit it.

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from egs_client.models import observability as models
from egs_client.sync.pages import Pages
from egs_client.sync.resource import Resource


class Hotspots(Resource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        shape: str | UnsetType = UNSET,
        view: Literal["faulty", "hot", "idle", "stale"] | UnsetType = UNSET,
    ) -> Pages[models.Hotspot]:
        """The newest reading of each GPU: for administrators of all, for members of those that their workspaces hold.

        page_size: Rows a page.
        """
        return Pages(
            self.client,
            "hotspots/",
            params={"cluster": cluster, "node": node, "page_size": page_size, "shape": shape, "view": view},
            kind=models.Hotspot,
        )
