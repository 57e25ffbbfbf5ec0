"""deploy/agent/install: nothing is open while it runs, what is there stays, and a cluster without mutating policies is held apart, too."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from protocol import cluster_names
from tests.e2e.processes import ROOT, wait_for
from tests.kube.callers import DONE, WANTS_GATE
from tests.kube.cluster import SOON_S, Object
from tests.kube.policies import MUTATING_BINDINGS, VALIDATING, tried_again_and_again, without
from tests.kube.wire import MERGE
from tests.kube.world import NODE_RED, World, container, install, is_gated, pod, pods_path
from worker_agent.kube.api.devices import NO_GPUS

STATE = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/secrets/egs-agent-state"
BUDGET = f"/apis/policy/v1/namespaces/{cluster_names.NAMESPACE}/poddisruptionbudgets/egs-agent"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{cluster_names.NAMESPACE}/deployments/egs-agent"


def other_kubectl(folder: Path, world: World, cases: str) -> Path:
    """A folder with a kubectl that does something else in some cases, of a shell's `case "$*"`; `kubectl` is the real one."""
    script = folder / "kubectl"
    script.write_text(
        f"""#!/bin/sh
kubectl() {{ {world.cluster.programs / "kubectl"} "$@"; }}
case "$*" in
{cases}
*) kubectl "$@" ;;
esac
"""
    )
    script.chmod(0o755)
    return folder


# What discovery says of the group of admission policies where v1 has no mutating ones; of v1beta1 in the first as of v1.
BETA = """
*admissionregistration.k8s.io/v1) kubectl "$@" | sed s/mutating/no/g ;;
*admissionregistration.k8s.io/v1beta1) kubectl get --raw /apis/admissionregistration.k8s.io/v1 ;;"""
OLD = """
*admissionregistration.k8s.io/v1) kubectl "$@" | sed s/mutating/no/g ;;
*admissionregistration.k8s.io/v1beta1) exit 1 ;;"""


def config(name: str, **about: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": cluster_names.NAMESPACE, **about},
        "data": {"a": "b"},
    }


@pytest.mark.rotates(2)  # each day: test_locks.py; each control plane of a run is installed
def test_an_upgrade_opens_nothing_keeps_what_the_agent_and_others_wrote_and_takes_away_what_an_older_version_left(
    world: World, tmp_path: Path
) -> None:
    """Also where that bears no label yet. Here on a Kubernetes that is newer than tested, which is told."""
    world.admin.patch(STATE, [{"op": "add", "path": "/data", "value": {"state": "a2VwdA=="}}])
    guard = world.admin.get(cluster_names.GUARD_PATH)["spec"]
    left = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "egs-old"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
            },
            "validations": [{"expression": "true"}],
        },
    }
    labels = {"app.kubernetes.io/managed-by": "egs-install"}
    for manager, body in (
        ("egs-install", left),
        ("egs-install", config("old")),
        ("somebody", config("labeled", labels=labels)),
        ("somebody", config("others")),
    ):
        apply = ("apply", "--server-side", f"--field-manager={manager}", "-f", "-")
        world.cluster.kubectl(*apply, given=json.dumps(body))

    with tried_again_and_again(world) as (plain, forbidden):
        said = install(world.cluster, "--no-agent", programs=of_version("99", tmp_path, world))

    assert "tested up to 1.36" in said
    assert plain
    assert {answer.outcome for answer in plain} == {DONE}
    assert all(is_gated(answer.body) for answer in plain)
    assert {answer.outcome for answer in forbidden} == {"egs-pod"}
    assert world.admin.get(STATE)["data"] == {"state": "a2VwdA=="}
    assert world.admin.get(cluster_names.GUARD_PATH)["spec"] == guard
    assert NODE_RED in guard["nodes"]
    assert world.cluster.get("validatingadmissionpolicy", "egs-old") is None
    there = {
        name: world.cluster.get("configmap", name, namespace=cluster_names.NAMESPACE) is not None for name in ("old", "labeled", "others")
    }
    assert there == {"old": False, "labeled": False, "others": True}
    world.cluster.delete("configmap", "others", namespace=cluster_names.NAMESPACE)


def of_version(minor: str, folder: Path, world: World) -> Path:
    return other_kubectl(folder, world, f"""'get --raw /version') echo '{{"major": "1", "minor": "{minor}"}}' ;;""")


def test_a_kubernetes_that_is_too_old_is_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"EGS needs Kubernetes 1\.30 or newer, and this cluster has 1\.29"):
        install(world.cluster, "--no-agent", programs=of_version("29+", tmp_path, world))


