# `make client` writes this file. Do not edit it.
"""Lists the kinds of manifests: their fields, and the addresses of the REST API that read and write them.

A field has the name of the custom resources: `duration_s` of the API is `duration: 8h30m` here, `slice` is `workspace`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from egs_client.manifests.faults import nearest

API_VERSION: Final = "egs.io/v1alpha1"
WORDS: Final = {"slice": "workspace", "is_on": "enabled"}


class At(Enum):
    """Names the calls that take the field."""

    CREATE = "create"
    CHANGE = "change"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Field:
    """`api`: its name in the REST API; `of`: the kind of object that it names; `reads`: where answers hold it."""

    api: str
    at: At = At.BOTH
    of: str = ""
    reads: str = ""
    is_set: bool = False  # the order of its items says nothing
    is_fixed: bool = False  # no call changes it
    is_yaml: bool = False  # manifests have documents as text, where the API answers with a list

    @property
    def name(self) -> str:
        return manifest_name(self.api)

    @property
    def is_span(self) -> bool:
        return self.api.endswith("_s")


def manifest_name(api: str) -> str:
    """Turns `duration_s` into `duration`, `gpu_memory_gib` into `gpuMemoryGiB`, and `is_enabled` into `enabled`."""
    plain = WORDS.get(api) or api.removeprefix("is_").removesuffix("_s")
    first, *rest = plain.removesuffix("_gib").split("_")
    return first + "".join(word.capitalize() for word in rest) + ("GiB" if plain.endswith("_gib") else "")


class Change(Enum):
    PATCH = "patch"
    POST = "post"  # the same call as for a new one
    ANEW = "anew"  # it is deleted and made again
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`path` may hold `{field}`; `query` narrows a list: to what
    a field says, or to a value that begins with `=`. `keys` and the name, if it has one, identify an object."""

    name: str
    path: str
    fields: tuple[Field, ...]
    words: tuple[str, ...]  # as people write it behind `egs get`
    keys: tuple[str, ...] = ()
    name_field: str = "name"  # empty: it has no name of its own
    name_prefix: str = ""  # the API's answers put it before the name, with `{field}` of the object
    query: Mapping[str, str] = field(default_factory=dict)
    joins: str = ""  # the address of another object that holds the rest of its fields, with `{field}` of its own row
    is_found_by_name: bool = False  # <path><name>/ answers with the object
    also: str = ""  # a list of those that are only asked to come, as people who are invited
    change: Change = Change.PATCH
    is_given: bool = False  # EGS makes it with what it belongs to
    archives: bool = False  # a deletion archives it, since its history stays
    kept: str = ""  # why it cannot be deleted, as a sentence
    plans: bool = False  # its changes plan the queue
    is_of_owners: bool = False  # whoever manages its workspace may change it
    acts: Mapping[tuple[str, bool], str] = field(default_factory=dict)  # (field, value) -> the call that sets it
    exported_if: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    exported_while_ahead: str = ""  # a time that has to lie ahead
    is_setup: bool = True  # part of an export of everything
    named: Mapping[str, Field] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", MappingProxyType({each.name: each for each in self.fields}))

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of fields that every manifest of the kind has."""
        return tuple(manifest_name(each) for each in self.keys if each not in ONE_OF and each not in MAY_LACK)


# One of each pair says whose it is.
ONE_OF: Final = ("project", "slice", "cluster", "node")
MAY_LACK: Final = ("shape", "starts_at")


def _fields(*names: str, at: At = At.BOTH, is_fixed: bool = False, under: str = "") -> tuple[Field, ...]:
    return tuple(Field(name, at, is_fixed=is_fixed, reads=f"{under}{name}" if under else "") for name in names)


def _fixed(*names: str, of: str = "") -> tuple[Field, ...]:
    return tuple(Field(name, At.CREATE, of=of, is_fixed=True) for name in names)


_PROJECT: Final = Field("project", At.CREATE, of="Project", is_fixed=True)
_SLICE: Final = Field("slice", At.CREATE, of="Workspace", is_fixed=True)
_CLUSTER: Final = Field("cluster", At.CREATE, of="Cluster", is_fixed=True)
_CLUSTERS: Final = Field("clusters", of="Cluster", is_set=True)
_POLICY: Final = (
    *(
        "nodes_approval",
        "gpus_approval",
        "duration_approval_s",
        "duration_max_s",
        "priority_approval",
        "queued_max",
        "ahead_max_s",
        "shapes",
    ),
    *("may_evict", "may_skip_checks", "may_order", "burst_gain_s", "decide_within_s", "pods_max", "may_reach_out", "kubeconfig_max_s"),
    *("idle_timeout_s", "may_keep_idle"),
    *("namespace_patterns", "namespaces_max"),
)
_REQUEST: Final = (
    *("shape", "min_gpu_memory_gib", "nodes", "gpus_per_node", "duration_s", "priority", "node_type", "rdma", "within"),
    *("idle_timeout_s", "evictable", "may_evict", "requeue_on_failure", "run_checks"),
)

_RUNS: Final = ("kind", "image", "command", "env", "secrets", "volumes", "pull_secret", "user_id", "retries", "checkpoint")

# In the order in which they are made: an object comes after those that it names.
KINDS: Final = (
    Kind(
        name="User",
        words=("users", "user"),
        path="users/",
        is_found_by_name=True,
        fields=(Field("email", At.CREATE, is_fixed=True), Field("role"), Field("is_active", At.CHANGE)),
        exported_if={"is_service": (False,)},
        kept="A person stays in EGS: set active: false.",
    ),
    Kind(
        name="PlatformGroup",
        words=("platformgroups", "platformgroup"),
        path="roles/",
        name_field="",
        keys=("provider", "group"),
        fields=_fields("provider", "group", "role"),
        change=Change.ANEW,
    ),
    Kind(
        name="Cluster",
        words=("clusters", "cluster"),
        path="clusters/",
        is_found_by_name=True,
        fields=_fields("api_url", "repairs_drift", "drain_grace_s", "drain_force_after_s", "is_enabled", at=At.CHANGE),
        acts={("is_enabled", True): "enable/", ("is_enabled", False): "disable/"},
        kept="A cluster stays in EGS: set enabled: false.",
    ),
    Kind(
        name="CheckPolicy",
        words=("checkpolicies", "checkpolicy"),
        path="check-policies/",
        name_field="",
        keys=("cluster", "shape"),
        query={"cluster": "cluster"},
        fields=(
            _CLUSTER,
            *_fixed("shape"),
            *_fields("limits", "images", "skipped_steps", "storage_class", "rdma_subnet", "runtime_class", "pull_secret"),
        ),
    ),
    Kind(
        name="Supply",
        words=("supplies", "supply"),
        path="supplies/",
        keys=("cluster",),
        query={"cluster": "cluster"},
        fields=(
            _CLUSTER,
            *_fixed("kind", "shape", "gpus_per_node", "gpu_memory_gib"),
            *_fields("node_count", "lead_time_s", "gain_s", "is_enabled"),
        ),
        kept="A supply stays in EGS: set enabled: false.",
    ),
    Kind(
        name="Maintenance",
        words=("maintenances", "maintenance"),
        path="maintenance/",
        name_field="",
        keys=("cluster", "node", "starts_at"),
        query={"cluster": "cluster", "node": "node", "canceled": "=false"},
        fields=(_CLUSTER, *_fixed("node", "starts_at", "ends_at", "reason")),
        change=Change.NONE,
        exported_while_ahead="starts_at",
    ),
    Kind(
        name="Project",
        words=("projects", "project"),
        path="projects/",
        is_found_by_name=True,
        fields=(Field("ends_at", At.CHANGE),),
        archives=True,
        exported_if={"life": ("open",)},
    ),
    Kind(
        name="ProjectAdmin",
        words=("projectadmins", "projectadmin"),
        path="projects/{project}/admins/",
        name_field="user",
        is_found_by_name=True,
        keys=("project",),
        fields=(_PROJECT,),
        change=Change.NONE,
    ),
    Kind(
        name="Workspace",
        words=("workspaces", "workspace", "ws", "slices", "slice"),
        path="slices/",
        is_found_by_name=True,
        fields=(
            _PROJECT,
            _CLUSTERS,
            Field("home", At.CHANGE, of="Cluster"),
            Field("ends_at", At.CHANGE),
        ),
        archives=True,
        exported_if={"life": ("open",)},
    ),
    Kind(
        name="Policy",
        words=("policies", "policy"),
        path="policies/",
        name_field="",
        keys=("project", "slice"),
        query={"project": "project", "slice": "slice"},
        fields=(_PROJECT, _SLICE, *_fields(*_POLICY, under="own.")),
        is_given=True,
        kept="A policy cannot be deleted: write null for terms that it inherits.",
    ),
    Kind(
        name="WorkspaceGroup",
        is_of_owners=True,
        words=("workspacegroups", "workspacegroup", "groups", "group"),
        path="slices/{slice}/groups/",
        name_field="",
        keys=("slice", "provider", "group"),
        fields=(_SLICE, *_fields("provider", "group", "role")),
        change=Change.ANEW,
    ),
    Kind(
        name="Member",
        is_of_owners=True,
        words=("members", "member"),
        path="slices/{slice}/members/",
        also="slices/{slice}/invitations/",
        name_field="user",
        is_found_by_name=True,
        keys=("slice",),
        fields=(_SLICE, Field("role")),
        change=Change.POST,
        exported_if={"is_by_group": (False,)},
    ),
    Kind(
        name="ServiceAccount",
        is_of_owners=True,
        words=("serviceaccounts", "serviceaccount", "service-accounts", "service-account", "sa"),
        path="slices/{slice}/service-accounts/",
        name_prefix="{slice}:",
        keys=("slice",),
        fields=(_SLICE, Field("role"), Field("is_active", At.CHANGE)),
        exported_if={"cluster": (None,)},
    ),
    Kind(
        name="Namespace",
        is_of_owners=True,
        words=("namespaces", "namespace", "ns"),
        path="slices/{slice}/namespaces/",
        keys=("slice", "cluster"),
        fields=(_SLICE, _CLUSTER, Field("may_adopt", At.CREATE)),
        acts={("may_adopt", True): "adopt/"},
        change=Change.NONE,
        exported_if={"state": ("READY", "WAITING", "CONFLICT")},
    ),
    Kind(
        name="Quota",
        words=("quotas", "quota"),
        path="quotas/",
        name_field="",
        keys=("project", "slice", "shape"),
        query={"project": "project", "slice": "slice"},
        fields=(_PROJECT, _SLICE, *_fixed("shape"), *_fields("guaranteed_gpus", "most_gpus")),
    ),
    Kind(
        name="Budget",
        words=("budgets", "budget"),
        path="budgets/",
        name_field="",
        keys=("project", "slice", "shape", "period", "starts_at"),
        query={"project": "project", "slice": "slice"},
        fields=(_PROJECT, _SLICE, *_fixed("shape", "period"), *_fields("gpu_hours", "at_limit", "starts_at", "ends_at")),
    ),
    Kind(
        name="Channel",
        is_of_owners=True,
        words=("channels", "channel"),
        path="channels/",
        keys=("slice",),
        fields=(
            _SLICE,
            *_fixed("kind"),
            *_fields("target", "secret"),
            Field("notice_kinds", is_set=True),
            Field("digest"),
            Field("is_on", At.CHANGE),
        ),
    ),
    Kind(
        name="AlertRule",
        is_of_owners=True,
        words=("alertrules", "alertrule", "alert-rules", "alert-rule"),
        path="alert-rules/",
        keys=("slice",),
        query={"slice": "slice"},
        fields=(
            _SLICE,
            *_fixed("signal"),
            Field("cluster", of="Cluster"),
            *_fields("kind", "direction", "level", "clear_level", "severe_level", "window_s", "hold_s", "clear_s", "severity", "shape"),
            *_fields("tells", "is_on", "runbook"),
        ),
    ),
    Kind(
        name="GPRTemplate",
        is_of_owners=True,
        words=("templates", "template", "gprtemplates", "gprtemplate", "gprt"),
        path="templates/",
        keys=("slice",),
        query={"slice": "slice"},
        fields=(
            _SLICE,
            Field("cluster", of="Cluster"),
            *_fields("is_default", "auto", *_REQUEST, *_RUNS),
            Field("manifest", is_yaml=True),
            *_fields("namespace", "releases_box"),
        ),
    ),
    Kind(
        name="BookingSeries",
        is_of_owners=True,
        words=("bookingseries", "series"),
        path="booking-series/",
        keys=("slice",),
        query={"slice": "slice", "canceled": "=false"},
        fields=(
            _SLICE,
            *_fixed("first_start_at", "rule", "zone", "until_at", "count"),
            Field("clusters", At.CREATE, of="Cluster", reads="asked.clusters", is_set=True, is_fixed=True),
            *_fields(*_REQUEST, "model", at=At.CREATE, is_fixed=True, under="asked."),
        ),
        change=Change.NONE,
        plans=True,
        is_setup=False,
        exported_while_ahead="first_start_at",
    ),
    Kind(
        name="GPUProvisioningRequest",
        is_of_owners=True,
        words=("gprs", "gpr", "gpuprovisioningrequests", "gpuprovisioningrequest", "requests", "request"),
        path="gprs/",
        keys=("slice",),
        query={"slice": "slice", "ended": "=false"},
        fields=(
            _SLICE,
            Field("template", At.CREATE, of="GPRTemplate", is_fixed=True),
            _CLUSTERS,
            *_fields("earliest_start_at", "is_booking", "after", "after_condition", *_REQUEST, "model"),
        ),
        plans=True,
        is_setup=False,
        exported_if={"state": ("QUEUED", "PENDING_APPROVAL")},
    ),
    Kind(
        name="GPUJob",
        is_of_owners=True,
        words=("jobs", "job", "gpujobs", "gpujob", "gj"),
        path="jobs/",
        keys=("slice",),
        query={"slice": "slice", "ended": "=false"},
        joins="gprs/{gpr_id}/",
        fields=(
            _SLICE,
            Field("template", At.CREATE, of="GPRTemplate", is_fixed=True),
            Field("clusters", At.CREATE, of="Cluster", is_set=True, is_fixed=True),
            *_fixed("earliest_start_at", "is_booking", "after", "after_condition", *_REQUEST, "model"),
            *_fixed(*_RUNS),
            Field("manifest", At.CREATE, is_fixed=True, is_yaml=True),
            *_fixed("namespace", "releases_box"),
        ),
        change=Change.NONE,
        plans=True,
        is_setup=False,
        exported_if={"state": ("WAITING",)},
    ),
)
BY_NAME: Final = MappingProxyType({kind.name: kind for kind in KINDS})
ORDER: Final = MappingProxyType({kind.name: index for index, kind in enumerate(KINDS)})


def kind_of_word(word: str) -> Kind | None:
    """`workspaces`, `ws` and `Workspace` are one kind."""
    return next((kind for kind in KINDS if word == kind.name or word.lower() in (kind.name.lower(), *kind.words)), None)


def no_such_kind(word: str) -> str:
    known = nearest(word, BY_NAME) or f" There are {', '.join(BY_NAME)}."
    return f"There is no kind {ascii(word[:60])[1:-1]}.{known}"


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SPAN: Final = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?\Z", re.ASCII)


def span_text(span_s: int) -> str:
    """Returns e.g. `8h30m`."""
    parts = []
    for unit, unit_s in _UNITS:
        count, span_s = divmod(span_s, unit_s)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def span_parse(text: str) -> int:
    """Returns the seconds of a text as `8h30m`. Raises ValueError."""
    match = _SPAN.match(text)
    if match is None or not text:
        raise ValueError(text[:60])
    return sum(int(count or 0) * unit_s for count, (_, unit_s) in zip(match.groups(), _UNITS, strict=True))
