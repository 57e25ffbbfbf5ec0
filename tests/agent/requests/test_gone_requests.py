"""A request ends if somebody deleted its object, but not if the object went with its kind."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from protocol.tenancy.cluster_requests import ClusterRequestState
from protocol.tenancy.workspaces import Binding, Workspace
from worker_agent.hub.requests import HubNews
from worker_agent.kube.api.client import Missing
from worker_agent.kube.api.custom import API, REQUEST_KIND, REQUESTS, REQUESTS_PATH
from worker_agent.kube.requests import sync as requests
from worker_agent.kube.requests.sync import KubernetesRequests

RED = Workspace(id="s1", name="red", bindings=(Binding(namespace="red"),))
MADE_S = datetime(2026, 11, 25, 8, 0, tzinfo=UTC).timestamp()  # the kind


class KindApi:
    """It serves a kind without any object. If `made_s` is None, the kind is not installed."""

    def __init__(self) -> None:
        self.made_s: float | None = MADE_S
        self.asked: list[str] = []

    def get(self, path: str, type_: Any, **_: Any) -> Any:
        self.asked.append(path)
        if self.made_s is None:
            raise Missing("404 the server could not find the requested resource")
        answers: dict[str, Any] = {
            REQUESTS_PATH: {"items": []},
            f"/apis/{API}": {"resources": [{"name": REQUESTS, "verbs": ["create", "get"]}]},
            REQUEST_KIND: {"metadata": {"creationTimestamp": datetime.fromtimestamp(self.made_s, UTC).isoformat()}},
        }
        return msgspec.convert(answers[path], type_)


class NoObjects:
    is_whole = True

    def objects(self) -> dict[tuple[str, str], Any]:
        return {}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> KindApi:
    monkeypatch.setattr(requests, "GONE_AFTER_S", 0.0)
    monkeypatch.setattr(requests, "ASK_GONE_EVERY_S", 0.0)
    return KindApi()


def agent_at(api: KindApi) -> KubernetesRequests:
    agent = KubernetesRequests(
        api=api,  # type: ignore[arg-type]
        bound=lambda _: RED.id,
        pods=lambda: (),
        nodes=lambda: (),
        why=lambda _: "",
        note=lambda *_: None,
    )
    agent._requests = agent._templates = NoObjects()  # type: ignore[assignment]
    return agent


def gone(agent: KubernetesRequests, filed_s: float | None = MADE_S + 60) -> list[str]:
    state = ClusterRequestState(id="u1", gpr_id="g1", state="ACTIVE", filed_s=filed_s)
    news = HubNews(workspaces=(RED,), states={"u1": state}, asked_mono=time.monotonic())
    return [claim.uid for claim in agent.look(news) if claim.is_gone]


@pytest.mark.parametrize("filed_s", [MADE_S + 60, None])
def test_a_deleted_request_is_gone_also_where_the_hub_does_not_say_when_it_was_filed(filed_s: float | None, api: KindApi) -> None:
    assert gone(agent_at(api), filed_s) == ["u1"]


@pytest.mark.parametrize("restarts", [True, False])
def test_with_the_kind_deleted_and_installed_again_the_requests_of_before_stay(restarts: bool, api: KindApi) -> None:
    agent = agent_at(api)
    api.made_s = None
    assert [gone(agent) for _ in range(3)] == [[], [], []]

    api.made_s = MADE_S + 3600
    agent = agent_at(api) if restarts else agent

    assert [gone(agent) for _ in range(3)] == [[], [], []]
    api.asked.clear()
    assert (gone(agent), api.asked) == ([], [])


def test_one_that_was_filed_since_the_kind_is_back_is_gone_when_it_is_deleted(api: KindApi) -> None:
    api.made_s = MADE_S + 3600

    assert gone(agent_at(api), MADE_S + 3700) == ["u1"]
