"""The matrix has one expected code for every address of the resolver, every method and every persona.

An address that is not listed fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import QuerySet
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import GroupRole, PlatformRole, Scope, User
from accounts.tokens.services import TokenTerms
from core.clock import db_now
from gpr.bookings.services import SeriesTerms, series_create
from gpr.jobs.services import job_create
from gpr.jobs.spec import JobSpec
from gpr.models import Gpr, RepeatRule, ShapePrice
from inventory.models import Gpu, MaintenanceWindow
from journal.models import Event
from observability.alerts.models import AlertSilence
from observability.workloads.models import Workload
from slices.models import Budget, Deputy, Invitation, Period, ProjectAdmin, Quota, Role, SliceGroup
from slices.policies.services import policy_of
from slices.service_accounts.services import service_account_create, service_token_create
from slices.workspace_requests.services import WorkspaceTerms, workspace_request_create
from tests import factories
from tests.api.conftest import Caller, World
from tests.builders import SHAPE
from tests.effort import IS_SOAK
from tests.journal.notices import notices
from tests.observability.alerts.rows import alert_of
from tests.observability.workloads.saying import seen, tell
from tests.slices import kubeconfigs

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PERSONAS = ("anonymous", "owner", "teammate", "outsider", "admin", "reader", "half_admin")
# Their codes follow from those of the others: see `expected`.
DERIVED = ("auditor", "project_admin", "bound")
# A method that is not there is refused to all who may write as it is to an administrator.
REFUSED_PERSONAS = PERSONAS if IS_SOAK else ("anonymous", "admin", "reader")


@dataclass(frozen=True, slots=True)
class Codes:
    """The answer to each persona. `reader`: the owner with a token of scope read; `half_admin`: the administrator without his scope."""

    anonymous: int
    owner: int
    teammate: int
    outsider: int
    admin: int
    reader: int
    half_admin: int


LIST = Codes(401, 200, 200, 200, 200, 200, 200)  # whatever each may see of it
SEE = Codes(401, 200, 200, 404, 200, 200, 404)  # something of the slice
SEE_SHARED = Codes(401, 200, 200, 200, 200, 200, 404)  # something of the cluster, which the outsider's slice uses, too
NOT_THERE = Codes(401, 405, 405, 405, 405, 403, 405)
NOT_THERE_TO_READ = Codes(401, 405, 405, 405, 405, 405, 405)


def change(code: int) -> Codes:
    return Codes(401, code, 403, 404, code, 403, 404)


def decide(code: int) -> Codes:
    return Codes(401, 403, 403, 404, code, 403, 404)


def for_admin(code: int) -> Codes:
    return Codes(401, 403, 403, 403, code, 403, 403)


def for_oneself(code: int) -> Codes:
    return Codes(401, code, code, code, code, 403, code)


def everybody(code: int) -> Codes:
    """Everybody gets this code, also without a token."""
    return Codes(*[code] * 7)


CHANNEL = Codes(401, 200, 404, 404, 200, 200, 404)


def change_of_channel(code: int) -> Codes:
    return Codes(401, code, 404, 404, code, 403, 404)


@dataclass(frozen=True, slots=True)
class Row:
    """`gpr`: what the GPR of the path has to be. `body` may name what `place` knows. `changes`: where it is not refused."""

    codes: Codes
    body: Mapping[str, Any] = field(default_factory=dict)
    gpr: Callable[..., Gpr] = factories.gpr
    changes: bool = True


PERSONAL = ("me/notices/", "invitations/", "logins/", "workspace-requests/", "deputies/")
OF_THE_OWNER = (*PERSONAL, "tokens/<ref>/", "notices/<pk>/")
OPEN = ("sign-in/", "device-logins/", "device-logins/take/")  # need no token
NOBODY = "00000000-0000-4000-8000-000000000000"
ASK = {"name": "train", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}

SOON = datetime.now(UTC) + timedelta(days=7)
DAILY = {"first_start_at": SOON.isoformat(), "rule": "daily", "count": 2}
ROOM = {"shape": SHAPE, "nodes": 1, "starts_at": SOON.isoformat(), "duration_s": 3600}
MAINTENANCE = {"cluster": "aurora", "starts_at": SOON.isoformat(), "ends_at": (SOON + timedelta(hours=1)).isoformat(), "reason": "Disks."}

HOT = {"name": "hot", "signal": "temperature_c", "kind": "threshold", "level": 70, "severity": "warning"}
SUPPLY = {"cluster": "aurora", "name": "spot", "kind": "NODE_POOL", "shape": SHAPE, "gpus_per_node": 8, "gpu_memory_gib": 80}
SUPPLY |= {"node_count": 2, "lead_time_s": 1200, "gain_s": "10m"}


def asking(*args: Any) -> Gpr:
    return factories.gpr(*args, priority=300)


TABLE: dict[tuple[str, str], Row] = {
    ("GET", "me/"): Row(LIST),
    ("GET", "me/notices/"): Row(LIST),
    ("PATCH", "me/notices/"): Row(for_oneself(200), {"zone": "Europe/Berlin"}),
    ("GET", "gprs/"): Row(LIST),
    ("POST", "gprs/"): Row(change(201), ASK),
    ("POST", "gprs/estimate/"): Row(Codes(401, 200, 403, 404, 200, 200, 404), ASK, changes=False),
    # Each id gets its own verdict: see test_bulk.
    ("POST", "gprs/bulk/"): Row(Codes(401, 200, 200, 200, 200, 403, 200), {"act": "cancel", "ids": [NOBODY]}, changes=False),
    ("GET", "gprs/<pk>/"): Row(SEE),
    ("PATCH", "gprs/<pk>/"): Row(change(200), {"name": "new"}),
    ("DELETE", "gprs/<pk>/"): Row(change(204)),
    ("POST", "gprs/<pk>/estimate-change/"): Row(Codes(401, 200, 403, 404, 200, 200, 404), {"nodes": 1}, changes=False),
    ("POST", "gprs/<pk>/preview/"): Row(decide(200), {"act": "reject"}, gpr=asking, changes=False),
    ("POST", "gprs/<pk>/release/"): Row(change(200), gpr=factories.active),
    ("POST", "gprs/<pk>/keep/"): Row(change(409), gpr=factories.active),  # it is not idle
    ("POST", "gprs/<pk>/extend/"): Row(change(200), {"extra_s": 60}, gpr=factories.active),
    ("POST", "gprs/<pk>/approve/"): Row(decide(200), gpr=asking),
    ("POST", "gprs/<pk>/reject/"): Row(decide(200), {"why": "No."}, gpr=asking),
    ("POST", "gprs/<pk>/evict/"): Row(decide(200), {"why": "No."}, gpr=factories.active),
    ("POST", "gprs/<pk>/priority/"): Row(for_admin(200), {"priority": 5}),
    ("POST", "gprs/<pk>/move/"): Row(for_admin(409), {"to": "up"}),  # it is the first of its priority
    ("POST", "gprs/<pk>/replace-node/"): Row(for_admin(200), {"node": "aurora-0", "why": "Its fan is loud."}, gpr=factories.active),
    ("GET", "gprs/<gpr_pk>/steps/"): Row(SEE, gpr=factories.active),
    ("GET", "jobs/"): Row(LIST),
    ("POST", "jobs/"): Row(change(201), {**ASK, "image": "a:1"}),
    ("GET", "jobs/<ref>/"): Row(SEE),
    ("POST", "jobs/in-box/"): Row(change(201), {"gpr": "{gpr}", "image": "a:1"}),
    ("POST", "jobs/<ref>/cancel/"): Row(change(200)),
    ("GET", "jobs/<ref>/logs/"): Row(SEE),
    ("GET", "notebooks/"): Row(LIST),
    ("POST", "notebooks/"): Row(change(201), {**ASK, "image": "a:1"}),
    ("GET", "notebooks/<ref>/"): Row(SEE),
    ("POST", "notebooks/<ref>/cancel/"): Row(change(200)),
    ("GET", "notebooks/<ref>/logs/"): Row(SEE),
    ("POST", "notebooks/<ref>/open/"): Row(Codes(401, 409, 403, 404, 403, 403, 404)),  # it waits
    ("GET", "queue/"): Row(LIST),
    ("GET", "approvals/"): Row(LIST),
    # The deputy of the path is the owner, whom the administrator has named for later.
    ("GET", "deputies/"): Row(LIST),
    ("POST", "deputies/"): Row(for_admin(201), {"user": "teammate", "ends_at": SOON.isoformat()}),
    ("GET", "deputies/<pk>/"): Row(Codes(401, 200, 404, 404, 200, 200, 200)),
    ("DELETE", "deputies/<pk>/"): Row(Codes(401, 403, 404, 404, 204, 403, 204)),
    ("GET", "policies/"): Row(LIST),
    ("GET", "policies/<pk>/"): Row(SEE),
    ("PATCH", "policies/<pk>/"): Row(decide(200), {"nodes_approval": 5, "why": "Release week."}),
    ("POST", "policies/<pk>/preview/"): Row(decide(200), {"nodes_approval": 0}, changes=False),
    ("GET", "policies/<policy_pk>/versions/"): Row(SEE),
    ("GET", "policies/<policy_pk>/breaches/"): Row(SEE),
    ("GET", "evictions/"): Row(LIST),
    ("GET", "defragmentation/"): Row(for_admin(200)),
    ("POST", "defragmentation/question/"): Row(for_admin(200), ROOM, changes=False),
    ("POST", "defragmentation/<pk>/apply/"): Row(for_admin(409), {"fingerprint": "x", "why": "Release week."}),  # nothing is proposed
    ("GET", "templates/"): Row(LIST),
    ("POST", "templates/"): Row(change(201), {"name": "new", "slice": "vision"}),
    ("GET", "templates/<ref>/"): Row(SEE),
    ("PATCH", "templates/<ref>/"): Row(change(200), {"nodes": 1}),
    ("DELETE", "templates/<ref>/"): Row(change(204)),
    ("GET", "projects/"): Row(LIST),
    ("POST", "projects/"): Row(for_admin(201), {"name": "new"}),
    ("GET", "projects/<ref>/"): Row(SEE),
    ("PATCH", "projects/<ref>/"): Row(decide(200), {"in_league": False}),
    ("GET", "slices/"): Row(LIST),
    ("POST", "slices/"): Row(for_admin(201), {"name": "new", "project": "tenant", "clusters": ["aurora"]}),
    ("GET", "slices/<ref>/"): Row(SEE),
    ("PATCH", "slices/<ref>/"): Row(decide(200), {"nodes_approval": 5}),
    ("GET", "slices/<slice>/closing/"): Row(decide(200)),
    ("POST", "slices/<slice>/archive/"): Row(decide(200)),
    ("POST", "slices/<slice>/remove/"): Row(decide(200), {"drain": True}),
    ("POST", "slices/<slice>/restore/"): Row(for_admin(409)),  # it is open
    ("GET", "projects/<project>/closing/"): Row(decide(200)),
    ("POST", "projects/<project>/archive/"): Row(for_admin(200)),
    ("POST", "projects/<project>/remove/"): Row(for_admin(200), {"drain": True}),
    ("POST", "projects/<project>/restore/"): Row(for_admin(409)),
    ("GET", "slices/<slice>/members/"): Row(SEE),
    ("POST", "slices/<slice>/members/"): Row(change(201), {"user": "outsider", "role": "viewer"}),
    ("GET", "slices/<slice>/members/<user>/"): Row(SEE),
    ("DELETE", "slices/<slice>/members/<user>/"): Row(change(204)),
    ("GET", "slices/<slice>/service-accounts/"): Row(SEE),
    ("POST", "slices/<slice>/service-accounts/"): Row(change(201), {"name": "new", "role": "editor"}),
    ("GET", "slices/<slice>/service-accounts/<account>/"): Row(SEE),
    ("PATCH", "slices/<slice>/service-accounts/<account>/"): Row(change(200), {"role": "viewer"}),
    ("DELETE", "slices/<slice>/service-accounts/<account>/"): Row(change(204)),
    ("GET", "slices/<slice>/service-accounts/<account>/tokens/"): Row(Codes(401, 200, 403, 404, 200, 200, 404)),
    ("POST", "slices/<slice>/service-accounts/<account>/tokens/"): Row(change(201), {"name": "new", "scopes": ["gpr:write"]}),
    ("GET", "slices/<slice>/service-accounts/<account>/tokens/<ref>/"): Row(Codes(401, 200, 403, 404, 200, 200, 404)),
    ("DELETE", "slices/<slice>/service-accounts/<account>/tokens/<ref>/"): Row(change(204)),
    ("POST", "slices/<slice>/service-accounts/<account>/tokens/<ref>/rotate/"): Row(change(201)),
    ("GET", "slices/<slice>/invitations/"): Row(Codes(401, 200, 403, 404, 200, 200, 404)),
    ("DELETE", "slices/<slice>/invitations/<invitation>/"): Row(change(204)),
    ("GET", "invitations/"): Row(LIST),
    # Nobody here is invited: who is, is in test_members.
    ("GET", "invitations/<pk>/"): Row(Codes(401, 404, 404, 404, 404, 404, 404)),
    ("POST", "invitations/<pk>/accept/"): Row(Codes(401, 404, 404, 404, 404, 403, 404)),
    ("POST", "invitations/<pk>/decline/"): Row(Codes(401, 404, 404, 404, 404, 403, 404)),
    ("GET", "slices/<slice>/namespaces/"): Row(SEE),
    ("POST", "slices/<slice>/namespaces/"): Row(change(201), {"name": "new", "cluster": "aurora"}),
    ("GET", "slices/<slice>/namespaces/<namespace>/"): Row(SEE),
    ("DELETE", "slices/<slice>/namespaces/<namespace>/"): Row(change(204)),
    ("POST", "slices/<slice>/namespaces/<namespace>/adopt/"): Row(for_admin(409)),  # it is ready
    ("POST", "slices/<slice>/namespaces/<namespace>/approve/"): Row(for_admin(409)),  # it is bound
    ("POST", "slices/<slice>/namespaces/<namespace>/refuse/"): Row(for_admin(409), {"why": "No."}),
    ("GET", "slices/<slice>/kubeconfig/"): Row(SEE),
    # Each member for himself, whatever his role; an administrator is none.
    ("POST", "slices/<slice>/kubeconfig/"): Row(Codes(401, 201, 201, 404, 403, 403, 404), {"cluster": "aurora"}),
    ("GET", "slices/<slice>/kubeconfig/<kubeconfig>/"): Row(SEE),
    ("DELETE", "slices/<slice>/kubeconfig/<kubeconfig>/"): Row(change(204)),
    ("POST", "slices/<slice>/kubeconfig/<kubeconfig>/read/"): Row(Codes(401, 200, 403, 404, 403, 403, 404)),
    ("GET", "alerts/"): Row(LIST),
    ("GET", "alerts/<pk>/"): Row(SEE),
    ("POST", "alerts/<pk>/acknowledge/"): Row(change(200), {"note": "Mine."}),
    ("GET", "alerts/<alert_pk>/subjects/"): Row(SEE),
    ("GET", "alert-rules/"): Row(LIST),
    ("POST", "alert-rules/"): Row(change(201), {**HOT, "slice": "vision"}),
    ("GET", "alert-rules/<pk>/"): Row(SEE),
    ("PATCH", "alert-rules/<pk>/"): Row(change(200), {"level": 70, "clear_level": 60}),
    ("DELETE", "alert-rules/<pk>/"): Row(change(204)),
    ("GET", "alert-silences/"): Row(LIST),
    ("POST", "alert-silences/"): Row(change(201), {"slice": "vision", "ends_at": SOON.isoformat(), "reason": "Tests."}),
    ("GET", "alert-silences/<pk>/"): Row(SEE),
    ("DELETE", "alert-silences/<pk>/"): Row(change(204)),
    ("GET", "budgets/"): Row(LIST),
    ("POST", "budgets/"): Row(decide(201), {"project": "tenant", "gpu_hours": 100, "period": "week"}),
    ("GET", "budgets/<pk>/"): Row(SEE),
    ("PATCH", "budgets/<pk>/"): Row(decide(200), {"gpu_hours": 5}),
    ("DELETE", "budgets/<pk>/"): Row(decide(204)),
    ("GET", "usage/"): Row(LIST),
    ("GET", "usage/league/"): Row(LIST),
    ("GET", "usage/prices/"): Row(LIST),
    ("POST", "usage/prices/"): Row(for_admin(201), {"shape": SHAPE, "gpu_hour_price": "2.5"}),
    ("GET", "usage/prices/<pk>/"): Row(SEE_SHARED),  # a price of their cluster's shape
    ("DELETE", "usage/prices/<pk>/"): Row(for_admin(204)),
    ("GET", "quotas/"): Row(LIST),
    ("POST", "quotas/"): Row(for_admin(201), {"project": "tenant", "shape": SHAPE}),
    ("GET", "quotas/<pk>/"): Row(SEE),
    ("PATCH", "quotas/<pk>/"): Row(for_admin(200), {"most_gpus": 5}),
    ("DELETE", "quotas/<pk>/"): Row(for_admin(204)),
    ("GET", "clusters/"): Row(LIST),
    ("POST", "clusters/"): Row(for_admin(201), {"name": "new"}),
    ("GET", "clusters/<ref>/"): Row(SEE_SHARED),
    ("PATCH", "clusters/<ref>/"): Row(for_admin(200), {"api_url": "https://api.example.org"}),
    ("POST", "clusters/<ref>/join-token/"): Row(for_admin(201)),
    ("POST", "clusters/<ref>/resume/"): Row(for_admin(409)),
    ("POST", "clusters/<ref>/enable/"): Row(for_admin(200), changes=False),  # it is enabled
    ("POST", "clusters/<ref>/disable/"): Row(for_admin(200)),
    ("GET", "nodes/"): Row(LIST),
    ("GET", "nodes/<ref>/"): Row(SEE_SHARED),
    ("GET", "nodes/<node_ref>/steps/"): Row(for_admin(200)),
    ("POST", "nodes/<ref>/cordon/"): Row(for_admin(200), {"why": "Fan."}),
    ("POST", "nodes/<ref>/uncordon/"): Row(for_admin(409)),
    ("POST", "nodes/<ref>/force-release/"): Row(for_admin(200), {"why": "Lost.", "reservations": ["{reservation}"]}, gpr=factories.active),
    ("GET", "gpus/"): Row(LIST),
    ("GET", "gpus/<ref>/metrics/"): Row(SEE_SHARED),
    ("GET", "hotspots/"): Row(LIST),
    ("GET", "workloads/"): Row(LIST),
    ("GET", "workloads/<ref>/"): Row(SEE),
    ("GET", "pods/"): Row(LIST),
    ("GET", "shapes/"): Row(LIST),
    ("GET", "schedule/"): Row(LIST),
    ("GET", "booking-series/"): Row(LIST),
    ("POST", "booking-series/"): Row(change(201), {**ASK, **DAILY}),
    ("GET", "booking-series/<ref>/"): Row(SEE),
    ("DELETE", "booking-series/<ref>/"): Row(change(204)),
    ("GET", "maintenance/"): Row(LIST),
    ("POST", "maintenance/"): Row(for_admin(201), MAINTENANCE),
    ("POST", "maintenance/preview/"): Row(for_admin(200), MAINTENANCE, changes=False),
    ("GET", "maintenance/<ref>/"): Row(SEE_SHARED),
    ("DELETE", "maintenance/<ref>/"): Row(for_admin(204)),
    ("GET", "supplies/"): Row(for_admin(200)),
    ("POST", "supplies/"): Row(for_admin(201), SUPPLY),
    ("GET", "supplies/<ref>/"): Row(for_admin(200)),
    ("PATCH", "supplies/<ref>/"): Row(for_admin(200), {"is_enabled": False}),
    ("GET", "supply-orders/"): Row(for_admin(200)),
    ("GET", "supply-orders/<pk>/"): Row(for_admin(200)),
    ("POST", "supply-orders/<pk>/cancel/"): Row(for_admin(200), {"why": "Too dear."}),
    ("POST", "supply-orders/<pk>/fail/"): Row(for_admin(200), {"why": "No stock."}),
    ("GET", "check-policies/"): Row(for_admin(200)),
    ("POST", "check-policies/"): Row(for_admin(201), {"cluster": "aurora", "limits": {"nccl_bandwidth": 430}}),
    ("GET", "check-policies/<pk>/"): Row(for_admin(200)),
    ("PATCH", "check-policies/<pk>/"): Row(for_admin(200), {"skipped_steps": ["storage"]}),
    ("DELETE", "check-policies/<pk>/"): Row(for_admin(204)),
    ("GET", "remediation/"): Row(for_admin(200)),
    ("GET", "remediation/<pk>/"): Row(for_admin(200)),
    ("GET", "remediation/<pk>/log/"): Row(for_admin(200)),
    ("POST", "remediation/<pk>/approve/"): Row(for_admin(200), {"action": "check_node"}),
    ("POST", "remediation/<pk>/keep/"): Row(for_admin(200), {"why": "I want to see it."}),
    ("POST", "remediation/<pk>/give-back/"): Row(for_admin(200), {"why": "It is well."}),
    ("POST", "remediation/<pk>/resume/"): Row(for_admin(200)),
    ("GET", "remediation-policies/"): Row(for_admin(200)),
    ("GET", "remediation-policies/<ref>/"): Row(for_admin(200)),
    ("PATCH", "remediation-policies/<ref>/"): Row(for_admin(200), {"reset_gpus": "auto"}),
    ("GET", "prometheus/"): Row(for_admin(200)),
    ("GET", "prometheus/<ref>/"): Row(for_admin(200)),
    ("PATCH", "prometheus/<ref>/"): Row(for_admin(200), {"url": "https://prometheus.example"}),
    ("POST", "prometheus/<ref>/test/"): Row(for_admin(200), changes=False),
    # What each may do by them: see tests/api/manifests.
    ("POST", "manifests/apply/"): Row(Codes(401, 200, 200, 200, 200, 403, 200), {"files": []}, changes=False),
    ("POST", "manifests/delete/"): Row(Codes(401, 200, 200, 200, 200, 403, 200), {"files": []}, changes=False),
    ("POST", "manifests/diff/"): Row(LIST, {"files": []}, changes=False),
    ("GET", "manifests/export/"): Row(LIST),
    ("GET", "events/"): Row(LIST),
    ("GET", "audit/"): Row(for_admin(200)),
    ("GET", "audit/export/"): Row(for_admin(200)),
    ("GET", "insights/"): Row(LIST),
    # The notice of the path is the owner's; nobody else has it, not even an administrator.
    ("GET", "notices/"): Row(LIST),
    ("GET", "notices/<pk>/"): Row(Codes(401, 200, 404, 404, 404, 200, 404)),
    ("POST", "notices/<pk>/read/"): Row(Codes(401, 200, 404, 404, 404, 403, 404), changes=False),
    ("POST", "notices/read-all/"): Row(for_oneself(200), changes=False),
    # The channel of the path is the workspace's: its owners and administrators manage it, and nobody else sees it.
    ("GET", "channels/"): Row(LIST),
    ("POST", "channels/"): Row(change(201), {"name": "new", "kind": "webhook", "target": "https://hook.example", "slice": "vision"}),
    ("GET", "channels/<pk>/"): Row(CHANNEL),
    ("PATCH", "channels/<pk>/"): Row(change_of_channel(200), {"is_on": False}),
    ("DELETE", "channels/<pk>/"): Row(change_of_channel(204)),
    ("POST", "channels/<pk>/test/"): Row(change_of_channel(201)),
    ("POST", "channels/<pk>/replace-key/"): Row(change_of_channel(201)),
    ("POST", "channels/<pk>/confirm/"): Row(change_of_channel(409), {"code": "ABCDEFGHIJ"}),  # it is no mail address
    ("GET", "channels/<channel_pk>/deliveries/"): Row(CHANNEL),
    ("GET", "channels/<channel_pk>/deliveries/<pk>/"): Row(CHANNEL),
    ("POST", "channels/<channel_pk>/deliveries/<pk>/retry/"): Row(change_of_channel(200)),
    ("GET", "sign-in/"): Row(everybody(200), changes=False),
    ("POST", "device-logins/"): Row(everybody(201), {"name": "egs on laptop"}, changes=False),  # nobody: see test_device_logins
    ("POST", "device-logins/take/"): Row(everybody(400), {"device_code": "guessed"}, changes=False),
    ("GET", "tokens/"): Row(LIST),
    ("POST", "tokens/"): Row(for_oneself(201), {"name": "new", "scopes": ["read"]}),
    # The token of the path is the owner's; nobody else has it, not even an administrator.
    ("GET", "tokens/<ref>/"): Row(Codes(401, 200, 404, 404, 404, 200, 404)),
    ("DELETE", "tokens/<ref>/"): Row(Codes(401, 204, 404, 404, 404, 403, 404)),
    ("POST", "tokens/<ref>/rotate/"): Row(Codes(401, 201, 404, 404, 404, 403, 404)),
    ("GET", "logins/"): Row(LIST),
    ("DELETE", "logins/<pk>/"): Row(Codes(401, 204, 404, 404, 404, 403, 404)),
    ("GET", "users/"): Row(for_admin(200)),
    ("POST", "users/"): Row(for_admin(201), {"name": "new"}),
    ("GET", "users/<ref>/"): Row(for_admin(200)),
    ("PATCH", "users/<ref>/"): Row(for_admin(200), {"role": "auditor"}),
    ("POST", "users/<ref>/groups/"): Row(for_admin(404), {"provider": "corp", "groups": []}),  # who has an identity, is in test_people
    ("POST", "users/<ref>/end-logins/"): Row(for_admin(204)),
    ("GET", "roles/"): Row(for_admin(200)),
    ("POST", "roles/"): Row(for_admin(400), {"provider": "corp", "group": "admins", "role": "admin"}),  # there is no such provider
    ("GET", "roles/<pk>/"): Row(for_admin(200)),
    ("DELETE", "roles/<pk>/"): Row(for_admin(204)),
    ("GET", "workspace-requests/"): Row(LIST),
    ("POST", "workspace-requests/"): Row(for_oneself(201), {"name": "new", "project": "tenant", "purpose": "Training."}),
    # The owner has asked for it.
    ("GET", "workspace-requests/<pk>/"): Row(Codes(401, 200, 404, 404, 200, 200, 404)),
    ("DELETE", "workspace-requests/<pk>/"): Row(Codes(401, 204, 404, 404, 204, 403, 404)),
    ("POST", "workspace-requests/<pk>/approve/"): Row(Codes(401, 403, 404, 404, 200, 403, 404), {"clusters": ["aurora"]}),
    ("POST", "workspace-requests/<pk>/refuse/"): Row(Codes(401, 403, 404, 404, 200, 403, 404), {"why": "No."}),
    ("GET", "slices/<slice>/groups/"): Row(SEE),
    ("POST", "slices/<slice>/groups/"): Row(change(400), {"provider": "corp", "group": "team", "role": "viewer"}),
    ("GET", "slices/<slice>/groups/<pk>/"): Row(SEE),
    ("DELETE", "slices/<slice>/groups/<pk>/"): Row(change(204)),
    ("GET", "projects/<project>/admins/"): Row(SEE),
    ("POST", "projects/<project>/admins/"): Row(for_admin(201), {"user": "teammate"}),
    ("GET", "projects/<project>/admins/<admin>/"): Row(Codes(401, 200, 200, 404, 200, 200, 404)),
    ("DELETE", "projects/<project>/admins/<admin>/"): Row(for_admin(204)),
}
# Where the rule of `expected` does not hold.
EXCEPTIONS: dict[tuple[str, str, str], int] = {
    # An auditor asks what would be, does not see what only owners manage, and is no member.
    ("auditor", "POST", "defragmentation/question/"): 200,
    ("auditor", "POST", "maintenance/preview/"): 200,
    ("auditor", "POST", "policies/<pk>/preview/"): 200,
    ("auditor", "DELETE", "deputies/<pk>/"): 403,
    ("project_admin", "POST", "notebooks/<ref>/open/"): 403,
    ("project_admin", "POST", "deputies/"): 201,
    ("auditor", "GET", "slices/<slice>/invitations/"): 403,
    ("auditor", "GET", "slices/<slice>/service-accounts/<account>/tokens/"): 403,
    ("auditor", "GET", "slices/<slice>/service-accounts/<account>/tokens/<ref>/"): 403,
    ("auditor", "GET", "channels/<pk>/"): 404,
    ("auditor", "GET", "channels/<channel_pk>/deliveries/"): 404,
    ("auditor", "GET", "channels/<channel_pk>/deliveries/<pk>/"): 404,
    ("auditor", "POST", "slices/<slice>/kubeconfig/"): 403,
    ("auditor", "DELETE", "workspace-requests/<pk>/"): 403,
    ("auditor", "POST", "workspace-requests/<pk>/approve/"): 403,
    ("auditor", "POST", "workspace-requests/<pk>/refuse/"): 403,
    # The request that is to be approved reaches beyond the project, these do not.
    ("project_admin", "PATCH", "projects/<ref>/"): 200,
    ("project_admin", "POST", "gprs/<pk>/preview/"): 200,
    ("project_admin", "POST", "gprs/<pk>/reject/"): 200,
    ("project_admin", "POST", "gprs/<pk>/evict/"): 200,
    # He limits its workspaces and ends them.
    ("project_admin", "PATCH", "policies/<pk>/"): 200,
    ("project_admin", "POST", "policies/<pk>/preview/"): 200,
    ("project_admin", "PATCH", "budgets/<pk>/"): 200,
    ("project_admin", "DELETE", "budgets/<pk>/"): 204,
    ("project_admin", "PATCH", "slices/<ref>/"): 200,
    ("project_admin", "GET", "slices/<slice>/closing/"): 200,
    ("project_admin", "POST", "slices/<slice>/archive/"): 200,
    ("project_admin", "POST", "slices/<slice>/remove/"): 200,
    ("project_admin", "GET", "projects/<project>/closing/"): 200,
    ("project_admin", "POST", "slices/<slice>/kubeconfig/"): 403,
    ("project_admin", "POST", "slices/<slice>/kubeconfig/<kubeconfig>/read/"): 403,
    ("bound", "POST", "tokens/"): 403,
    ("bound", "GET", "tokens/<ref>/"): 200,
    ("bound", "DELETE", "tokens/<ref>/"): 403,
    ("bound", "POST", "tokens/<ref>/rotate/"): 403,
}


def expected(persona: str, method: str, template: str) -> int:
    """An auditor reads as an administrator and changes as a viewer. The project's administrator does what the owners of
    its workspaces do. `bound`: the owner with a token for another workspace of his is a stranger here, and not told what is his alone.
    """
    codes = TABLE[method, template].codes
    rule = {
        "auditor": codes.admin if method == "GET" else codes.teammate,
        "project_admin": codes.outsider if template.startswith(OF_THE_OWNER) else codes.owner,
        "bound": 403 if template.startswith(PERSONAL) else codes.outsider,
    }
    return EXCEPTIONS.get((persona, method, template), rule[persona] if persona in DERIVED else getattr(codes, persona))


# The net below all addresses: see egs/api.py.
NET = "<rest>"


EDGES = {ord(each): None for each in "^$"}


def routes() -> Iterator[tuple[str, Any]]:
    """(template below /api/v1/, view) for all that the resolver knows there."""

    def walk(patterns: list[URLPattern | URLResolver], prefix: str) -> Iterator[tuple[str, Any]]:
        for entry in patterns:
            path = prefix + str(entry.pattern)
            if isinstance(entry, URLResolver):
                yield from walk(entry.url_patterns, path)
            else:
                yield path, entry.callback

    for path, view in walk(get_resolver().url_patterns, ""):
        if path.startswith("api/v1/"):
            yield (
                re.sub(r"\(\?P<(\w+)>(?:\[[^]]*\]|[^)])*\)", r"<\1>", path.removeprefix("api/v1/")).replace("<str:", "<").translate(EDGES),
                view,
            )


def served() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, view in routes() if path != NET for method in view.actions if method != "head"}


def test_every_address_and_method_is_listed_and_no_other() -> None:
    assert served() == set(TABLE)


def test_every_address_has_a_slash_at_its_end_and_the_net_below_it() -> None:
    paths = [path for path, _ in routes()]

    assert all(path.endswith("/") for path in paths if path != NET)
    assert paths[-1] == NET


@pytest.fixture(scope="module")
def place(built_world: World) -> dict[str, str]:
    return make_place(built_world)


def make_place(world: World) -> dict[str, str]:
    """Makes what stands in a path; the GPR is the row's."""
    world.slice.project.name = "tenant"
    world.slice.project.save()
    kubeconfigs.ready_namespace(world.slice, world.cluster, at=db_now())
    later = db_now() + timedelta(hours=1)  # it can be read for two minutes, and the world stands for all tests of this file
    kubeconfig = kubeconfigs.made(world.slice, world.cluster, world.people.owner, at=later)
    token = factories.row_of(factories.token(world.people.owner))
    closed = MaintenanceWindow.objects.create(
        cluster=world.cluster, starts_at=SOON + timedelta(days=1), ends_at=SOON + timedelta(days=2), reason="Disks.", created_at=db_now()
    )
    first_at = SOON + timedelta(days=3)
    asked = SeriesTerms(spec=factories.spec(world.slice), first_start_at=first_at, rule=RepeatRule.WEEKLY, zone="UTC", count=1)
    series = series_create(actor=world.people.owner, ask=asked, now=db_now())
    quota = Quota.objects.create(slice=world.slice, shape=SHAPE, created_at=db_now())
    supply = factories.supply(world.cluster)
    template = factories.template(world.slice, name="half-node")
    apart = factories.spec(world.slice, priority=100, earliest_start_at=SOON + timedelta(days=99))  # it stands in the way of no row's GPR
    job = job_create(actor=world.people.owner, spec=apart, what=JobSpec(image="a:1"), now=db_now())
    notebook = job_create(
        actor=world.people.owner, spec=replace(apart, name="lab"), what=JobSpec(kind="Notebook", image="a:1"), now=db_now()
    )
    names = {
        "jobs": str(job.pk),
        "notebooks": str(notebook.pk),
        "user": "teammate",
        "namespace": "train",
        "slice": "vision",
        "quota": str(quota.pk),
    }
    invitation = Invitation.objects.create(
        slice=world.slice, name="nobody", role=Role.VIEWER, invited_by=world.people.owner, created_at=db_now()
    )
    names |= {"account": program(world).name}
    names |= {"kubeconfig": str(kubeconfig.pk), "invitation": invitation.name}
    names |= {"supplies": supply.name, "templates": template.name, "tokens": str(token.pk)}
    platform_group = GroupRole.objects.create(provider="corp", group="auditors", role=PlatformRole.AUDITOR, created_at=db_now())
    group = SliceGroup.objects.create(slice=world.slice, provider="corp", group="team", role=Role.VIEWER, created_at=db_now())
    ProjectAdmin.objects.create(project=world.slice.project, user=factories.user("runner"), created_at=db_now())
    names |= {
        "project": "tenant",
        "admin": "runner",
        "users": "teammate",
        "roles/": str(platform_group.pk),
        "slices/<slice>/groups/": str(group.pk),
    }
    User.objects.filter(pk=factories.user("auditor").pk).update(role=PlatformRole.AUDITOR)
    factories.login(world.people.teammate)
    terms = WorkspaceTerms(name="asked", project="tenant", purpose="Training.")
    asked_for = workspace_request_create(terms=terms, actor=world.people.owner, now=db_now())
    names |= {"workspace-requests/": str(asked_for.pk)}
    names |= {"logins/": str(factories.login(world.people.owner).pk)}
    budget = Budget.objects.create(slice=world.slice, gpu_hours=100, period=Period.WEEK, created_at=db_now())
    later_on = {"starts_at": SOON, "ends_at": SOON + timedelta(days=1), "created_at": db_now()}
    deputy = Deputy.objects.create(approver=world.people.admin, user=world.people.owner, **later_on)
    tell(world.cluster, seen("p", "train"))
    names |= {"workloads": str(Workload.objects.get().pk)}
    policy_pk = str(policy_of(world.slice).pk)
    names |= {"budgets/": str(budget.pk), "deputies/": str(deputy.pk), "policies/": policy_pk, "policy_pk": policy_pk}
    price = ShapePrice.objects.create(shape=SHAPE, from_day=SOON.date(), gpu_hour_price=2, set_at=db_now())
    names |= {"usage/prices/": str(price.pk)}
    alert = alert_of(world.slice, world.people.owner)
    silence = AlertSilence.objects.create(
        slice=world.slice, owner=world.people.owner, reason="r", created_at=db_now(), starts_at=db_now(), ends_at=SOON
    )
    names |= {"alerts/": str(alert.pk), "alert_pk": str(alert.pk), "alert-rules/": str(alert.rule_id), "alert-silences/": str(silence.pk)}
    names |= {"gpus": str(Gpu.objects.filter(node__name="aurora-0").values_list("pk", flat=True)[0])}
    return {**names, "maintenance": str(closed.pk), "booking-series": str(series.pk)}


