"""Rules hold for every page and fragment of both portals; the tests find them by their addresses, so a new one is included."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from accounts.devices.services import device_login_start
from accounts.models import GroupRole, Identity, PlatformRole, Scope
from core.clock import db_now
from core.words import UTC_TEXT
from gpr.bookings.services import SeriesTerms, series_create
from gpr.models import BookingSeries, Gpr, Job, RepeatRule, ShapePrice
from inventory.models import Cluster, MaintenanceWindow, Node
from journal.models import Channel, ChannelKind
from observability.alerts.models import AlertSilence
from portal_admin.urls import urlpatterns as admin_urls
from portal_user.urls import urlpatterns as user_urls
from protocol.tenancy.workspaces import BindingState
from slices.closing.services import project_close, slice_close
from slices.invitations.services import member_add, member_add_or_invite
from slices.models import Budget, Deputy, Life, Namespace, Period, ProjectAdmin, Role, SliceGroup
from slices.namespaces.services import namespace_bind
from slices.policies.services import policy_of
from slices.quotas.services import quota_create
from slices.service_accounts.services import service_account_change, service_account_create
from slices.workspace_requests.services import WorkspaceTerms, workspace_request_create
from tests import factories
from tests.builders import SHAPE
from tests.journal.notices import notices
from tests.observability.alerts.rows import alert_of
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.shared.readings.test_workloads import workload_of
from tests.pages.user_world import client_of, form
from tests.slices import kubeconfigs

pytestmark = pytest.mark.django_db

PAGES: list[URLPattern] = [*user_urls, *admin_urls]
NAMES = [str(page.name) for page in PAGES]
# Lists with tabs by state, and the first state of each.
WITH_STATES = {"/admin/queue/": "queued", "/admin/inventory/": "free", "/workspaces/vision/": "pending", "/workspaces/vision/jobs/": "now"}
# Which query parameters make a page answer with a part of itself.
PARTS = {
    "workspaces": ["list"],
    "workspace": ["facts", "quotas", "tabs", "axis", "provisioned", "pending", "ended"],
    "bookings": ["list"],
    "access": ["list"],
    "account": ["lists"],
    "admin-people": ["rows"],
    "admin-remediation": ["rows"],
    "admin-case": ["head", "rows"],
    "admin-policy": ["rows"],
    **{key: ["body"] for key in ("workspace-policy", "project-policy")},
    "approvals": ["list"],
    **{key: ["list"] for key in ("alerts", "admin-alerts", "alert-rules", "admin-alert-rules")},
    **{key: ["body"] for key in ("alert", "admin-alert")},
    "admin-workspace-requests": ["rows"],
    "templates": ["list"],
    "admin-templates": ["list"],
    "jobs": ["list"],
    "job": ["now", "log", "events"],
    "notebooks": ["list"],
    "notices": ["list", "bell", "newest"],
    "notice-settings": ["channels"],
    "workspace-channels": ["channels"],
    "workspace-people": ["list"],
    "service-account": ["list"],
    "admin-projects": ["rows"],
    "channel": ["list"],
    "gpr": ["now", "use", "nodes", "steps", "why", "events"],
    "admin-queue": ["facts", "rows"],
    "admin-inventory": ["rows"],
    "admin-node": ["rows"],
    "admin-clusters": ["rows"],
    "admin-quotas": ["rows"],
    "admin-budgets": ["rows"],
    "admin-usage": ["body"],
    "usage": ["body"],
    "admin-evictions": ["rows"],
    "admin-defragmentation": ["rows"],
    "admin-schedule": ["head", "aurora"],
    "admin-maintenance": ["rows"],
    "admin-checks": ["rows"],
    "admin-supplies": ["rows"],
    "admin-gpus": ["rows", "facts"],
    "admin-gpu": ["course"],
    "admin-gpu-compare": ["chart"],
    "gpu-compare": ["chart"],
    "gpus": ["rows", "facts"],
    "gpu": ["course"],
    "workloads": ["rows", "facts"],
    "admin-workloads": ["rows", "facts"],
    "workload": ["body"],
    "admin-workload": ["body"],
    "pods": ["rows", "facts"],
    "admin-pods": ["rows", "facts"],
}
POSTS_THAT_ACT = {"channel-test", "delivery-retry", "notice-read", "notices-read-all"}
POST_ONLY = {"gpr-offers", "job-offers", *POSTS_THAT_ACT}
GET_FORM = re.compile(r'<form\b[^>]*\bmethod="get".*?</form>', re.S)
GET_WITH_A_FORM = re.compile(r'<[^>]*\bhx-get=[^>]*\bhx-include="(?:closest )?form\b')
REDIRECTS = {"admin-home", *POSTS_THAT_ACT}


def address(name: str, admin_world: AdminWorld) -> str:
    """Returns the address of something that there is, in a state in which there is something to decide."""
    gprs = {
        "admin-approve": admin_world.held,
        "gpr-approve": admin_world.held,
        "gpr-reject": admin_world.held,
        "admin-evict": admin_world.runs,
        "gpr-release": admin_world.runs,
        "gpr-keep": admin_world.runs,
        "gpr-extend": admin_world.runs,
    }
    node = admin_world.cluster.nodes.order_by("name").first()
    if name in {"workspace-ask-cancel", "admin-workspace-approve", "admin-workspace-refuse"}:
        terms = WorkspaceTerms(name="new", project="tenant", purpose="Training.")
        return reverse(name, args=[workspace_request_create(terms=terms, actor=admin_world.people.admin, now=db_now()).pk])
    if name.removeprefix("admin-") in {"policy", "policy-change", "policy-inherit"}:
        named = [] if name == "admin-policy" else ["nodes_approval"]
        return reverse(name, args=[policy_of(admin_world.slice).pk, *named])
    if name == "project-policy":
        return reverse(name, args=[admin_world.slice.project.name])
    if name == "deputy-withdraw":
        times = {"starts_at": db_now(), "ends_at": db_now() + timedelta(days=1), "created_at": db_now()}
        deputy = Deputy.objects.create(approver=admin_world.people.admin, user=admin_world.people.owner, **times)
        return reverse(name, args=[deputy.pk])
    if name.startswith("admin-person-") and name != "admin-person-add":
        return reverse(name, args=[factories.user("newcomer").pk])
    if name.startswith("admin-project-"):
        project = admin_world.slice.project
        ProjectAdmin.objects.create(project=project, user=admin_world.people.teammate, created_at=db_now())
        if name == "admin-project-restore":
            project_close(project=project, to=Life.ARCHIVED, drain=False, actor=admin_world.people.admin, now=db_now())
        return reverse(name, args=[project.pk])
    if name.removeprefix("admin-").startswith("slice-"):
        if name == "admin-slice-restore":
            slice_close(slice_=admin_world.slice, to=Life.ARCHIVED, drain=False, actor=admin_world.people.admin, now=db_now())
        return reverse(name, args=[admin_world.slice.pk])
    if name == "admin-group-remove":
        made = GroupRole.objects.create(provider="corp", group="ops", role=PlatformRole.ADMIN, created_at=db_now())
        return reverse(name, args=[made.pk])
    if name in {"member-role", "member-remove"}:
        return reverse(name, args=["vision", admin_world.people.teammate.pk])
    if name.startswith("service-") and name != "service-account-add":
        by = admin_world.people.owner
        program = service_account_create(slice_=admin_world.slice, name="ci", role=Role.EDITOR, actor=by, now=db_now())
        if name == "service-account-enable":
            service_account_change(account=program, is_active=False, actor=by, now=db_now())
        token = [factories.row_of(factories.token(program.user)).pk] if name == "service-token-revoke" else []
        return reverse(name, args=["vision", program.pk, *token])
    if name == "member-invitation-withdraw":
        by, new = admin_world.people.owner, "new@corp.example"
        opened = member_add_or_invite(slice_=admin_world.slice, reference=new, role=Role.VIEWER, actor=by, now=db_now())
        return reverse(name, args=["vision", opened.pk])
    if name == "member-group-remove":
        team = SliceGroup.objects.create(slice=admin_world.slice, provider="corp", group="team", role=Role.VIEWER, created_at=db_now())
        return reverse(name, args=["vision", team.pk])
    if name == "token-revoke":
        return reverse(name, args=[factories.row_of(factories.token(admin_world.people.admin)).pk])
    if name == "connect-answer":
        return reverse(name, args=[device_login_start(name="laptop", scope=Scope.WRITE, address="", now=db_now()).row.pk])
    if name == "identity-unlink":
        known = {"provider": "corp", "issuer": "https://id.example.org", "subject": "1", "created_at": db_now(), "last_login_at": db_now()}
        return reverse(name, args=[Identity.objects.create(user=admin_world.people.admin, **known).pk])
    if name == "login-end":
        return reverse(name, args=[factories.login(admin_world.people.admin).pk])
    if name.startswith(("admin-cluster-", "admin-join")):
        Cluster.objects.update(is_enabled=name != "admin-cluster-enable", rewound_at=db_now() if name == "admin-cluster-resume" else None)
        return reverse(name, args=[admin_world.cluster.pk])
    if name in {"admin-node", "admin-cordon", "admin-uncordon", "admin-force-release", "admin-replace-node"} and node is not None:
        Node.objects.filter(pk=node.pk).update(cordoned_at=db_now() if name == "admin-uncordon" else None)
        return reverse(name, args=[node.pk])
    if name in {"gpu", "admin-gpu"} and node is not None:
        return reverse(name, args=[node.gpus.order_by("index")[0].pk])
    if name in {"workload", "admin-workload"}:
        return reverse(name, args=[workload_of(admin_world).pk])
    if name == "admin-defragmentation-apply":
        return reverse(name, args=[waits_for_room(admin_world).pk])
    if name == "job":
        return reverse(name, args=[Job.objects.create(gpr=admin_world.runs, created_at=db_now(), image="a:1").pk])
    if name == "notebook-open":
        return reverse(name, args=[Job.objects.create(gpr=admin_world.runs, created_at=db_now(), image="a:1", kind="Notebook").pk])
    if name == "gpr-job":
        kubeconfigs.ready_namespace(admin_world.waits.slice, admin_world.cluster, at=db_now())
    if name in {"kubeconfig", "kubeconfig-revoke"}:
        kubeconfigs.ready_namespace(admin_world.slice, admin_world.cluster, at=db_now())
        row = kubeconfigs.made(admin_world.slice, admin_world.cluster, admin_world.people.owner, at=db_now())
        return reverse(name, args=["vision", row.pk])
    if name == "namespace-adopt":
        taken = kubeconfigs.ready_namespace(admin_world.slice, admin_world.cluster, at=db_now())
        Namespace.objects.filter(pk=taken.pk).update(state=BindingState.CONFLICT)
        return reverse(name, args=["vision", taken.pk])
    if name in {"namespace-approve", "namespace-refuse"}:
        asked = namespace_bind(
            slice_=admin_world.slice, cluster=admin_world.cluster, name="monitoring", actor=admin_world.people.owner, now=db_now()
        )
        return reverse(name, args=["vision", asked.pk])
    if name in {"invitation-accept", "invitation-decline"}:
        invited = member_add(slice_=admin_world.slice, reference="admin", role=Role.VIEWER, actor=admin_world.people.owner, now=db_now())
        return reverse(name, args=[invited.pk])
    if name in {"admin-template", "admin-template-delete"}:
        return reverse(name, args=[factories.template(None).pk])
    if name in {"template", "template-delete", "template-switch"}:
        switch = {"switch": "make-default"} if name == "template-switch" else {}
        return reverse(name, kwargs={"slice": "vision", "pk": factories.template(admin_world.slice).pk, **switch})
    if name == "channel-create":
        return reverse(name, args=["webhook"])
    if name.startswith(("channel", "delivery")):
        channel = notices.channel(admin_world.slice)
        if name == "channel-confirm":
            Channel.objects.update(kind=ChannelKind.MAIL)
        return reverse(name, args=[channel.pk, notices.failed(channel).pk] if name == "delivery-retry" else [channel.pk])
    if name == "notice-read":
        return reverse(name, args=[notices.told(admin_world.people.admin).pk])
    if name == "series-cancel":
        return reverse(name, args=[series(admin_world).pk])
    if name == "admin-maintenance-cancel":
        return reverse(name, args=[maintenance(admin_world).pk])
    if name == "admin-remediation-policy":
        return reverse(name, args=[admin_world.cluster.pk])
    if name.startswith("admin-case"):
        return reverse(name, args=[factories.case(admin_world.cluster).pk])
    if name in {"admin-check-policy", "admin-check-policy-delete"}:
        return reverse(name, args=[factories.check_policy(admin_world.cluster).pk])
    if name.startswith("admin-supply-order-"):
        return reverse(name, args=[factories.supply_order(admin_world.cluster, admin_world.waits).pk])
    if name.startswith("admin-supply") and name != "admin-supply-create":
        return reverse(name, args=[factories.supply(admin_world.cluster, is_enabled=name != "admin-supply-enable").pk])
    if name.removeprefix("admin-").startswith("alert") and "<" in str(next(page for page in PAGES if page.name == name).pattern):
        alert = alert_of(admin_world.slice, admin_world.people.owner)
        if name.endswith("silence-end"):
            span = {"created_at": db_now(), "starts_at": db_now(), "ends_at": db_now() + timedelta(hours=1)}
            return reverse(name, args=[AlertSilence.objects.create(owner=admin_world.people.owner, alert=alert, reason="r", **span).pk])
        return reverse(name, args=[alert.rule_id if "rule" in name else alert.pk])
    if name.removeprefix("admin-") in {"budget", "budget-delete"}:
        budget = Budget.objects.create(slice=admin_world.slice, gpu_hours=100, period=Period.WEEK, created_at=db_now())
        return reverse(name, args=[budget.pk])
    if name in {"admin-quota", "admin-quota-delete"}:
        return reverse(name, args=[quota_create(owner=admin_world.slice, shape=SHAPE, change={}, actor=None, now=db_now()).pk])
    if name == "league-switch":
        return reverse(name, args=[admin_world.slice.project.pk])
    if name == "admin-price-delete":
        price = ShapePrice.objects.create(shape=SHAPE, from_day=db_now().date(), gpu_hour_price=2, set_at=db_now())
        return reverse(name, args=[price.pk])
    pattern = next(page for page in PAGES if page.name == name).pattern
    keys = set(pattern.converters)
    return reverse(name, kwargs={key: "vision" if key == "slice" else gprs.get(name, admin_world.waits).pk for key in keys})


def waits_for_room(admin_world: AdminWorld) -> Gpr:
    cluster, owner = factories.cluster("parts"), admin_world.people.owner
    return factories.scattered(cluster, owner, factories.make_slice(cluster, owner=owner), owner)[1]


def maintenance(admin_world: AdminWorld) -> MaintenanceWindow:
    starts_at = db_now() + timedelta(days=1)
    given = {"starts_at": starts_at, "ends_at": starts_at + timedelta(hours=1), "reason": "Disks.", "created_at": db_now()}
    return MaintenanceWindow.objects.create(cluster=admin_world.cluster, **given)


def series(admin_world: AdminWorld) -> BookingSeries:
    ask = SeriesTerms(
        spec=factories.spec(admin_world.slice), first_start_at=db_now() + timedelta(days=2), rule=RepeatRule.WEEKLY, zone="UTC", count=2
    )
    return series_create(actor=admin_world.people.owner, ask=ask, now=db_now())


def is_private(response: Any) -> bool:
    return str(response.get("Cache-Control", "")) == "private, no-store"


def assert_no_address_gets_the_token(markup: str) -> None:
    """Logs and the history of the browser keep what a form sends by GET."""
    assert not [form for form in GET_FORM.findall(markup) if "csrfmiddlewaretoken" in form]
    assert not GET_WITH_A_FORM.findall(markup)


def body_of(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else bytes(response.content)


def assert_head_is(asked: Any, looked: Any) -> None:
    """Monitors and link checkers ask by HEAD: the same answer, without its body."""
    assert looked.status_code == asked.status_code
    assert body_of(looked) == b""
    assert looked.headers["Cache-Control"] == asked.headers["Cache-Control"]


@pytest.mark.rotates  # each day: the other pages, and the tests of each page
@pytest.mark.parametrize("name", NAMES)
def test_a_page_answers_get_and_head_alike_and_no_browser_or_proxy_keeps_it(name: str, admin_world: AdminWorld, admin: Client) -> None:
    """Somebody who uses a browser after another signed out finds nothing of his tenants there, neither pages nor refusals."""
    path = address(name, admin_world)
    queries = [{}, *({"part": part} for part in PARTS.get(name, []))]
    if name == "notebook-open":
        admin = client_of(admin_world.people.owner)  # nobody else may open it

    if name in POST_ONLY:
        answers = [admin.post(path, form()), admin.post(path, form(nodes="x"), headers=HTMX), admin.get(path)]
    else:
        answers = [admin.get(path, query, headers=headers) for query in queries for headers in ({}, HTMX)]
        assert_head_is(answers[0], admin.head(path))
        assert_no_address_gets_the_token(body_of(answers[0]).decode())
        if answers[0].headers.get("Content-Type", "").startswith("text/html"):
            assert not UTC_TEXT.search(body_of(answers[0]).decode()), "a time in a service's sentence is not on the reader's clock"
        answers += [admin.post(path, {}), admin.post(path, {}, headers=HTMX)]

    assert answers[0].status_code == (302 if name in REDIRECTS else 200), answers[0].headers
    for response in answers:
        assert is_private(response) or response.status_code == 405, (response.status_code, response.headers)
    for other in (client_of(admin_world.people.outsider), Client()):
        assert is_private(other.post(path, {}) if name in POST_ONLY else other.get(path))


def test_what_is_refused_and_what_is_not_there_is_not_kept_either(admin_world: AdminWorld, admin: Client) -> None:
    """A refusal names what was asked about."""
    gone = {f"/gprs/{uuid4()}/": 404, f"/admin/queue/{uuid4()}/": 404, "/workspaces/vision/?cursor=x": 400}
    gone |= {f"{path}?state=nope": 400 for path in WITH_STATES}
    decided = f"/admin/queue/{admin_world.runs.pk}/approve/"

    refused = [(admin.get(path, headers=headers), status) for path, status in gone.items() for headers in ({}, HTMX)]
    refused += [(admin.get(decided), 409), (admin.get(decided, headers=HTMX), 200)]  # a dialog says by itself what cannot be decided

    for response, status in refused:
        assert response.status_code == status
        assert is_private(response)
    assert b"<dialog" in refused[-1][0].content


def test_a_state_that_does_not_exist_is_answered_with_those_that_do(admin_world: AdminWorld, admin: Client) -> None:
    """A list without a filter would look like the answer."""
    for path, first in WITH_STATES.items():
        assert f"There is no state “nope”. There are: {first}, " in admin.get(f"{path}?state=nope").content.decode()


def test_the_login_page_answers_head(client: Client) -> None:
    """So does a stranger's first page, with the way to the login."""
    assert client.head("/login/").status_code == 200
    assert client.head("/")["Location"] == "/login/"


def test_head_changes_nothing_and_post_only_addresses_refuse_it(admin_world: AdminWorld, admin: Client) -> None:
    """HEAD on an act asks; it never acts."""
    assert admin.head(f"/gprs/{admin_world.runs.pk}/release/").status_code == 200
    assert admin.head(reverse("gpr-offers", args=["vision"])).status_code == 405
    admin_world.runs.refresh_from_db()
    assert admin_world.runs.state == "ACTIVE"
