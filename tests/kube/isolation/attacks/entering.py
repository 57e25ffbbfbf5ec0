"""These attackers try to get onto the victim's node: past its taint, the scheduler or the gate."""

from __future__ import annotations

from typing import Any, Final

from protocol import cluster_names
from tests.kube.callers import DONE
from tests.kube.cluster import Object
from tests.kube.isolation.attacks.attack import (
    ALL,
    EVERYONE_BY_POD,
    NO_RESIZE,
    STATUS,
    WITH_BOX,
    Act,
    Attack,
    binding,
    creating,
    gated,
    patching,
    posting,
)
from tests.kube.wire import APPLY, MERGE, STRATEGIC
from tests.kube.world import BLUE, BLUE_GPR, NODE_BLUE, RESTRICTED, gate_index, is_gated, pod

# --- tolerations

TOLERATIONS: Final[dict[str, Object]] = {
    "no key": {"operator": "Exists"},
    "no key and our effect": {"operator": "Exists", "effect": "NoSchedule"},
    "our key, whatever its value": {"key": cluster_names.TAINT, "operator": "Exists"},
    "the victim's box": {"key": cluster_names.TAINT, "value": cluster_names.box_of(BLUE_GPR, 1), "effect": "NoSchedule"},
    "free nodes": {"key": cluster_names.TAINT, "value": cluster_names.FREE},
    "shared nodes": {"key": cluster_names.TAINT, "value": cluster_names.SHARED},
    "another key of ours": {"key": "egs.io/else", "operator": "Exists"},
}
OPENING: Final = ("no key", "no key and our effect", "our key, whatever its value", "the victim's box")
ANY: Final = TOLERATIONS["no key"]


def tolerating(seen: Object) -> None:
    seen["spec"]["tolerations"].append(ANY)


def ephemeral(**more: Any) -> Object:
    return {"spec": {"ephemeralContainers": [{"name": "look", "image": "none", "securityContext": RESTRICTED, **more}]}}


def tolerates_any(body: Object) -> str:
    return DONE if ANY in body["spec"]["tolerations"] else "no effect"


TOLERATION_ATTACKS = [
    *(
        Attack(f"a CPU pod that tolerates {form}", creating(tolerations=[toleration]), EVERYONE_BY_POD, opens=form in OPENING)
        for form, toleration in TOLERATIONS.items()
    ),
    *(
        Attack(f"a GPU pod that tolerates {form}", creating(gpus=1, tolerations=[toleration]), EVERYONE_BY_POD)
        for form, toleration in TOLERATIONS.items()
    ),
    Attack(
        "a toleration for the waiting pod, by JSON Patch",
        patching("gated", [{"op": "add", "path": "/spec/tolerations/-", "value": ANY}]),
        EVERYONE_BY_POD,
    ),
    Attack("a toleration for the waiting pod, by PUT", lambda by: by.put("gated", tolerating), EVERYONE_BY_POD),
    *(
        Attack(
            f"a toleration for the waiting pod, by {kind}",
            lambda by, kind=kind: by.patch("gated", {"spec": {"tolerations": [*by.seen("gated")["spec"]["tolerations"], ANY]}}, kind=kind),
            EVERYONE_BY_POD,
        )
        for kind in (MERGE, STRATEGIC)
    ),
    Attack(
        "a toleration for the waiting pod, by apply with force",
        lambda by: by.patch("gated", pod("gated", 1, tolerations=[*by.seen("gated")["spec"]["tolerations"], ANY]), kind=APPLY),
        EVERYONE_BY_POD,
    ),
    Attack(
        "a toleration for a CPU pod that is pending",
        patching("cpu", [{"op": "add", "path": "/spec/tolerations/-", "value": ANY}]),
        EVERYONE_BY_POD,
        opens=True,
    ),
    Attack(
        "a toleration through pods/status",
        lambda by: by.put("gated", tolerating, sub="status"),
        {"ua": "RBAC", "ons": "egs-pod|egs-status"},
    ),
    Attack(
        "a toleration through pods/ephemeralcontainers",
        lambda by: by.put("gated", tolerating, sub="ephemeralcontainers"),
        {"a": "RBAC", "uons": "no effect"},
        reads=tolerates_any,
    ),
    Attack(
        "a toleration through pods/resize",
        lambda by: by.put("cpu", tolerating, sub="resize"),
        {"a": "RBAC", "uons": "no effect"},
        reads=tolerates_any,
        without=NO_RESIZE,
    ),
]

# --- on to the victim's node by its name, or past the scheduler

