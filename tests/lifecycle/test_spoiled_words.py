"""What agents are told, and people's ways in: one row that makes no sense hides no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import JSONField, Value

from gpr.models import Claim, Gpr, GprState, GprTemplate
from inventory.models import Reservation
from slices.models import Kubeconfig, Membership, Namespace
from tests.builders import SHAPE, make_slice, make_user
from tests.lifecycle.stage import Stage, fresh
from tests.lifecycle.test_spoiled_clusters import BEFORE_ALL, spoil

pytestmark = pytest.mark.django_db

S = GprState


def two_templates(stage: Stage) -> tuple[GprTemplate, GprTemplate]:
    made = []
    for slice_ in (stage.slice, make_slice(stage.cluster, owner=stage.owner)):
        Namespace.objects.create(slice=slice_, cluster=stage.cluster, name=f"of-{slice_.name}", created_at=stage.now)
        given = {"asked": {"nodes": 1, "duration_s": 60, "shape": SHAPE}, "auto": True, "is_default": True, "created_at": stage.now}
        made.append(GprTemplate.objects.create(name="pods", slice=slice_, **given))
    return made[0], made[1]


@pytest.mark.parametrize("asked", [5, None, [], ["x"], "text", {"nobody": "knows"}, {"nodes": "many"}, {"duration_s": "long"}], ids=str)
def test_a_template_that_asks_for_nothing_that_can_be_asked_for_keeps_no_other_from_its_cluster(asked: Any) -> None:
    stage = Stage(nodes=1)
    spoiled, other = two_templates(stage)
    GprTemplate.objects.filter(pk=spoiled.pk).update(asked=Value(asked, JSONField()))

    reply = stage.agent.sync(at=stage.now, have_templates="")

    assert [told.id for told in reply.templates or ()] == [str(other.slice_id)]


@pytest.mark.parametrize("reasons", [5, None, [5]], ids=str)
def test_an_object_that_waits_for_approval_for_no_reason_that_can_be_read_is_told_that_it_waits(reasons: Any) -> None:
    stage = Stage(nodes=1)
    waits = stage.submit(**stage.approval_needed())
    Claim.objects.create(
        cluster=stage.cluster, uid="u", gpr=waits, namespace="n", name="waits", requester="r", generation=1, asked={}, is_told=True
    )
    Gpr.objects.filter(pk=waits.pk).update(approval_reasons=Value(reasons, JSONField()))

    (told,) = stage.agent.sync(at=stage.now).claims or ()

    assert told.message == "It waits for an administrator to approve it."


def test_what_happened_to_a_box_that_cannot_be_read_is_told_without_its_nodes() -> None:
    stage = Stage(nodes=2)
    stage.active(name="runs")
    spoiled = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="spoiled")
    stage.tick()
    spoil(Reservation, "joined_at", gpr=spoiled.pk)

    marks = stage.agent.sync(at=stage.now, have_life="").life or ()

    assert {mark.gpr_name for mark in marks} == {"runs", "spoiled"}
    assert {mark.gpr_name for mark in marks if mark.nodes} == {"runs"}


def kubeconfig(stage: Stage) -> Kubeconfig:
    given = {"namespace": "n", "duration_s": 3600, "asked_at": stage.now, "due_at": stage.now + timedelta(hours=1)}
    return Kubeconfig.objects.create(slice=stage.slice, cluster=stage.cluster, user=stage.owner, **given)


def test_a_member_of_no_known_role_has_no_account_and_the_others_have() -> None:
    stage = Stage(nodes=1)
    Namespace.objects.create(slice=stage.slice, cluster=stage.cluster, name="n", created_at=stage.now)
    row, user = kubeconfig(stage), make_user()
    Membership.objects.create(slice=stage.slice, user=user, role="nobody")
    Kubeconfig.objects.filter(pk=kubeconfig(stage).pk).update(user=user)

    (told,) = stage.agent.sync(at=stage.now).workspaces or ()

    assert [account.id for account in told.accounts] == [str(row.pk)]


@pytest.mark.parametrize("column", ["due_at", "asked_at"])
def test_a_kubeconfig_that_cannot_be_read_ends_and_stops_nobody(column: str) -> None:
    stage = Stage(nodes=1)
    row = kubeconfig(stage)
    Kubeconfig.objects.filter(pk=row.pk).update(due_at=stage.now)
    spoil(Kubeconfig, column, BEFORE_ALL)

    starts = stage.submit()
    stage.tick()

    assert fresh(starts).state == S.PROVISIONING
    assert Kubeconfig.objects.values_list("state", flat=True).get() == "failed"
