"""Requests and templates are objects that the agent keeps in memory: each namespace may have so many, once the cluster can count them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from protocol.tenancy.workspaces import AccessRole, BindingState
from tests.agent.tenancy.test_revoking import TenancyApi, look, tenancy_at
from worker_agent.kube.api.client import Forbidden
from worker_agent.kube.api.custom import REQUEST_KIND
from worker_agent.kube.tenancy import survey
from worker_agent.kube.tenancy.isolation import KINDS_COUNTED_S

QUOTA = "/api/v1/namespaces/red/resourcequotas/egs-slice"
COUNTED = {"count/gpuprovisioningrequests.egs.io": "1000", "count/gpujobs.egs.io": "200", "count/gprtemplates.egs.io": "100"}


def made(api: TenancyApi, *, ago_s: float) -> None:
    made_at = datetime.now(UTC) - timedelta(seconds=ago_s)
    api.kind = {"metadata": {"creationTimestamp": made_at.isoformat()}}


def counted(api: TenancyApi) -> dict[str, str]:
    hard: dict[str, str] = api.objects[QUOTA]["spec"]["hard"]
    return {key: value for key, value in hard.items() if key.endswith(".egs.io")}


@pytest.mark.parametrize("repairs", [True, False])
def test_requests_and_templates_have_a_quota_once_their_kinds_are_there_for_a_while(repairs: bool) -> None:
    api = TenancyApi()
    tenancy = tenancy_at(api)
    told = []

    for ago_s, wanted in ((None, {}), (KINDS_COUNTED_S - 10, {}), (KINDS_COUNTED_S + 10, COUNTED), (5.0, {})):
        if ago_s is not None:
            made(api, ago_s=ago_s)
        (seen,) = look(tenancy, AccessRole.USER, repairs=repairs).bindings
        told += [*seen.repaired, *seen.left]
        assert (counted(api), api.objects[QUOTA]["spec"]["hard"]["pods"]) == (wanted, "1000")

    assert told == []


def test_a_namespace_has_a_bounded_number_of_accounts_since_all_are_read_to_revoke_one() -> None:
    api = TenancyApi()

    look(tenancy_at(api), AccessRole.USER)

    hard = api.objects[QUOTA]["spec"]["hard"]
    assert int(hard["count/serviceaccounts"]) < survey.OBJECTS_MAX
    assert int(hard["count/rolebindings.rbac.authorization.k8s.io"]) < survey.OBJECTS_MAX


def test_where_the_kinds_cannot_be_seen_workspaces_are_kept_all_the_same() -> None:
    api = TenancyApi()
    api.faults[REQUEST_KIND] = Forbidden("403")

    (seen,) = look(tenancy_at(api), AccessRole.USER).bindings

    assert seen.state is BindingState.READY
