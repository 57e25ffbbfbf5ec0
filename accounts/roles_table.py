"""Writes the table of permissions for docs/how-to/roles.md."""

from __future__ import annotations

from typing import Final

from accounts.policy import TABLE, ObjectKind, Relation, Verb

WHO: Final = {
    Relation.ADMIN: "platform administrator",
    Relation.AUDITOR: "auditor",
    Relation.PROJECT_ADMIN: "project administrator",
    Relation.OWNER: "owner",
    Relation.EDITOR: "editor",
    Relation.VIEWER: "viewer",
    Relation.CREATOR: "who made it",
    Relation.DEPUTY: "deputy of one of these",
}
# Roles in a workspace that the smallest one of a rule implies.
INCLUDED: Final = {Relation.VIEWER: "every member", Relation.EDITOR: "editors and owners"}
OBJECTS: Final = {
    ObjectKind.WORKSPACE: "workspace",
    ObjectKind.GPR: "GPU request",
    ObjectKind.PROMISE: "exact figures of promises",
    ObjectKind.BOOKING_SERIES: "series of bookings",
    ObjectKind.TEMPLATE: "template",
    ObjectKind.WORKSPACE_REQUEST: "request for a workspace",
    ObjectKind.READING: "readings of a GPU while a box holds it",
    ObjectKind.USAGE: "usage",
    ObjectKind.PRICE: "price",
    ObjectKind.WORKLOAD: "workload with its pods",
    ObjectKind.ALERT_RULE: "rule of alerts",
    ObjectKind.ALERT_SILENCE: "silence of alerts",
    ObjectKind.MAINTENANCE: "maintenance",
    ObjectKind.SUPPLY_ORDER: "order of a supply",
    ObjectKind.CHECK_POLICY: "check policy",
    ObjectKind.CASE: "case of a node that is set aside",
    ObjectKind.REMEDIATION_POLICY: "remediation policy",
    ObjectKind.PROMETHEUS: "Prometheus of a cluster",
    ObjectKind.PLATFORM: "platform",
}


def roles_table() -> str:
    """Writes one line for all objects on which the same people may do the same."""
    objects: dict[tuple[str, str], list[str]] = {}
    for (verb, kind), rule in sorted(TABLE.items(), key=lambda row: (list(Verb).index(row[0][0]), list(ObjectKind).index(row[0][1]))):
        who = "; ".join(_said(way) for way in rule)
        objects.setdefault((verb.value.replace("_", " "), who), []).append(OBJECTS.get(kind, str(kind)))
    return "\n".join(f"- **{verb}** {', '.join(names)}: {who}" for (verb, who), names in objects.items())


def _said(way: frozenset[Relation]) -> str:
    if way == {Relation.CREATOR, Relation.EDITOR}:
        return "an editor who made it"
    (relation,) = way
    return INCLUDED.get(relation, WHO[relation])
