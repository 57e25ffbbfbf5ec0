"""Requests in another's name, and what only EGS says of them."""

from __future__ import annotations

from typing import Any, Final

from protocol import cluster_names
from tests.kube.callers import DONE, Answer
from tests.kube.cluster import Object
from tests.kube.isolation.attacks.attack import ONLY_BY_ROLE, Act, Attack, Attacker, calling, posting
from tests.kube.wire import MERGE

GROUP: Final = "/apis/egs.io/v1alpha1/namespaces"
REQUESTS: Final = f"{GROUP}/{{namespace}}/gpuprovisioningrequests"
JOBS: Final = f"{GROUP}/{{namespace}}/gpujobs"
SPACES: Final = f"{GROUP}/{{namespace}}/workspaces"
SPEC: Final = {"shape": "H100-80GB", "nodes": 1, "duration": "1h"}
BY_REQUEST: Final = {"uons": "egs-request", "a": "RBAC"}


def request(name: str = "try", annotations: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
    return {"apiVersion": "egs.io/v1alpha1", "kind": "GPUProvisioningRequest", "metadata": metadata, "spec": SPEC | spec}


def job(annotations: Object | None = None) -> Object:
    return {**request(annotations=annotations, image="a/b:1"), "kind": "GPUJob"}


def changing(change: Object, sub: str = "") -> Act:
    """Changes the request `filed`, which an administrator has made."""

    def act(by: Attacker) -> Answer:
        path = "/".join((REQUESTS.format(namespace=by.namespace), "filed", *([sub] if sub else [])))
        return by.caller.call("PATCH", path, change, kind=MERGE)

    return act


def marking(key: str, value: str | None) -> Act:
    return changing({"metadata": {"annotations": {key: value}}})


def kept(body: Object) -> str:
    return "kept" if cluster_names.REQUESTER in body["metadata"].get("annotations", {}) else DONE


SAID: Final = {"status": {"state": "ACTIVE", "gprID": "theirs"}}
SPACE: Final = {"apiVersion": "egs.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "try"}, "spec": {"id": "theirs"}}

REQUEST_ATTACKS = [
    Attack("a request, which is their right", posting(REQUESTS, request()), {"uons": DONE, "a": "RBAC"}),
    Attack("a request in the victim's namespace", posting(REQUESTS.format(namespace="blue"), request()), ONLY_BY_ROLE),
    Attack("the victim's requests", calling("GET", REQUESTS.format(namespace="blue")), ONLY_BY_ROLE),
    Attack(
        "a request in somebody else's name",
        posting(REQUESTS, request(annotations={cluster_names.REQUESTER: "admin"})),
        BY_REQUEST,
        opens=True,
    ),
    Attack(
        "a request that passes for the agent's",
        posting(REQUESTS, request(annotations={cluster_names.AUTO: "true"})),
        BY_REQUEST,
        opens=True,
    ),
    Attack("a job, which is their right", posting(JOBS, job()), {"uons": DONE, "a": "RBAC"}),
    Attack("a job in the victim's namespace", posting(JOBS.format(namespace="blue"), job()), ONLY_BY_ROLE),
    Attack("a job in somebody else's name", posting(JOBS, job({cluster_names.REQUESTER: "admin"})), BY_REQUEST, opens=True),
    Attack("to put their name on a request", marking(cluster_names.REQUESTER, "somebody"), BY_REQUEST, opens=True),
    # Where nobody could put it back egs-request refuses it.
    Attack("to take the name off a request", marking(cluster_names.REQUESTER, None), {"uons": "kept|egs-request", "a": "RBAC"}, reads=kept),
    Attack("to make a request pass for the agent's later", marking(cluster_names.AUTO, "true"), BY_REQUEST, opens=True),
    Attack(
        "to end somebody's request of their own workspace, which is their right", changing({"spec": {"earlyRelease": True}}), {"u": DONE}
    ),
    Attack("to write how a request stands", changing(SAID, "status"), {"ua": "RBAC", "ons": "egs-said"}, opens=True),
    Attack("a workspace object of their own", posting(SPACES, SPACE), {"ua": "RBAC", "ons": "egs-said"}, opens=True),
]
