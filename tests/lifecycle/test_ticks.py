"""What one tick does, and what it leaves for the next."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpr.allocator import tick
from gpr.models import Gpr, GprState, Promise, PromiseMove
from gpr.services.requests import gpr_submit
from inventory.models import ReservedGpu
from tests.builders import NOW, agent_heard, make_cluster, make_slice, make_user, spec

pytestmark = pytest.mark.django_db


def starts() -> dict[str, object]:
    waiting = Promise.objects.filter(gpr__state=GprState.QUEUED).order_by("slot_start_at")
    return dict(waiting.values_list("gpr__name", "slot_start_at"))


def test_a_start_between_two_seconds_delays_nobody() -> None:
    """The planner counts whole seconds. The books of a box that starts in the middle of one must not run into the next one's slot."""
    cluster, ann = make_cluster(nodes=1), make_user(is_admin=True)
    at = NOW + timedelta(seconds=0.4)
    for index, duration_s in enumerate([600, 600, 600, 100]):
        gpr_submit(actor=ann, spec=spec(make_slice(cluster), name=f"g{index}", duration_s=duration_s), now=at)

    tick(now=at + timedelta(seconds=1))
    after_start = starts()
    tick(now=at + timedelta(seconds=2))

    assert list(after_start) == ["g1", "g2", "g3"]
    assert starts() == after_start
    assert not PromiseMove.objects.exists()
