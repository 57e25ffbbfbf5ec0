"""Reports changes of the admission policies, roles and custom resource definitions that were installed beside the agent.

The agent must not have the right to change these.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol import cluster_names
from protocol.nodes.drift import Drift
from worker_agent.cluster.base import ClusterError, Note
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import ConfigMap
from worker_agent.kube.tenancy.priorities import DefaultPriority

# The install script writes one line per object: <apiVersion> <kind> <namespace or -> <name> <uid> <mark>.
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


class _Marked(msgspec.Struct, frozen=True, kw_only=True):
    class Meta(msgspec.Struct, frozen=True, kw_only=True):
        uid: str
        resourceVersion: str
        generation: int | None = None

    metadata: Meta

    @property
    def mark(self) -> tuple[str, str]:
        # An object that was deleted and made again has another UID. Some kinds have no generation.
        return self.metadata.uid, str(self.metadata.generation or self.metadata.resourceVersion)


class Installed:
    def __init__(self, api: Api, *, note: Note) -> None:
        self._api, self._note = api, note
        self._found: tuple[Drift, ...] = ()
        self._default_priority = DefaultPriority(api, note=note)

    def look(self) -> tuple[Drift, ...]:
        """Repeats the last result when the API server does not answer."""
        try:
            lines = self._api.get(PATH, ConfigMap).data.get("objects", "").splitlines()
            self._found = tuple(drift for line in lines if (drift := self._look_at(line)))
        except Missing:
            self._found = ()  # an older install script wrote no list
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
        try:
            return self._api.get(f"/apis/{version}{rest}", _Marked)
        except Missing:
            if not version.endswith("/v1beta1"):
                raise
            # A newer Kubernetes serves the same object only as v1.
            return self._api.get(f"/apis/{version.removesuffix('beta1')}{rest}", _Marked)
