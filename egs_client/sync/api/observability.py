# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Sequence
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


class Pods(Resource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        node: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        q: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        view: Literal["ended", "held-back", "running"] | UnsetType = UNSET,
        workload: str | UnsetType = UNSET,
    ) -> Pages[models.Pod]:
        """Pods that hold GPUs or ask for them, and what keeps each from running.

        page_size: Rows a page.
        q: Part of its name, workload, node or request.
        view: Ended ones are listed for a day.
        workload: Id of the workload.
        """
        return Pages(
            self.client,
            "pods/",
            params={
                "cluster": cluster,
                "gpr": gpr,
                "namespace": namespace,
                "node": node,
                "page_size": page_size,
                "q": q,
                "slice": slice,
                "view": view,
                "workload": workload,
            },
            kind=models.Pod,
        )


class Workloads(Resource):
    def list(
        self,
        *,
        cluster: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        q: str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        state: Sequence[Literal["ENDED", "RUNNING", "WAITING"]] | UnsetType = UNSET,
        view: Literal["ended", "idle", "running", "straggling", "waiting"] | UnsetType = UNSET,
    ) -> Pages[models.Workload]:
        """What runs and waits in workspaces: pods, grouped by what owns them.

        gpr: A request that carries its pods, or did.
        kind: As JobSet.
        page_size: Rows a page.
        q: Part of its name, model, namespace or request.
        """
        return Pages(
            self.client,
            "workloads/",
            params={
                "cluster": cluster,
                "gpr": gpr,
                "kind": kind,
                "namespace": namespace,
                "page_size": page_size,
                "q": q,
                "slice": slice,
                "state": state,
                "view": view,
            },
            kind=models.Workload,
        )

    def get(self, ref: str) -> models.WorkloadDetail:
        """What runs and waits in workspaces: pods, grouped by what owns them."""
        return self.client.call("GET", f"workloads/{self.quoted(ref)}/", kind=models.WorkloadDetail)
