"""What somebody else put into a namespace of a workspace beside what EGS keeps there, and what of it is told. Pure.

NetworkPolicies add up: one more that lets anything through opens the fence, one that lets nothing through changes nothing. RoleBindings
add up, too, but give nobody more than who made them had: no lock rests on rights within a namespace. A Role alone gives nothing to anybody.
"""

from __future__ import annotations

from typing import Any, Final

from worker_agent.kube.names import ACCOUNT, ISOLATION, SLICE, account_of
from worker_agent.kube.scene import Place, Thing
from worker_agent.protocol import Drift

KINDS: Final = ("networkpolicies", "rolebindings")  # of which somebody else's are looked for
DETAIL_MAX_CHARS: Final = 300


def is_ours(place: Place, thing: Thing) -> bool:
    """By its name alone a policy: what is in it is kept. A binding that only has our labels is not."""
    kind, _, name = place
    if kind == "networkpolicies":
        return name == ISOLATION
    account = thing.metadata.label(ACCOUNT)
    return bool(account and thing.metadata.label(SLICE)) and name == account_of(account)


def opens(policy: Thing) -> bool:
    """Whether it lets anything through: an administrator of the cluster lets in by the label egs.io/may-enter, the hub out."""
    spec: dict[str, Any] = policy.spec or {}
    return bool(spec.get("ingress") or spec.get("egress"))


def policy_drift(place: Place, *, is_repaired: bool) -> Drift:
    _, namespace, name = place
    return Drift(
        what=f"network policy {name} in namespace {namespace}",
        detail="EGS did not make it, and it lets traffic through beside the workspace's own.",
        is_repaired=is_repaired,
    )


def binding_drift(place: Place, binding: Thing) -> Drift:
    _, namespace, name = place
    role = binding.roleRef or {}
    whom = ", ".join(sorted(f"{each.get('kind')} {each.get('name')}" for each in binding.subjects or ())) or "nobody"
    detail = f"EGS did not make it. It gives {role.get('kind')} {role.get('name')} to {whom}."
    return Drift(what=f"role binding {name} in namespace {namespace}", detail=detail[:DETAIL_MAX_CHARS])
