"""What was installed beside the agent, and that it still is as it was: admission policies, roles and kinds.

The agent has no right to change any of it, and must not have it: it tells. The install script writes down what it left in the
ConfigMap egs-installed, each object as "<apiVersion> <kind> <namespace or -> <name> <uid> <generation, or resourceVersion where there is
none>". What somebody adds beside these is not seen here, but for the cluster's default priority (priorities.py), which is looked at
along with them. Must not live here: what is wanted of these objects (deploy/agent).
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol import cluster_names
from protocol.messages import Drift
from worker_agent.cluster.base import ClusterError, Note
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.tenancy.priorities import DefaultPriority

PATH: Final = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/configmaps/egs-installed"
REMEDY: Final = "Run deploy/agent/install again, or find out who did it."
PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
}


class _ConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    data: dict[str, str] = {}


class _Marked(msgspec.Struct, frozen=True, kw_only=True):
    class Meta(msgspec.Struct, frozen=True, kw_only=True):
        uid: str
        resourceVersion: str
        generation: int | None = None

    metadata: Meta

    @property
    def mark(self) -> tuple[str, str]:
        """Another one of the same name has another uid."""
        return self.metadata.uid, str(self.metadata.generation or self.metadata.resourceVersion)


class Installed:
    def __init__(self, api: Api, *, note: Note) -> None:
        self._api, self._note = api, note
        self._found: tuple[Drift, ...] = ()
        self._default_priority = DefaultPriority(api, note=note)

    def look(self) -> tuple[Drift, ...]:
        """What is not as it was installed, or works against it. As before where the API server does not answer."""
        try:
            lines = self._api.get(PATH, _ConfigMap).data.get("objects", "").splitlines()
            self._found = tuple(drift for line in lines if (drift := self._look_at(line)))
        except Missing:
            self._found = ()  # by an older script, which wrote nothing down
        except ClusterError as error:
            self._note("installation_unseen", {"why": str(error)})
        return (*self._found, *self._default_priority.look())

    def _look_at(self, line: str) -> Drift | None:
        version, kind, namespace, name, *mark = (*line.split(), *[""] * 6)[:6]
        if kind not in PLURALS:
            return None
        rest = (f"/namespaces/{namespace}" if namespace != "-" else "") + f"/{PLURALS[kind]}/{name}"
        try:
            if self._read(version, rest).mark == tuple(mark):
                return None
            detail = f"It is not as it was installed. {REMEDY}"
        except Missing:
            detail = f"It is gone. {REMEDY}"
        return Drift(what=f"{kind} {name}", detail=detail)

    def _read(self, version: str, rest: str) -> _Marked:
        """What was installed as v1beta1 is the same object where a newer Kubernetes serves v1 alone."""
        try:
            return self._api.get(f"/apis/{version}{rest}", _Marked)
        except Missing:
            if not version.endswith("/v1beta1"):
                raise
            return self._api.get(f"/apis/{version.removesuffix('beta1')}{rest}", _Marked)
