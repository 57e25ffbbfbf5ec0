"""Takes policies off for a while, and tries what they refuse all the while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Final
from uuid import uuid4

import httpx

from tests.e2e.processes import wait_for
from tests.kube.callers import DONE, Answer, Caller
from tests.kube.cluster import SOON_S, Object
from tests.kube.wire import MERGE
from tests.kube.world import World, pod, pods_path

GROUP: Final = "/apis/admissionregistration.k8s.io"
POLICIES: Final = f"{GROUP}/v1"
VALIDATING: Final = f"{POLICIES}/validatingadmissionpolicybindings"
MUTATING_BINDINGS: Final = f"{POLICIES}/mutatingadmissionpolicybindings"  # some clusters have them in another version


@contextmanager
def without(world: World, *paths: str) -> Iterator[None]:
    """These bindings of policies are off meanwhile, of mutating ones where there are any."""
    admin, version = world.admin, world.cluster.mutating_version
    paths = tuple(path for path in paths if version or not path.startswith(MUTATING_BINDINGS))
    paths = tuple(path.replace("/v1/", f"/{version}/") if path.startswith(MUTATING_BINDINGS) else path for path in paths)
    kept = [admin.get(path) for path in paths]
    try:
        for path in paths:
            admin.call("DELETE", path, is_dry=False)
        settle(admin)
        yield
    finally:
        bodies = [
            (path.rpartition("/")[0], {**body, "metadata": {"name": body["metadata"]["name"]}})
            for path, body in zip(paths, kept, strict=True)
        ]
        outcomes = {admin.call("POST", path, body, is_dry=False).outcome for path, body in bodies}
        assert outcomes <= {DONE, "409"}  # there still, where taking it off failed
        settle(admin)


@contextmanager
def without_rules(world: World, words: str) -> Iterator[None]:
    """The rules of egs-pod that refuse in these words are off meanwhile, and nothing else of it."""
    path = f"{POLICIES}/validatingadmissionpolicies/egs-pod"
    rules = world.admin.get(path)["spec"]["validations"]
    left = [rule for rule in rules if words not in rule["message"]]
    assert len(left) < len(rules)
    try:
        world.admin.patch(path, {"spec": {"validations": left}}, kind=MERGE)
        settle(world.admin)
        yield
    finally:
        world.admin.patch(path, {"spec": {"validations": rules}}, kind=MERGE)
        settle(world.admin)


@contextmanager
def refusing(admin: Caller, rule: Object, *, namespace: str, message: str) -> Iterator[None]:
    """Somebody's own policy refuses this to everybody meanwhile."""
    name = f"test-{uuid4().hex}"
    there = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    constraints = {"matchConstraints": {"resourceRules": [rule], "namespaceSelector": there}}
    policy = {**constraints, "validations": [{"expression": "false", "message": message}]}
    made = {"policies": policy, "policybindings": {"policyName": name, "validationActions": ["Deny"]}}
    for kind, spec in made.items():
        admin.make(f"{POLICIES}/validatingadmission{kind}", {"metadata": {"name": name}, "spec": spec})
    try:
        settle(admin)
        yield
    finally:
        for kind in made:
            admin.call("DELETE", f"{POLICIES}/validatingadmission{kind}/{name}", is_dry=False)
        settle(admin)


def settle(admin: Caller) -> None:
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
    versions = {"validating": "v1", "mutating": admin.cluster.mutating_version}
    for path, (policy, binding) in kinds.items():
        if not versions[path]:
            continue
        made = {"policies": policy, "policybindings": binding}
        for kind, spec in made.items():
            admin.make(f"{GROUP}/{versions[path]}/{path}admission{kind}", {**about, "spec": spec})
        probe = partial(admin.call, "POST", "/api/v1/namespaces/default/configmaps", about)
        wait_for(f"the {path} policies", lambda path=path, probe=probe: are_in[path](probe()), within_s=SOON_S)
        for kind in made:
            admin.call("DELETE", f"{GROUP}/{versions[path]}/{path}admission{kind}/{name}", is_dry=False)


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