MIRROR: Final = {"annotations": {"kubernetes.io/config.mirror": "abc"}}
HOST: Final[Object] = {"hostPID": True, "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]}


def on_node(seen: Object) -> None:
    seen["spec"]["nodeName"] = NODE_BLUE


def nominating(seen: Object) -> None:
    seen["status"]["nominatedNodeName"] = NODE_BLUE


# Both policies refuse it; which one tells is not fixed.
SCHEDULER_ALONE: Final = {"ua": "RBAC", "ons": "egs-bind|egs-binder"}

PLACE_ATTACKS = [
    Attack("a GPU pod with nodeName", creating(gpus=1, nodeName=NODE_BLUE), {ALL: "422"}),
    Attack("a CPU pod with nodeName", creating(nodeName=NODE_BLUE), EVERYONE_BY_POD, opens=True),
    Attack("a CPU pod with nodeName, as if a kubelet's", creating(nodeName=NODE_BLUE, metadata=MIRROR), EVERYONE_BY_POD, opens=True),
    Attack("a pod as if a kubelet's, without a node", creating(metadata=MIRROR), {ALL: "422"}),
    Attack(
        "to debug the victim's node", creating(nodeName=NODE_BLUE, tolerations=[ANY], **HOST), {WITH_BOX: "PodSecurity", "s": "egs-pod"}
    ),
    Attack("the devices of the host", creating(**HOST), {WITH_BOX: "PodSecurity", "s": DONE}),
    Attack(
        "to bind the waiting pod to the victim's node",
        lambda by: by.make(by.pod("gated", "binding"), binding("gated")),
        SCHEDULER_ALONE,
    ),
    Attack(
        "to bind a CPU pod to the victim's node", lambda by: by.make(by.pod("cpu", "binding"), binding("cpu")), SCHEDULER_ALONE, opens=True
    ),
    Attack("to bind it by the old call", posting("/api/v1/namespaces/{namespace}/bindings", binding("cpu")), SCHEDULER_ALONE, opens=True),
    Attack("nodeName on the waiting pod, by PUT", lambda by: by.put("gated", on_node), {ALL: "422"}),
    Attack("nodeName through pods/status", lambda by: by.put("cpu", on_node, sub="status"), STATUS),
    Attack("to nominate the victim's node for a CPU pod", lambda by: by.put("cpu", nominating, sub="status"), STATUS, opens=True),
    Attack(
        "a selector on the victim's workspace",
        creating(gpus=1, nodeSelector={cluster_names.NODE_SLICE: BLUE}),
        EVERYONE_BY_POD,
    ),
    Attack(
        "a selector on the victim's box, later",
        patching("gated", [{"op": "add", "path": "/spec/nodeSelector", "value": {cluster_names.box_label(BLUE_GPR): "1"}}]),
        EVERYONE_BY_POD,
    ),
    Attack(
        "affinity to the victim's node, after the lift",
        patching(
            "mine",
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE_BLUE]}]}]
                            }
                        }
                    }
                }
            },
            kind=STRATEGIC,
        ),
        {WITH_BOX: "422"},
    ),
    Attack("GPUs for an own scheduler", creating(gpus=1, schedulerName="mine"), {ALL: "gated"}, reads=gated),
    Attack("a CPU pod for an own scheduler, which may bind nothing", creating(schedulerName="mine"), {ALL: DONE}),
]

# --- the gate


def without_gates(seen: Object) -> None:
    seen["spec"].pop("schedulingGates")


def gate_op(op: str, **more: Any) -> Act:
    return lambda by: by.patch("gated", [{"op": op, "path": f"/spec/schedulingGates/{gate_index(by.seen('gated'))}", **more}])


def kept_gate(body: Object) -> str:
    return "no effect" if is_gated(body) else DONE


GATE_ATTACKS = [
    Attack("the gate off, by PUT", lambda by: by.put("gated", without_gates), EVERYONE_BY_POD, opens=True),
    Attack("the gate off, by JSON Patch", gate_op("remove"), EVERYONE_BY_POD, opens=True),
    Attack(
        "the gate off, by merge patch of null",
        patching("gated", {"spec": {"schedulingGates": None}}, kind=MERGE),
        EVERYONE_BY_POD,
        opens=True,
    ),
    Attack(
        "the gate off, by a strategic patch that deletes it",
        patching("gated", {"spec": {"schedulingGates": [{"name": cluster_names.GATE, "$patch": "delete"}]}}, kind=STRATEGIC),
        EVERYONE_BY_POD,
        opens=True,
    ),
    Attack(
        "the gate off, by a strategic patch that replaces all gates",
        patching("gated", {"spec": {"schedulingGates": [{"$patch": "replace"}]}}, kind=STRATEGIC),
        EVERYONE_BY_POD,
        opens=True,
    ),
    Attack(
        "the gate that was applied off, by applying without it",
        lambda by: by.patch("applied", pod("applied", 1), kind=APPLY),
        EVERYONE_BY_POD,
        opens=True,
    ),
    Attack(
        "to apply twice what never named the gate",
        lambda by: by.patch("plain", pod("plain", 1), kind=APPLY),
        {ALL: "no effect"},
        reads=kept_gate,
    ),
    Attack("a gate of their own in place of ours", gate_op("replace", value={"name": "own.io/gate"}), {ALL: "422"}),
    Attack("the gate off through pods/status", lambda by: by.put("gated", without_gates, sub="status"), STATUS),
    Attack(
        "the gate off through pods/ephemeralcontainers",
        lambda by: by.put("gated", without_gates, sub="ephemeralcontainers"),
        {"a": "RBAC", "uons": "no effect"},
        reads=kept_gate,
    ),
    Attack(
        "the gate off through pods/resize",
        lambda by: by.put("gated", without_gates, sub="resize"),
        {"a": "RBAC", "uons": "egs-pod"},
        without=NO_RESIZE,
    ),
    Attack(
        "their own gates off",
        patching("gated", {"spec": {"schedulingGates": [{"name": "own.io/gate", "$patch": "delete"}]}}, kind=STRATEGIC),
        {ALL: "no effect"},
        reads=kept_gate,
    ),
]
