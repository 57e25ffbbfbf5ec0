"""Keeps the counts of each GPU over time: the history by which faults are judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from inventory.models import Gpu, Node
from observability.models import FaultCount, LatestReading
from observability.remediation.faults import COUNTS, Counts
from observability.xid_counts import counts_from
from protocol.gpus.xids import new_xids

KEPT: Final = timedelta(days=8)
APART_MOST: Final = timedelta(minutes=1)  # from one look at the counts to the next


def counts_keep(*, node: Node, now: datetime) -> None:
    """Faults are judged by what is counted from now on."""
    readings = LatestReading.objects.filter(gpu__node=node, gpu__gone_at=None).select_related("gpu")
    newest = {row.gpu_id: row for row in FaultCount.objects.filter(gpu__node=node, is_newest=True)}
    counts_store([(reading.gpu_id, counts_of(reading, newest.get(reading.gpu_id))) for reading in readings], now)


def counts_prune(*, now: datetime) -> None:
    FaultCount.objects.filter(at__lt=now - KEPT, is_newest=False).delete()


def counts_of(reading: LatestReading, last: FaultCount | None) -> dict[str, Any]:
    """A count that was not measured is as it was."""
    found = {}
    for name in COUNTS:
        value = getattr(reading, name)
        found[name] = value if value is not None else getattr(last, name, 0)
    return found


def known_counts(row: FaultCount) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COUNTS}


def xids_counted(gpu_ids: Iterable[UUID], *, since: datetime, until: datetime) -> Iterator[tuple[UUID, datetime, datetime, int, int]]:
    """Yields GPU, the time after which and that at which the Xid was read, its number, and how often it came."""
    before: dict[UUID, FaultCount] = {}
    for row in FaultCount.objects.filter(gpu__in=list(gpu_ids), at__lte=until).order_by("at", "pk"):
        was = before.get(row.gpu_id)
        before[row.gpu_id] = row
        if was is not None and row.at >= since:
            new = new_xids(row.xid, counts_from(row.xid_counts), was.xid, counts_from(was.xid_counts))
            yield from ((row.gpu_id, row.at - APART_MOST, row.at, number, count) for number, count in new.items())


@transaction.atomic
def counts_store(counts: Sequence[tuple[UUID, Counts]], now: datetime) -> None:
    if not counts:
        return
    gpu_ids = [gpu_id for gpu_id, _ in counts]
    list(Gpu.objects.select_for_update().filter(pk__in=gpu_ids).order_by("pk").values_list("pk"))
    FaultCount.objects.filter(gpu__in=gpu_ids, is_newest=True).update(is_newest=False)
    FaultCount.objects.bulk_create(FaultCount(gpu_id=gpu_id, at=now, **values) for gpu_id, values in counts)
