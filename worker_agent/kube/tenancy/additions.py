"""Finds objects that others added to a workspace's namespace, and reports those that matter. All functions are pure.

One drift covers a namespace and kind, since operators create such objects by the hundred.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final

import msgspec

from protocol.cluster_names import ACCOUNT, ISOLATION, KEEP, SLICE, account_of
from protocol.nodes.drift import Drift
from protocol.tenancy.workspaces import Workspace

DETAIL_MAX_CHARS: Final = 300  # the limit of the protocol
NAME_MAX_CHARS: Final = 80
DIGEST_CHARS: Final = 8
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


# Without annotations: those of thousands of objects would not fit into the agent's memory.
class AddedObjectMeta(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    labels: dict[str, str] | None = None
    finalizers: tuple[str, ...] = ()


class AddedObject(msgspec.Struct, frozen=True, kw_only=True):
    metadata: AddedObjectMeta
    spec: Any = None
    roleRef: Any = None
    subjects: Any = None


def is_our_policy(policy: AddedObject, workspace: Workspace) -> bool:
    return policy.metadata.name == ISOLATION  # what is in it is restored in each pass


def is_our_binding(binding: AddedObject, workspace: Workspace) -> bool:
    # Anybody may write these labels, so they must name this workspace and one of its accounts.
    labels = binding.metadata.labels or {}
    account = labels.get(ACCOUNT, "")
    if labels.get(SLICE) != workspace.id or binding.metadata.name != account_of(account):
        return False
    return any(each.id == account for each in workspace.accounts)


# NetworkPolicies add up: one that allows any traffic opens the isolation, one that allows none changes nothing.
# RoleBindings give nobody more rights than their author had.
def allows_traffic(policy: AddedObject) -> bool:
    """Tell whether it allows any traffic."""
    spec: dict[str, Any] = policy.spec or {}
    # The defaults of the API server. Rules of a type that is not listed have no effect.
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    return bool(("Ingress" in types and spec.get("ingress")) or ("Egress" in types and spec.get("egress")))


def is_marked(policy: AddedObject) -> bool:
    """If the policy egs-keep is installed, only administrators can set this label."""
    return (policy.metadata.labels or {}).get(KEEP) == "true"


def removed_drift(namespace: str, policies: Iterable[str], *, later_count: int) -> Drift:
    """`later_count`: others that were not tried."""
    return _drift(f"network policies in namespace {namespace}", policies, later_count=later_count, is_repaired=True, is_foreign=True)


def remaining_drift(namespace: str, policies: Iterable[str], *, later_count: int) -> Drift:
    return _drift(f"network policies that stay in namespace {namespace}", policies, later_count=later_count, is_foreign=True)


def bindings_drift(namespace: str, bindings: Iterable[AddedObject]) -> Drift:
    return _drift(f"role bindings in namespace {namespace}", [_binding_text(binding) for binding in bindings])


def readable(text: str, max_chars: int = NAME_MAX_CHARS) -> str:
    """Takes out control characters; a digest stands for the cut rest."""
    plain = CONTROL.sub("?", text)
    if plain == text and len(text) <= max_chars:
        return text
    mark = f"~{_digest(text)}"
    return plain[: max_chars - len(mark)] + mark


def _drift(what: str, texts: Iterable[str], *, later_count: int = 0, is_repaired: bool = False, is_foreign: bool = False) -> Drift:
    said = sorted(texts)
    count = f"{len(said)} of {len(said) + later_count} (the others go at the next looks)" if later_count else str(len(said))
    harm = " and that let traffic through" if is_foreign else ""
    detail = _listed(f"{count} that EGS does not keep{harm}: ", said)
    return Drift(what=what, detail=detail, is_added=True, is_repaired=is_repaired, is_foreign=is_foreign)


def _listed(begin: str, texts: list[str]) -> str:
    """A digest stands for those that do not fit."""
    whole = f"{begin}{', '.join(texts)}."
    if len(whole) <= DETAIL_MAX_CHARS:
        return whole
    chars = accumulate(len(text) for text in texts[:DETAIL_MAX_CHARS])
    most = sum(each <= DETAIL_MAX_CHARS for each in chars)
    for count in range(min(most, len(texts) - 1), 0, -1):
        rest = texts[count:]
        cut = f"{begin}{', '.join(texts[:count])}, and {len(rest)} more (~{_digest(chr(0).join(rest))})."
        if len(cut) <= DETAIL_MAX_CHARS:
            return cut
    return readable(whole, DETAIL_MAX_CHARS)


def _binding_text(binding: AddedObject) -> str:
    role = binding.roleRef or {}
    whom = ", ".join(sorted(f"{each.get('kind')} {each.get('name')}" for each in binding.subjects or ())) or "nobody"
    given = readable(f"{role.get('kind')} {role.get('name')} to {whom}")
    return f"{readable(binding.metadata.name)} ({given})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
