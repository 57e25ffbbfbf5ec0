"""deploy/agent/uninstall on a real cluster: it refuses while a box is open, and leaves nothing of EGS behind, kubeconfigs included."""

from __future__ import annotations

import re
import subprocess

import msgspec
import pytest

from protocol import cluster_names
from protocol.tenancy.workspaces import AccessRole
from tests.e2e.processes import ROOT, wait_for
from tests.kube.callers import Caller
from tests.kube.cluster import SOON_S, Cluster, KubeError, Object
from tests.kube.site import agent_token
from tests.kube.tenancy.test_tenancy import House, a_workspace
from tests.kube.wire import Kind
from tests.kube.world import NODE_RED, World, install

OURS = re.compile(r"egs\.io/|node-restriction\.kubernetes\.io/egs-")
# What happened stays told, and what runs on in a box keeps how it got there.
HISTORY = frozenset({"events", "pods"})


def uninstall(cluster: Cluster, *options: str) -> tuple[int, str]:
    command = [str(ROOT / "deploy/agent/uninstall"), *options]
    done = subprocess.run(command, env=cluster.settings(), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def marks_of(body: Object) -> list[str]:
    """Returns what of it is EGS's: its name, labels, annotations, finalizers, taints, and whom it gives which role."""
    meta, spec = body["metadata"], body.get("spec") or {}
    words = [meta["name"], *(meta.get("labels") or {}), *(meta.get("annotations") or {}), *meta.get("finalizers", [])]
    words += [taint["key"] for taint in spec.get("taints") or [] if isinstance(taint, dict)] if body["kind"] == "Node" else []
    words += [body.get("roleRef", {}).get("name", "")]
    return [word for word in words if OURS.search(word) or word.startswith("egs-") or word.endswith(".egs.io")]


def all_of(cluster: Cluster, kind: Kind) -> list[Object]:
    try:
        return (cluster.wire.find("GET", kind.path("")) or {}).get("items") or []
    except KubeError as error:
        if "MethodNotAllowed" in str(error):  # one that is asked and not kept, as a review of rights
            return []
        raise


def left_of_egs(cluster: Cluster) -> dict[str, list[str]]:
    """Looks at every object of every kind that the cluster has, and asks nothing of the script."""
    found = {}
    for kind in cluster.wire.kinds(anew=True):
        for item in () if kind.plural in HISTORY else all_of(cluster, kind):
            if marks := marks_of({**item, "kind": kind.kind}):
                found[f"{kind.plural} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"] = marks
    return found


def gated_pods(cluster: Cluster) -> list[str]:
    pods = cluster.list("pods", namespace="")
    return [pod["metadata"]["name"] for pod in pods if {"name": cluster_names.GATE} in pod["spec"].get("schedulingGates", [])]


# On the two other days nothing runs the script; how kubeconfigs end is in tests/agent/tenancy/test_revoking.py each day.
@pytest.mark.rotates(0)
def test_it_refuses_while_a_node_is_in_a_box_and_then_leaves_nothing_and_a_kubeconfig_from_before_opens_nothing(world: World) -> None:
    """The last test of the world (conftest.py), whose nodes and pods are no longer EGS's."""
    cluster = world.cluster
    records = '[{"record":{"phase":"OPEN"},"gpus":["a"]}]'
    world.agent.patch(
        f"/api/v1/nodes/{NODE_RED}",
        [{"op": "add", "path": cluster_names.pointer("metadata", "annotations", cluster_names.RECORDS), "value": records}],
    )
    house = House(cluster, a_workspace())
    account = house.let_in(AccessRole.USER)
    house.make()
    member = Caller(cluster, token=house.token_of(account).token)
    pods = f"/api/v1/namespaces/{house.namespace}/pods"
    wait_for("the kubeconfig", lambda: member.call("GET", pods).status == 200, within_s=SOON_S)
    assert gated_pods(cluster)
    assert f"resourcequotas {house.namespace}/{cluster_names.ISOLATION}" in left_of_egs(cluster)

    code, said = uninstall(cluster)
    assert (code, NODE_RED in said) == (1, True), said
    assert member.call("GET", pods).status == 200

    code, said = uninstall(cluster, "--force")
    assert (code, "nothing of EGS is left" in said) == (0, True), said
    wait_for("the end of all", lambda: not left_of_egs(cluster) or pytest.fail(str(left_of_egs(cluster))), within_s=SOON_S)
    assert gated_pods(cluster) == []
    assert cluster.get("namespace", house.namespace) is not None
    assert uninstall(cluster)[0] == 0

    install(cluster, "--no-agent")
    agent_token.cache_clear()  # the account is another
    adopted = (msgspec.structs.replace(house.workspace.bindings[0], may_adopt=True),)
    again = House(cluster, msgspec.structs.replace(house.workspace, bindings=adopted))
    cluster.label("namespace", house.namespace, "egs.io/may-adopt=true")
    again.make()
    assert again.has_account(account)
    wait_for("the refusal", lambda: member.call("GET", pods).status == 401, within_s=SOON_S)
    for each in (house, again):
        each.leave()
    member.close()
