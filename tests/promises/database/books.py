"""Rows of the schedule written straight to the database, past every service: what the database itself allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.db import IntegrityError, connection, transaction

from gpr.models import Gpr
from inventory.models import Gpu, Reservation, ReservationState, ReservedGpu
from tests.builders import NOW

_epoch = count(1_000_000)


def book(gpu: Gpu, gpr: Gpr, starts_at: datetime, ends_at: datetime, state: ReservationState = ReservationState.HELD) -> ReservedGpu:
    """Raises IntegrityError."""
    released_at = ends_at if state == ReservationState.RELEASED else None
    reservation = Reservation.objects.create(
        gpr=gpr,
        slice_id=gpr.slice_id,
        cluster_id=gpu.node.cluster_id,
        node_id=gpu.node_id,
        epoch=next(_epoch),
        state=state,
        starts_at=starts_at,
        ends_at=ends_at,
        gang_count=1,
        enter_by_at=ends_at,
        duration_s=1,
        released_at=released_at,
    )
    return ReservedGpu.objects.create(reservation=reservation, gpu=gpu, state=state, starts_at=starts_at, ends_at=ends_at)


def moment(halves: int) -> datetime:
    """Half seconds after NOW: times with and without a fraction are stored as texts of different length on SQLite."""
    return NOW + timedelta(seconds=halves / 2)


def is_refused(work: Callable[[], object]) -> bool:
    """Does the database refuse it?"""
    try:
        with transaction.atomic():
            work()
    except IntegrityError:
        return True
    return False


def raw(sql: str, *params: Any) -> int:
    """Returns how many rows it hit."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        hit: int = cursor.rowcount
        return hit


@contextmanager
def undone() -> Iterator[None]:
    """Undoes one example of many: nothing of it stays."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
