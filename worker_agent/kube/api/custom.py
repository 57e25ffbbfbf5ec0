"""The kinds of EGS that people write, as far as the agent needs them. What people wrote is read as it is, and judged elsewhere.

Of annotations only ours are read: those of thousands of objects, each as large as it may be, would not fit into the agent's memory. How
many there may be in a namespace, its quota says (isolation.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from protocol.cluster_names import AUTO, HUB_TEMPLATE, REQUESTER, WORKLOAD
from worker_agent.kube.api.objects import Meta

API: Final = "egs.io/v1alpha1"
REQUESTS, TEMPLATES = "gpuprovisioningrequests", "gprtemplates"
REQUEST_KIND: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuprovisioningrequests.egs.io"
REQUESTS_PATH, TEMPLATES_PATH = f"/apis/{API}/{REQUESTS}", f"/apis/{API}/{TEMPLATES}"
FINISHED: Final = "Finished"  # condition
GIVEN_BACK: Final = "given-back"  # the value of names.AUTO on a request that the agent gave back, since nobody used it
Fields = dict[str, Any]


class Marks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    requester: str = msgspec.field(name=REQUESTER, default="")
    auto: str = msgspec.field(name=AUTO, default="")
    hub_template: str = msgspec.field(name=HUB_TEMPLATE, default="")


class Labels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    workload: str = msgspec.field(name=WORKLOAD, default="")


class CustomMeta(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: datetime | None = None
    deletionTimestamp: str = ""
    annotations: Marks = Marks()
    labels: Labels = Labels()

    @property
    def plain(self) -> Meta:
        return Meta(name=self.name, namespace=self.namespace, uid=self.uid)


class Custom(msgspec.Struct, frozen=True, kw_only=True):
    """A request or a template. `spec` and `status` are what the API server let pass, perhaps by an older schema."""

    metadata: CustomMeta
    spec: Any = None
    status: Any = None

    @property
    def fields(self) -> Fields:
        return self.spec if isinstance(self.spec, dict) else {}

    @property
    def said(self) -> Fields:
        """The status as we left it."""
        return self.status if isinstance(self.status, dict) else {}

    def condition(self, type_: str) -> Fields:
        """Empty where there is none."""
        conditions = self.said.get("conditions")
        found = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
        return next((each for each in found if each.get("type") == type_), {})

    @property
    def is_going(self) -> bool:
        return bool(self.metadata.deletionTimestamp)

    @property
    def is_auto(self) -> bool:
        """A request that the agent made for pods that wait. Nobody else may write that mark."""
        return self.metadata.annotations.auto in ("true", GIVEN_BACK)

    @property
    def is_finished(self) -> bool:
        return self.condition(FINISHED).get("status") == "True"


def path_of(kind: str, namespace: str, name: str = "") -> str:
    return "/".join(part for part in (f"/apis/{API}/namespaces/{namespace}/{kind}", name) if part)


class DefinitionMeta(msgspec.Struct, frozen=True):
    creationTimestamp: datetime


class Definition(msgspec.Struct, frozen=True):
    """Of a kind. One that is deleted and installed again is another, and knows nothing of the objects of the first."""

    metadata: DefinitionMeta


class ItemMeta(msgspec.Struct, frozen=True):
    uid: str
    deletionTimestamp: str = ""


class Item(msgspec.Struct, frozen=True):
    """Of a list: which objects there are."""

    metadata: ItemMeta


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server serves of our group."""

    class Kind(msgspec.Struct, frozen=True):
        name: str
        verbs: tuple[str, ...] = ()

    resources: tuple[Kind, ...] = ()

    def may_create(self, resource: str) -> bool:
        """Not while the kind itself is being deleted, and all its objects with it."""
        return any(kind.name == resource and "create" in kind.verbs for kind in self.resources)
