"""To take policies off for a while, and to try what they refuse all the while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Final
from uuid import uuid4

import httpx

from tests.e2e.processes import wait_for
from tests.kube.callers import Answer
from tests.kube.cluster import SOON_S
from tests.kube.world import World, pod, pods_path

POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"
VALIDATING: Final = f"{POLICIES}/validatingadmissionpolicybindings"
MUTATING: Final = f"{POLICIES}/mutatingadmissionpolicybindings"


@contextmanager
def without(world: World, *paths: str) -> Iterator[None]:
    """These bindings of policies are off meanwhile."""
    admin = world.admin
    kept = [admin.get(path) for path in paths]
    for path in paths:
        admin.call("DELETE", path, is_dry=False)
    try:
        settle(world)
        yield
    finally:
        for path, body in zip(paths, kept, strict=True):
            admin.make(path.rpartition("/")[0], {**body, "metadata": {"name": body["metadata"]["name"]}})
        settle(world)


def settle(world: World) -> None:
    """The API server has taken in all policies and bindings written until now: it takes a later one of each kind in after them."""
    name = f"test-{uuid4().hex}"
    about = {"metadata": {"name": name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"], "resourceNames": [name]}
    constraints = {"matchConstraints": {"resourceRules": [rule]}}
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": '[JSONPatch{op: "add", path: "/data", value: {"seen": "yes"}}]'}}
    kinds = {
        "validating": ({**constraints, "validations": [{"expression": "false"}]}, {"policyName": name, "validationActions": ["Deny"]}),
        "mutating": ({**constraints, "mutations": [mutation], "reinvocationPolicy": "Never"}, {"policyName": name}),
    }
    are_in: dict[str, Callable[[Answer], bool]] = {
        "mutating": lambda answer: "data" in answer.body,
        "validating": lambda answer: answer.outcome == name,
    }
    for path, (policy, binding) in kinds.items():
        made = {"policies": policy, "policybindings": binding}
        for kind, spec in made.items():
            world.admin.make(f"{POLICIES}/{path}admission{kind}", {**about, "spec": spec})
        probe = partial(world.admin.call, "POST", "/api/v1/namespaces/default/configmaps", about)
        wait_for(f"the {path} policies", lambda path=path, probe=probe: are_in[path](probe()), within_s=SOON_S)
        for kind in made:
            world.admin.call("DELETE", f"{POLICIES}/{path}admission{kind}/{name}", is_dry=False)


@contextmanager
def tried_again_and_again(world: World) -> Iterator[tuple[list[Answer], list[Answer]]]:
    """Meanwhile people make GPU pods without a gate, and forbidden pods: their answers. Where the API server is away they try on."""
    over = Event()
    plain: list[Answer] = []
    forbidden: list[Answer] = []

    def again(answers: list[Answer], who: str, body: object) -> None:
        while not over.is_set():
            try:
                answers.append(world.people[who].call("POST", pods_path("red"), body))
            except httpx.HTTPError:
                over.wait(0.02)

    tries = ((plain, "u", pod("try", 1)), (forbidden, "o", pod("try", tolerations=[{"operator": "Exists"}])))
    threads = [Thread(target=again, args=each) for each in tries]
    for thread in threads:
        thread.start()
    try:
        yield plain, forbidden
    finally:
        over.set()
        for thread in threads:
            thread.join()
