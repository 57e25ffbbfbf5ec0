"""Keeps the rows that plans read in the memory of the process, and brings them up to date by what changed."""

from __future__ import annotations

from collections.abc import Collection, Set
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from core.clock import db_now
from core.written_sql import WrittenQuery, load_together
from gpr.allocation.change_log import Changes
from gpr.allocation.memory import Arrivals, past_arrivals
from gpr.allocation.rows import (
    GprRow,
    HeldRow,
    PromiseRow,
    allowed_clusters,
    held_by_gpr,
    held_rows,
    named_clusters,
    queued_parts,
    queued_rows,
    sets_of,
    shadow_rows,
)
from gpr.allocation.snapshot import quotas_load
from gpr.quotas.fairness import UsageRow, usage_rows
from inventory.models import Supply
from inventory.rows import InventoryNode, WindowRow, nodes_there, windows_since
from planner.snapshot import Quota

# More are read faster by reading all.
KEYS_MOST: Final = 500
# Maintenance that ended longer ago is read again when a clock was set back.
ENDED_KEPT: Final = timedelta(hours=1)
_SUPPLIES: Final = WrittenQuery(Supply.objects.order_by().values_list("pk")[:1])


class LiveRows:
    """Queued GPRs with their promises, the nodes that GPRs hold, nodes, and the clusters that requests may use."""

    def __init__(self) -> None:
        self.requests: dict[str, GprRow] = {}
        self.promises: dict[str, PromiseRow] = {}
        self.held: dict[str, tuple[HeldRow, ...]] = {}
        self.nodes: tuple[InventoryNode, ...] = ()  # in the order in which the planner chooses among equals
        self.arrivals = Arrivals()
        self._after: dict[UUID, UUID] = {}  # the predecessors of those that have one
        self.clusters_of_gpr: dict[UUID, set[UUID]] = {}
        self.clusters_of_slice: dict[UUID, set[UUID]] = {}
        self.quotas: tuple[Quota, ...] = ()
        self.usage: list[UsageRow] = []
        self.has_supplies = False
        self._windows: list[WindowRow] = []
        self._windows_from = datetime.max.replace(tzinfo=UTC)

    def read(self, changes: Changes) -> set[str] | None:
        """Returns the ids of the GPRs that were read; None: all."""
        self._read_nodes(None if changes.everything else changes.nodes)
        self._read_slices(None if changes.everything else changes.slices)
        gprs = set(changes.gprs)
        if changes.slices:
            gprs.update(row.pk for row in self.requests.values() if row.slice_id in changes.slices)
            gprs.update(row.gpr_id for row, *_ in self.held.values() if row.slice_id in changes.slices)
        gprs.update(pk for pk, after_id in self._after.items() if after_id in changes.gprs)
        every = changes.everything or len(gprs) > KEYS_MOST
        self._read_gprs(None if every else gprs)
        if changes.settings or changes.everything:
            self._read_settings()  # last, so that every project of a GPR that was read is among them
        return None if every else set(map(str, gprs))

    def windows_ahead(self, now: datetime) -> list[WindowRow]:
        if now < self._windows_from:  # the clock was set back
            self._read_windows(now)
        return [window for window in self._windows if window.ends_at > now]

    def _read_settings(self) -> None:
        self.quotas, self.usage, self.has_supplies = quotas_load(), usage_rows(), bool(_SUPPLIES())
        self._read_windows(db_now())

    def _read_windows(self, now: datetime) -> None:
        since = now - ENDED_KEPT  # a request that began a moment ago plans for that moment
        self._windows, self._windows_from = windows_since(since), since

    def _read_gprs(self, keys: Set[UUID] | None) -> None:
        if keys is None:
            self.requests, self.promises, self.held, self.clusters_of_gpr, self._after = {}, {}, {}, {}, {}
            self.arrivals = Arrivals()
        elif not keys:
            return
        for pk in keys or ():
            self.requests.pop(str(pk), None)
            self.promises.pop(str(pk), None)
            self.held.pop(str(pk), None)
            self._after.pop(pk, None)
            self.clusters_of_gpr.pop(pk, None)
        waiting, shadows = load_together((queued_rows, keys), (shadow_rows, keys))
        queued: dict[UUID, bool] = {}
        for row, promise, names_clusters in queued_parts(waiting):
            queued[row.pk] = names_clusters
            self.requests[str(row.pk)] = row
            if row.after_id is not None:
                self._after[row.pk] = row.after_id
            if promise is not None:
                self.promises[str(row.pk)] = promise
        naming = None if keys is None else [pk for pk, names_clusters in queued.items() if names_clusters]
        self.clusters_of_gpr.update(sets_of(named_clusters(naming)))
        self.arrivals.replace(keys or (), past_arrivals(shadows))
        self.held.update(held_by_gpr(held_rows(None if keys is None else keys - queued.keys())))

    def _read_nodes(self, keys: Collection[UUID] | None) -> None:
        if keys is not None and not keys:
            return
        stay = () if keys is None else (node for node in self.nodes if node.pk not in keys)
        self.nodes = tuple(sorted((*stay, *nodes_there(keys)), key=lambda node: (node.name, node.pk)))

    def _read_slices(self, keys: Collection[UUID] | None) -> None:
        if keys is None:
            self.clusters_of_slice = {}
        elif not keys:
            return
        for pk in keys or ():
            self.clusters_of_slice.pop(pk, None)
        self.clusters_of_slice.update(sets_of(allowed_clusters(keys)))