@pytest.mark.rotates(1)  # each day: the guard and all policies in tests/kube/isolation/test_locks.py, installed the same way
def test_the_guard_is_made_only_once_all_policies_hold(world: World, tmp_path: Path) -> None:
    """Here after two of them were taken off. The guard is what the agent waits for before it takes nodes in."""
    for path in (f"{VALIDATING}/egs-status", f"{VALIDATING}/egs-pod", cluster_names.GUARD_PATH):
        guard = world.admin.get(path)
        world.admin.call("DELETE", path, is_dry=False)
    attack, told = tmp_path / "attack.json", tmp_path / "told"
    attack.write_text(json.dumps(pod(nodeName=NODE_RED, metadata={"namespace": "red"})))
    late = other_kubectl(
        tmp_path, world, f"""'create -f guard.yaml') kubectl create --dry-run=server -f {attack} 2>{told}; kubectl "$@" ;;"""
    )

    try:
        install(world.cluster, "--no-agent", programs=late)
    finally:
        world.admin.patch(cluster_names.GUARD_PATH, {"spec": guard["spec"]}, kind=MERGE)

    running = world.admin.get(pods_path("red", "mine"))
    assert "'egs-pod'" in told.read_text()
    assert world.people["o"].call("PUT", pods_path("red", "mine", "status"), running).outcome == "egs-status"


@pytest.mark.soak  # what other versions of Kubernetes answer; the soak runs on these as well
def test_the_policies_that_spare_people_work_are_applied_as_beta_where_only_that_is_served(world: World, tmp_path: Path) -> None:
    """Kubernetes 1.34 and 1.35 may serve only v1beta1. An API server that has them as v1 gets them as v1."""
    version = world.cluster.mutating_version
    if not version:
        pytest.skip("this Kubernetes has no mutating policies")
    said = tmp_path / "said"
    beta = other_kubectl(
        tmp_path,
        world,
        (BETA if version == "v1" else "")
        + f"""
apply*"-f -") tee -a {said} | sed 's|/v1beta1"|/{version}"|' | kubectl "$@" ;;
get*"-f -"*) sed 's|/v1beta1$|/{version}|' | kubectl "$@" ;;""",
    )

    install(world.cluster, "--no-agent", programs=beta)

    applied = re.findall(r'^    "apiVersion": "(\S+)",\n    "kind": "MutatingAdmission', said.read_text(), re.MULTILINE)
    there = yaml.safe_load((ROOT / "deploy/agent/mutating.yaml").read_text())["items"]
    assert applied == ["admissionregistration.k8s.io/v1beta1"] * len(there)


@pytest.mark.soak  # what other versions of Kubernetes answer; the soak runs on these as well
def test_mutating_policies_that_are_served_and_not_carried_out_are_told_with_what_to_turn_on(world: World, tmp_path: Path) -> None:
    """Kubernetes 1.34 and 1.35 do so with the API turned on and the feature gate turned off."""
    if not world.cluster.mutating_version:
        pytest.skip("this Kubernetes has no mutating policies")
    idle = other_kubectl(
        tmp_path,
        world,
        """
'create --dry-run=server -o yaml -f -') given=$(cat)
    case $given in *limits*) echo "refused" ;; *) printf '%s' "$given" | kubectl "$@" ;; esac ;;""",
    )
    (idle / "sleep").symlink_to("/bin/true")

    with pytest.raises(AssertionError, match=r"MISSING: .*feature gate MutatingAdmissionPolicy"):
        install(world.cluster, "--no-agent", programs=idle)

    install(world.cluster, "--no-agent")


@pytest.mark.soak  # what other versions of Kubernetes answer; the soak runs on these as well
def test_without_mutating_policies_people_write_the_gate_and_are_told_so(world: World, tmp_path: Path) -> None:
    older = other_kubectl(tmp_path, world, OLD)

    assert "people write the gate egs.io/gpr" in install(world.cluster, "--no-agent", programs=older)

    with without(world, f"{MUTATING_BINDINGS}/egs-gate", f"{MUTATING_BINDINGS}/egs-new-node"):
        refused = world.people["u"].ask("POST", pods_path("red"), pod(gpus=1))
        accepted = world.people["u"].call("POST", pods_path("red"), pod(gpus=1, schedulingGates=[{"name": cluster_names.GATE}]))
        node = {"metadata": {"name": "joins", "labels": {cluster_names.MANAGED: "true"}}}
        bare = world.admin.call("POST", "/api/v1/nodes", node)
        taints = [{"key": cluster_names.TAINT, "value": cluster_names.FREE, "effect": cluster_names.TAINT_EFFECT}]
        tainted = world.admin.call("POST", "/api/v1/nodes", {**node, "spec": {"taints": taints}})

    assert refused.message.endswith(WANTS_GATE)
    assert accepted.outcome == tainted.outcome == DONE
    assert bare.outcome == "egs-node"
    assert "--register-with-taints" in bare.message


CONFIG_MAPS = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/configmaps"
SETTINGS = f"{CONFIG_MAPS}/egs-agent"
PODS = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/pods"
GIVEN = ["--hub", "https://egs.example.org", "--image", "registry.example.org/egs-agent:1"]
OF_CHECKS = ["--pull-secret", "mine", "--check-image", "registry.example.org/probe:2", "--check-runtime-class", "nvidia"]


def is_held(world: World, gpus: int, resource: str) -> bool:
    """A pod that asks for it waits at the gate, or is refused for want of the gate."""
    answer = world.people["o"].ask("POST", pods_path("red"), pod("try", containers=[container(gpus, resource=resource)]))
    return answer.message.endswith(WANTS_GATE) or is_gated(answer.body)


