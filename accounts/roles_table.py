"""Writes the table of permissions for docs/how-to/roles.md."""

from __future__ import annotations

from typing import Final

from accounts.policy import TABLE, Kind, Relation, Verb

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
    Kind.WORKSPACE: "workspace",
    Kind.GPR: "GPU request",
    Kind.PROMISE: "exact figures of promises",
    Kind.BOOKING_SERIES: "series of bookings",
    Kind.TEMPLATE: "template",
    Kind.WORKSPACE_REQUEST: "request for a workspace",
    Kind.READING: "readings of a GPU while a box holds it",
    Kind.USAGE: "usage",
    Kind.PRICE: "price",
    Kind.WORKLOAD: "workload with its pods",
    Kind.ALERT_RULE: "rule of alerts",
    Kind.ALERT_SILENCE: "silence of alerts",
    Kind.MAINTENANCE: "maintenance",
    Kind.SUPPLY_ORDER: "order of a supply",
    Kind.CHECK_POLICY: "check policy",
    Kind.CASE: "case of a node that is set aside",
    Kind.REMEDIATION_POLICY: "remediation policy",
    Kind.PROMETHEUS: "Prometheus of a cluster",
    Kind.PLATFORM: "platform",
}


def roles_table() -> str:
    """Writes one line for all objects on which the same people may do the same."""
    objects: dict[tuple[str, str], list[str]] = {}
    for (verb, kind), rule in sorted(TABLE.items(), key=lambda row: (list(Verb).index(row[0][0]), list(Kind).index(row[0][1]))):
        who = "; ".join(_said(way) for way in rule)
        objects.setdefault((verb.value.replace("_", " "), who), []).append(OBJECTS.get(kind, str(kind)))
    return "\n".join(f"- **{verb}** {', '.join(names)}: {who}" for (verb, who), names in objects.items())


def _said(way: frozenset[Relation]) -> str:
    if way == {Relation.CREATOR, Relation.EDITOR}:
        return "an editor who made it"
    (relation,) = way
    return INCLUDED.get(relation, WHO[relation])
