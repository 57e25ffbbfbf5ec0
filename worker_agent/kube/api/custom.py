"""Reads the custom resources of EGS as users wrote them; other modules validate them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from protocol.cluster_names import AUTO, HUB_TEMPLATE, REQUESTER, WORKLOAD
from worker_agent.kube.api.objects import Meta

API: Final = "egs.io/v1alpha1"
REQUESTS, JOBS, TEMPLATES = "gpuprovisioningrequests", "gpujobs", "gprtemplates"
REQUESTS_PATH, JOBS_PATH, TEMPLATES_PATH = (f"/apis/{API}/{kind}" for kind in (REQUESTS, JOBS, TEMPLATES))
REQUEST_KIND, JOB_KIND = (f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.egs.io" for kind in (REQUESTS, JOBS))
FINISHED: Final = "Finished"  # a condition type
GIVEN_BACK: Final = "given-back"  # the value of the annotation AUTO on a request that the agent released because nobody used it
Fields = dict[str, Any]


# Only these annotations are read: all annotations of thousands of objects would not fit into memory.
# The quota of a namespace limits how many objects there are (isolation.py).
class EgsAnnotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    requester: str = msgspec.field(name=REQUESTER, default="")
    auto: str = msgspec.field(name=AUTO, default="")  # only the agent may write it
    hub_template: str = msgspec.field(name=HUB_TEMPLATE, default="")


class EgsLabels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    workload: str = msgspec.field(name=WORKLOAD, default="")


class CustomMeta(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: datetime | None = None
    deletionTimestamp: str = ""
    annotations: EgsAnnotations = EgsAnnotations()
    labels: EgsLabels = EgsLabels()

    @property
    def plain(self) -> Meta:
        return Meta(name=self.name, namespace=self.namespace, uid=self.uid)


class Custom(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = "GPUProvisioningRequest"
    metadata: CustomMeta
    # Both may follow an older schema.
    spec: Any = None
    status: Any = None

    @property
    def fields(self) -> Fields:
        return self.spec if isinstance(self.spec, dict) else {}

    @property
    def status_fields(self) -> Fields:
        return self.status if isinstance(self.status, dict) else {}

    def condition(self, type_: str) -> Fields:
        """Returns {} when there is none."""
        conditions = self.status_fields.get("conditions")
        found = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
        return next((each for each in found if each.get("type") == type_), {})

    @property
    def is_job(self) -> bool:
        return self.kind == "GPUJob"

    @property
    def path(self) -> str:
        """Returns the path of the request or job."""
        return path_of(JOBS if self.is_job else REQUESTS, self.metadata.namespace, self.metadata.name)

    @property
    def is_going(self) -> bool:
        return bool(self.metadata.deletionTimestamp)

    @property
    def is_auto(self) -> bool:
        """Tell whether the agent made this request for waiting pods."""
        return self.metadata.annotations.auto in ("true", GIVEN_BACK)

    @property
    def is_finished(self) -> bool:
        return self.condition(FINISHED).get("status") == "True"


def path_of(kind: str, namespace: str, name: str = "") -> str:
    return "/".join(part for part in (f"/apis/{API}/namespaces/{namespace}/{kind}", name) if part)


class DefinitionMeta(msgspec.Struct, frozen=True):
    creationTimestamp: datetime


class Definition(msgspec.Struct, frozen=True):  # a CustomResourceDefinition
    metadata: DefinitionMeta


class ItemMeta(msgspec.Struct, frozen=True):
    uid: str
    deletionTimestamp: str = ""


class ListedObject(msgspec.Struct, frozen=True):
    metadata: ItemMeta


class ServedKinds(msgspec.Struct, frozen=True, kw_only=True):
    class ServedKind(msgspec.Struct, frozen=True):
        name: str
        verbs: tuple[str, ...] = ()

    resources: tuple[ServedKind, ...] = ()

    def may_create(self, resource: str) -> bool:
        """False while the definition is being deleted together with all its objects."""
        return any(kind.name == resource and "create" in kind.verbs for kind in self.resources)
