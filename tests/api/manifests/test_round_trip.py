from __future__ import annotations

import pytest
from django.db import transaction

from journal.models import Event
from manifests.models import ManifestObject
from protocol.manifests.kinds import KINDS
from tests import factories
from tests.api.conftest import Caller, World
from tests.api.manifests.setups import SECRETS, SETUP, acts, apply

NEED_A_PROVIDER = {"kind: PlatformGroup", "kind: WorkspaceGroup"}


@pytest.mark.both_databases
def test_a_set_up_that_is_exported_and_applied_to_an_empty_egs_is_the_same_byte_for_byte(admin: Caller, world: World) -> None:
    factories.cluster("borealis")
    with transaction.atomic():  # this EGS is empty again afterwards
        first = apply(admin, SETUP, secrets=SECRETS)
        assert set(acts(first)) == {"created", "changed"}
        exported = admin.get("manifests/export/").json()["text"]
        transaction.set_rollback(True)
    assert not ManifestObject.objects.exists()

    second = apply(admin, exported, secrets=SECRETS)

    assert second.status_code == 200, second.content
    assert admin.get("manifests/export/").json()["text"] == exported
    assert {f"kind: {kind.name}" for kind in KINDS if kind.is_setup} - set(exported.splitlines()) == NEED_A_PROVIDER
    for secret in (*SECRETS.values(), "egsw_"):
        assert secret not in exported
    events = Event.objects.count()
    again = apply(admin, exported)
    assert set(acts(again)) == {"unchanged"}
    assert not any(row["changes"] for row in again.json()["results"])
    assert Event.objects.count() == events