@pytest.fixture(scope="module")
def callers(built_world: World, place: dict[str, str]) -> dict[str, Caller]:
    people = built_world.people
    second = factories.make_slice(built_world.cluster, name="second", owner=people.owner)
    secrets = {
        "owner": factories.token(people.owner),
        "teammate": factories.token(people.teammate),
        "outsider": factories.token(people.outsider),
        "admin": factories.token(people.admin),
        "reader": factories.token(people.owner, Scope.READ),
        "half_admin": factories.token(people.admin, Scope.READ, Scope.WRITE),
        "auditor": factories.token(User.objects.get(name="auditor")),
        "project_admin": factories.token(User.objects.get(name="runner")),
        "bound": factories.token(people.owner, Scope.READ, Scope.WRITE, slices=[str(second.pk)]),
    }
    return {"anonymous": Caller(), **{name: Caller(secret) for name, secret in secrets.items()}}


def program(world: World) -> User:
    account = service_account_create(slice_=world.slice, name="ci", role=Role.EDITOR, actor=world.people.owner, now=db_now())
    terms = TokenTerms(name="ci", scopes=[Scope.READ], life=timedelta(hours=1))
    service_token_create(account=account, terms=terms, actor=world.people.owner, now=db_now())
    return account.user


REFS = {"projects": "tenant", "slices": "vision", "nodes": "aurora-0"}
REFS |= dict.fromkeys(("clusters", "remediation-policies", "prometheus"), "aurora")


