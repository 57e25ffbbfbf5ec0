"""The agent finds changes of the objects that were installed beside it, though it may not repair them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from protocol import cluster_names
from tests.e2e.processes import wait_for
from tests.kube.cluster import MUTATING, SOON_S, Object
from tests.kube.site import access_as_agent
from tests.kube.wire import MERGE
from tests.kube.world import World, install, pod, pods_path
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.installed import PATH, PLURALS, Installed

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ABOUT = {"name": PATH.rpartition("/")[2], "namespace": cluster_names.NAMESPACE}
EVICT = "ValidatingAdmissionPolicy egs-evict"


@pytest.fixture(scope="module")
def installed(world: World) -> Iterator[Installed]:
    """Returns what the agent sees, with its own rights."""
    api = Api(access_as_agent(world.cluster))
    made = Installed(api, note=lambda event, fields: pytest.fail(f"{event} {fields}"))
    # Other tests may have taken policies off and put them back: others than were installed, by their marks.
    if made.look():
        install(world.cluster, "--no-agent")
    yield made
    api.close()


def changed(path: str) -> Object:
    """Each a little less than it was."""
    if path.startswith(KINDS):
        return {"spec": {"names": {"shortNames": ["other"]}}}
    return {"rules": []} if path.startswith(ROLES) else {"spec": {"failurePolicy": "Ignore"}}


def test_as_installed_there_is_nothing_to_tell(installed: Installed, world: World) -> None:
    written = world.admin.get(PATH)["data"]["objects"].splitlines()

    assert installed.look() == ()
    kinds = {kind for kind in PLURALS if world.cluster.has(MUTATING) or not kind.startswith("Mutating")}
    assert {line.split()[1] for line in written} >= kinds


def told(installed: Installed) -> dict[str, str]:
    drifts = installed.look()
    assert not any(drift.is_repaired for drift in drifts)
    return {drift.what: drift.detail for drift in drifts}


@pytest.mark.rotates(2)  # each day: one that changed since it was installed as beta, below
def test_what_was_changed_exchanged_or_deleted_is_told_until_it_was_installed_anew(installed: Installed, world: World) -> None:
    paths = [f"{POLICIES}/egs-pod", f"{ROLES}/egs-slice-user", f"{KINDS}/workspaces.egs.io"]
    before = [world.admin.get(path) for path in paths]
    for path in paths:
        world.admin.patch(path, changed(path), kind=MERGE)
    is_changed = {f"{each['kind']} {each['metadata']['name']}" for each in before}
    seen = told(installed)
    assert seen.keys() == is_changed
    assert all("install" in detail for detail in seen.values())

    evict = world.admin.get(path := f"{POLICIES}/egs-evict")
    world.admin.call("DELETE", path, is_dry=False)
    seen = told(installed)
    assert seen.keys() == is_changed | {EVICT}
    assert seen[EVICT].startswith("It is gone.")

    # Made anew under its name it is another.
    weaker = [{**each, "expression": "true"} for each in evict["spec"]["validations"]]
    world.admin.make(POLICIES, {"metadata": {"name": "egs-evict"}, "spec": {**evict["spec"], "validations": weaker}})
    seen = told(installed)
    assert seen.keys() == is_changed | {EVICT}
    assert not seen[EVICT].startswith("It is gone.")

    install(world.cluster, "--no-agent")
    assert installed.look() == ()


def test_what_was_installed_as_beta_is_still_there_when_kubernetes_serves_it_as_v1_alone(installed: Installed, world: World) -> None:
    """Kubernetes 1.35 serves mutating policies as v1beta1, and 1.36 only as v1: they are the same objects."""
    before = world.admin.get(PATH)["data"]["objects"]
    try:
        as_beta = before.replace("admissionregistration.k8s.io/v1 ", "admissionregistration.k8s.io/v1beta1 ")
        world.admin.patch(PATH, {"data": {"objects": as_beta}}, kind=MERGE)
        assert installed.look() == ()

        changed_since = re.sub(r"(v1beta1 ValidatingAdmissionPolicy - egs-pod \S+) \d+", r"\1 99", as_beta)
        world.admin.patch(PATH, {"data": {"objects": changed_since}}, kind=MERGE)
        assert [drift.what for drift in installed.look()] == ["ValidatingAdmissionPolicy egs-pod"]
    finally:
        world.admin.patch(PATH, {"data": {"objects": before}}, kind=MERGE)


def test_lines_that_nobody_understands_and_a_list_that_is_not_there_are_nothing_to_tell(installed: Installed, world: World) -> None:
    before = world.admin.get(PATH)["data"]["objects"]
    try:
        world.admin.patch(PATH, {"data": {"objects": "\n".join(["", "x", "v9 Unknown a 1", before])}}, kind=MERGE)
        assert installed.look() == ()

        world.admin.call("DELETE", PATH, is_dry=False)
        assert installed.look() == ()
    finally:
        world.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": ABOUT, "data": {"objects": before}})


PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def default_priority(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """A class that the cluster gives to pods that name none."""
    body = {"metadata": {"name": "standard"}, "globalDefault": True, **request.param}
    world.admin.call("POST", PRIORITIES, body, is_dry=False)
    yield "standard"
    world.admin.call("DELETE", f"{PRIORITIES}/standard", is_dry=False)


PREEMPTS = {"value": 1000}
GOOD = [{"value": 1000, "preemptionPolicy": "Never"}, {"value": 0}, {"value": 1000, "globalDefault": False}]


@pytest.mark.parametrize("default_priority", [PREEMPTS], indirect=True)
def test_a_default_priority_that_preempts_is_told_with_what_to_do_for_pods_of_workspaces_are_refused_by_it(
    default_priority: str, installed: Installed, world: World
) -> None:
    refused = wait_for("the default", lambda: _refusal(world), within_s=SOON_S)

    (drift,) = installed.look()

    assert (drift.what, drift.is_foreign, drift.is_repaired) == ("PriorityClass standard", True, False)
    assert "it preempts: pods of workspaces, and all that ask for GPUs, are refused" in drift.detail
    assert "Take globalDefault from it" in drift.detail
    assert "PriorityClass with preemptionPolicy Never" in refused


def _refusal(world: World) -> str:
    """Returns the refusal of a pod that names no class, or "" while the API server does not know the default."""
    return world.people["u"].call("POST", pods_path("red"), pod()).message


@pytest.mark.parametrize("default_priority", GOOD, indirect=True)
def test_a_class_that_no_pod_gets_or_by_which_none_preempts_is_not_told_of(default_priority: str, installed: Installed) -> None:
    assert installed.look() == ()