@pytest.mark.rotates(1)  # each day: test_the_agents_own_pod_is_let_through, test_rights.py; each control plane of a run is installed
def test_the_agent_starts_as_two_restricted_pods_with_all_that_was_given_and_as_others_when_less_is_given(
    world: World, tmp_path: Path
) -> None:
    """The authority of a private hub is named by a path from where the script was called, and mounted where the agent looks for it. A
    cluster that reaches no public registry pulls nothing that was not named: by default checks run in the agent's own image. The
    ConfigMap egs-settings says what a GPU is, for the policies and the agent, and nothing opens by it."""
    authority = tmp_path / "ca.crt"
    authority.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    (tmp_path / "nothing").write_text("nothing")
    with pytest.raises(AssertionError, match="no certificates in PEM form"):
        install(world.cluster, *GIVEN, "--hub-ca", str(tmp_path / "nothing"))
    assert not is_held(world, 1, "nvidia.com/hostdev")
    assert not is_held(world, 0, cluster_names.GPU)
    assert is_held(world, 1, "nvidia.com/ib0")

    said = {"metadata": {"name": "egs-settings"}, "data": {"no-gpus": cluster_names.GPU, "gpus": "nvidia.com/\nacme.com/gpu"}}
    world.admin.make(CONFIG_MAPS, said)
    try:
        with pytest.raises(AssertionError, match="would be no GPU"):
            install(world.cluster, "--no-agent")
        world.admin.patch(f"{CONFIG_MAPS}/egs-settings", {"data": {"no-gpus": "nvidia.com/ib0"}}, kind=MERGE)
        install(world.cluster, *GIVEN, *OF_CHECKS, "--hub-ca", os.path.relpath(authority))
        assert not is_held(world, 1, "nvidia.com/ib0")
        assert all(is_held(world, 1, resource) for resource in ("nvidia.com/hostdev", "acme.com/gpu", cluster_names.GPU))
        world.admin.call("DELETE", f"{CONFIG_MAPS}/egs-settings", is_dry=False)
        pods = wait_for("two pods", lambda: len(found := world.admin.get(PODS)["items"]) == 2 and found, within_s=SOON_S)
        full, template = world.admin.get(SETTINGS)["data"], world.admin.get(DEPLOYMENT)["spec"]["template"]
        budget = world.admin.get(BUDGET)["spec"]
        install(world.cluster, *GIVEN)
        least, other = world.admin.get(SETTINGS)["data"], world.admin.get(DEPLOYMENT)["spec"]["template"]
    finally:
        world.admin.call("DELETE", f"{CONFIG_MAPS}/egs-settings", is_dry=False)
        world.admin.call("DELETE", DEPLOYMENT, is_dry=False, propagationPolicy="Background")

    assert {each["spec"]["containers"][0]["image"] for each in pods} == {"registry.example.org/egs-agent:1"}
    assert full["hub"] == "https://egs.example.org"
    (container,) = template["spec"]["containers"]
    probed = [container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")]
    assert (probed, container["ports"][0]["containerPort"]) == (["/healthz", "/healthz", "/readyz"], 8081)
    assert budget["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    folder = next(each["mountPath"] for each in container["volumeMounts"] if each["name"] == "hub")
    items = next(each["configMap"]["items"] for each in template["spec"]["volumes"] if each["name"] == "hub")
    assert (full["ca.crt"], full["hub-ca"]) == (authority.read_text(), f"{folder}/{items[0]['path']}")
    assert (least["hub-ca"], "ca.crt" in least) == ("", False)
    assert [(each["check-image"], each["check-runtime-class"], each["check-pull-secret"]) for each in (full, least)] == [
        ("registry.example.org/probe:2", "nvidia", "mine"),
        ("registry.example.org/egs-agent:1", "", ""),
    ]
    assert [each["spec"].get("imagePullSecrets", []) for each in (template, other)] == [[{"name": "mine"}], []]
    # Else the pods that are there would go on with the settings that they began with.
    assert template["metadata"]["annotations"] != other["metadata"]["annotations"]


def test_gate_and_policy_ask_for_the_same_gpus_as_the_agent() -> None:
    """The lists stand in two manifests and in the agent's code."""
    gate, pod_policy = (
        next(each for each in yaml.safe_load((ROOT / "deploy/agent" / file).read_text())["items"] if each["metadata"]["name"] == name)
        for file, name in (("mutating.yaml", "egs-gate"), ("policies.yaml", "egs-pod"))
    )
    asked = [each["expression"] for each in gate["spec"]["matchConditions"]]
    refused = [each["expression"] for each in pod_policy["spec"]["variables"] if each["name"] == "gpu"]

    assert asked == refused
    assert asked[0].count(str(list(cluster_names.GPU_PREFIXES))) == asked[0].count(str(list(NO_GPUS))) == 1
    assert gate["spec"]["matchConstraints"]["namespaceSelector"] == pod_policy["spec"]["matchConstraints"]["namespaceSelector"]