def events() -> QuerySet[Event]:
    return Event.objects.exclude(kind="access.refused")


def answers(
    method: str, path: str, body: Any, callers: dict[str, Caller], personas: Sequence[str] = (*PERSONAS, *DERIVED)
) -> tuple[dict[str, int], set[str]]:
    """Returns the answers, and whose call has an Event. Each persona finds the same world: what one does is undone before the next."""
    codes, told, before = {}, set(), events().count()
    for name in personas:
        with transaction.atomic():
            codes[name] = callers[name].call(method, path, body).status_code
            if events().count() > before:
                told.add(name)
            transaction.set_rollback(True)
    return codes, told


@pytest.mark.rotates  # each day: the other addresses, test_isolation.py, and tests of each address
@pytest.mark.postgres_only  # so each address is asked there once, and tests of its own ask it on SQLite
@pytest.mark.parametrize(("method", "template"), TABLE, ids=lambda value: value)
def test_each_persona_gets_the_answer_of_the_table_and_each_change_has_its_event(
    method: str, template: str, world: World, place: dict[str, str], callers: dict[str, Caller]
) -> None:
    row = TABLE[method, template]
    gpr = row.gpr(world.slice, world.people.owner)
    held = factories.held(gpr)
    kind = template.split("/", maxsplit=1)[0]
    pk = place["quota"] if kind == "quotas" else str(gpr.pk)
    if kind == "check-policies":
        pk = str(factories.check_policy(world.cluster, shape=SHAPE).pk)
    if kind == "remediation":
        pk = str(factories.case(world.cluster).pk)
    if kind == "notices":
        pk = str(notices.told(world.people.owner).pk)
    channel = notices.channel(world.slice) if kind == "channels" else None
    if channel is not None:
        pk = str(notices.failed(channel).pk if "deliveries" in template else channel.pk)
    if kind == "supply-orders":
        pk = str(factories.supply_order(world.cluster, gpr).pk)
    pk = place.get(template.partition("<pk>/")[0], pk)
    refs = {**place, "pk": pk, "node_ref": "aurora-0", "gpr_pk": str(gpr.pk), "ref": REFS.get(kind) or place.get(kind, "")}
    refs |= {"ref": "ci"} if "<account>/tokens" in template else {}
    refs |= {"channel_pk": str(channel.pk)} if channel is not None else {}
    path = re.sub(r"<(\w+)>", lambda match: refs[match[1]], template)
    ids = {"{gpr}": str(gpr.pk)}
    body = {name: [str(held[0].pk)] if value == ["{reservation}"] else ids.get(str(value), value) for name, value in row.body.items()}

    codes, told = answers(method, path, body or None, callers)

    assert codes == {name: expected(name, method, template) for name in codes}
    assert told == {name for name, code in codes.items() if code < 300 and method != "GET" and row.changes}


@pytest.mark.rotates  # each day: the methods that there are, above
@pytest.mark.parametrize("template", sorted({path for path, _ in routes() if path != NET}))
def test_every_other_method_is_refused_to_everybody(template: str, db: None, callers: dict[str, Caller]) -> None:
    path = re.sub(r"<\w+>", "x", template)
    for method in METHODS:
        if (method, template) not in TABLE:
            expected = everybody(405) if template in OPEN else NOT_THERE_TO_READ if method == "GET" else NOT_THERE
            codes = {name: getattr(expected, name) for name in REFUSED_PERSONAS}
            assert answers(method, path, None, callers, REFUSED_PERSONAS) == (codes, set()), method
