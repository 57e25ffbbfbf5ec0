"""deploy/agent/uninstall on a real cluster: it refuses while a box is open, and leaves nothing of EGS behind, kubeconfigs included."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.processes import ROOT
from tests.kube.callers import Caller
from tests.kube.cluster import Cluster, clusters
from tests.kube.world import NODE_RED, RED, install, new_world
from worker_agent.kube import names

ACCOUNTS = names.ACCOUNTS
ACCOUNT = "egs-99999999-9999-4999-8999-999999999999"


@pytest.fixture
def alone(worker_id: str) -> Iterator[Cluster]:
    """One that nobody else needs afterwards."""
    with clusters(f"out-{worker_id}") as (made,):
        install(made, "--no-agent")
        yield made


def uninstall(cluster: Cluster, *options: str) -> tuple[int, str]:
    path = os.pathsep.join((str(cluster.programs), os.environ["PATH"]))
    env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    done = subprocess.run([str(ROOT / "deploy/agent/uninstall"), *options], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_it_refuses_while_a_node_is_in_a_box_and_then_takes_all_of_it_out(alone: Cluster) -> None:
    with new_world(alone) as world:
        records = '[{"record":{"phase":"OPEN"},"gpus":["a"]}]'
        world.agent.patch(
            f"/api/v1/nodes/{NODE_RED}", [{"op": "add", "path": names.pointer("metadata", "annotations", names.RECORDS), "value": records}]
        )
        labels = {names.SLICE: RED, names.ACCOUNT: "somebody"}
        alone.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": ACCOUNTS, "labels": labels}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": ACCOUNT, "namespace": "red", "labels": labels},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "egs-slice-user"},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNTS}],
            },
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": names.ISOLATION, "namespace": "red", "labels": labels},
                "spec": {"hard": {"pods": "9"}},
            },
        )
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        issued = world.agent.make(f"/api/v1/namespaces/{ACCOUNTS}/serviceaccounts/{ACCOUNT}/token", asked)
        member = Caller(alone, token=issued["status"]["token"])
        assert member.call("GET", "/api/v1/namespaces/red/pods").status == 200

        code, said = uninstall(alone)
        assert code == 1
        assert NODE_RED in said
        assert member.call("GET", "/api/v1/namespaces/red/pods").status == 200

        code, said = uninstall(alone, "--force")
        assert (code, "nothing of EGS is left" in said) == (0, True), said
        assert uninstall(alone)[0] == 0
        member.close()
