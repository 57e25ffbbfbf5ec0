"""An installation has settings for its cluster; nothing is open if the agent cannot read them."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.tenancy.workspaces import AccessRole, BindingState
from tests.agent.tenancy.test_revoking import TenancyApi, look, tenancy_at
from worker_agent.kube.api import settings
from worker_agent.kube.api.client import Forbidden
from worker_agent.kube.api.devices import Devices
from worker_agent.kube.api.settings import Settings, read_settings, settings_of
from worker_agent.kube.tenancy.isolation import QUOTA

HARD = "/api/v1/namespaces/red/resourcequotas/egs-slice"


def fails(event: str, fields: dict[str, object]) -> None:
    pytest.fail(f"{event}: {fields}")


def test_lists_and_limits_are_taken_over_and_the_rest_is_as_without() -> None:
    said = {"gpus": "nvidia.com/ acme.com/gpu", "no-gpus": "nvidia.com/ib0", "in-parts": "rdma/hca", "quota": "services.nodeports=5\n\n"}

    found = settings_of(said, note=fails)

    assert found.devices == Devices(gpus=("nvidia.com/", "acme.com/gpu"), no_gpus=("nvidia.com/ib0",), in_parts=("rdma/hca",))
    assert found.quota == {**QUOTA, "services.nodeports": "5"}
    assert settings_of({}, note=fails) == settings_of({"gpus": " "}, note=fails) == Settings()


@pytest.mark.parametrize(
    "said",
    [
        {"gpus": "amd.com/"},
        {"gpus": "nvidia.com"},
        {"no-gpus": "nvidia.com/gpu"},
        {"no-gpus": "nvidia.com/"},
        {"in-parts": "nvidia.com/mig-1g.10gb"},
        {"quota": "services.nodeports: 5"},
        {"quota": "pods=100000"},
        {"no-gpus": " ".join(f"nvidia.com/n{number}" for number in range(99))},
    ],
)
def test_what_would_open_something_or_cannot_be_read_is_told_and_not_taken(said: dict[str, str]) -> None:
    told: list[str] = []

    assert settings_of(said, note=lambda event, _: told.append(event)) == Settings()
    assert told == ["settings_unreadable"]


def test_without_settings_or_the_right_to_read_them_all_is_as_by_default() -> None:
    api = TenancyApi()
    assert read_settings(api, note=fails) == Settings()  # type: ignore[arg-type]

    api.faults[settings.PATH] = Forbidden("403")
    told: list[str] = []
    assert read_settings(api, note=lambda event, _: told.append(event)) == Settings()  # type: ignore[arg-type]
    assert told == ["settings_unreadable"]


def test_containers_without_requests_get_some_and_a_role_from_before_keeps_the_namespace_ready() -> None:
    api = TenancyApi()
    defaults = "/api/v1/namespaces/red/limitranges/egs-slice"
    look(tenancy_at(api), AccessRole.USER)
    assert set(api.objects[defaults]["spec"]["limits"][0]["defaultRequest"]) == {"cpu", "memory"}

    apply = api.apply

    def refuses(path: str, *given: Any, **params: Any) -> Any:
        if path == defaults:
            raise Forbidden(path)
        return apply(path, *given, **params)

    api.faults["/api/v1/namespaces/red/limitranges"] = Forbidden("403")
    api.apply = refuses  # type: ignore[method-assign]
    assert look(tenancy_at(api), AccessRole.USER).bindings[0].state is BindingState.READY


def test_each_namespace_of_a_workspace_has_a_limit_of_all_that_members_may_make() -> None:
    api = TenancyApi()

    look(tenancy_at(api), AccessRole.USER)

    hard = api.objects[HARD]["spec"]["hard"]
    assert QUOTA.items() <= hard.items()
    assert (hard["services.nodeports"], hard["services.loadbalancers"]) == ("0", "0")
