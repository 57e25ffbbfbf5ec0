"""Every POST that changes something heeds the Idempotency-Key. Creations have tests of their own beside the other rules of each."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from journal.models import Event
from slices.models import Namespace
from tests import factories
from tests.api.conftest import Caller, World, assert_problem

KEYLESS = {
    "gprs/estimate",
    "gprs/{id}/estimate-change",
    "gprs/{id}/preview",
    "defragmentation/question",
    "maintenance/preview",
    "slices/{slice}/kubeconfig/{kubeconfig}/read",
}
KEYLESS |= {"manifests/apply", "manifests/diff", "manifests/delete"}
KEYLESS |= {f"{owner}/{act}" for owner in ("slices/{slice}", "projects/{project}") for act in ("archive", "remove", "restore")}
KEYLESS |= {"invitations/{id}/accept", "invitations/{id}/decline"}
KEYLESS |= {"gprs/{id}/estimate-change", "gprs/{id}/preview"}
KEYLESS |= {"policies/{id}/preview", "jobs/{ref}/cancel", "notebooks/{ref}/cancel", "notebooks/{ref}/open"}
KEYLESS |= {"alerts/{id}/acknowledge", "device-logins", "device-logins/take", "prometheus/{ref}/test"}
KEYLESS |= {
    "notices/{id}/read",
    "notices/read-all",
    "channels/{id}/confirm",
    "channels/{id}/test",
    "channels/{channel_pk}/deliveries/{id}/retry",
}


def test_an_extension_that_is_sent_twice_extends_once(owner: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    path = f"gprs/{gpr.pk}/extend/"

    first, second = owner.post(path, {"extra_s": 60}, key="k"), owner.post(path, {"extra_s": 60}, key="k")

    assert (first.status_code, second.status_code) == (200, 200)
    assert second["Idempotency-Replayed"] == "true"
    assert first.json()["duration_s"] == second.json()["duration_s"] == gpr.duration_s + 60
    assert_problem(owner.post(path, {"extra_s": 61}, key="k"), 409, "conflict")
    assert owner.post(path, {"extra_s": 60}, key="another").json()["duration_s"] == gpr.duration_s + 120


def test_verdicts_on_many_requests_that_are_asked_for_again_are_those_of_the_first_time(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)
    body = {"act": "cancel", "ids": [str(gpr.pk), str(world.slice.pk)]}

    first, second = owner.post("gprs/bulk/", body, key="k"), owner.post("gprs/bulk/", body, key="k")

    assert [row["is_done"] for row in first.json()["results"]] == [True, False]
    assert (second.status_code, second["Idempotency-Replayed"]) == (200, "true")
    assert second.json() == first.json()


def test_a_key_of_an_act_that_was_refused_is_free_again(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    for _ in range(2):
        answer = owner.post(f"gprs/{gpr.pk}/release/", key="k")
        assert_problem(answer, 409, "wrong_state")
        assert "Idempotency-Replayed" not in answer


def test_what_has_no_object_of_its_own_and_what_tells_a_secret_is_done_once_too(owner: Caller, admin: Caller, world: World) -> None:
    owner.post("slices/vision/namespaces/", {"name": "monitoring", "cluster": "aurora"})
    invited = [owner.post("slices/vision/members/", {"user": "nobody", "role": "viewer"}, key="k").json() for _ in range(2)]
    assert invited[0] == invited[1]
    acts: list[tuple[str, dict[str, Any]]] = [
        ("slices/vision/members/", {"user": "outsider", "role": "viewer"}),
        ("slices/vision/namespaces/monitoring/refuse/", {"why": "No."}),
        ("clusters/aurora/join-token/", {}),
        ("nodes/aurora-0/cordon/", {"why": "Loud."}),
    ]

    for path, body in acts:
        first, second = admin.post(path, body, key="k"), admin.post(path, body, key="k")
        assert (first.status_code, second.status_code) == (first.status_code, first.status_code), path
        assert second["Idempotency-Replayed"] == "true"
        if path.endswith("join-token/"):
            assert second.json() == first.json() | {"token": None}

    assert not Namespace.with_pending.exists()
    assert Event.objects.filter(kind="node.cordoned").count() == 1


def test_openapi_shows_the_header_wherever_it_is_heeded(db: None, owner: Caller) -> None:
    paths = yaml.safe_load(owner.client.get("/api/schema/").content)["paths"]
    posts = {path.removeprefix("/api/v1/").strip("/"): methods["post"] for path, methods in paths.items() if "post" in methods}

    without = {path for path, post in posts.items() if "Idempotency-Key" not in {each["name"] for each in post.get("parameters", ())}}

    assert without == KEYLESS


@pytest.mark.parametrize("value", ["true", 1, None, "yes"])
def test_a_cluster_s_switch_takes_true_and_false_alone(value: Any, admin: Caller, world: World) -> None:
    assert_problem(admin.patch("clusters/aurora/", {"repairs_drift": value}), 400, "invalid_input")
