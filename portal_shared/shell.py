"""Builds navigation, workspace switch and user menu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from accounts.models import PlatformRole, User
from accounts.policy import is_overseer
from gpr.requests.selectors import approvals_visible_to
from journal.notices.selectors import COUNTED_MAX, unread_count
from observability.alerts.selectors import firing_count
from portal_shared.access import PageRequest
from portal_shared.toasts import toast_taken
from slices.deputies.selectors import is_approver
from slices.models import Life, Slice
from slices.selectors import slices_visible_to

HUE_COUNT, MARK_COUNT = 8, 5
LIVE_URL = "/ws/live/"
SWITCHER_MAX = 50


@dataclass(frozen=True, slots=True)
class NavCount:
    """The page fetches a count with a `url` again when the queue changes."""

    number: int
    noun: str
    is_alert: bool = False
    url: str = ""
    id: str = ""  # of its element
    topic: str = "queue"  # after whose hints it is fetched

    @classmethod
    def of_approvals(cls, number: int) -> NavCount:
        noun = "request waits for you" if number == 1 else "requests wait for you"
        return cls(number, noun, is_alert=number > 0, url=reverse("approvals-count"), id="nav-approvals", topic="gpr")

    @classmethod
    def of_alerts(cls, number: int) -> NavCount:
        noun = "alert fires" if number == 1 else "alerts fire"
        return cls(number, noun, is_alert=number > 0, url=reverse("alerts-count"), id="nav-alerts", topic="alerts")


@dataclass(frozen=True, slots=True)
class NavItem:
    label: str
    url: str
    icon: str
    is_current: bool
    count: NavCount | None = None
    group: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceMark:
    name: str
    url: str
    hue: int
    mark: int
    is_current: bool = False

    @classmethod
    def of(cls, slice_: Slice, *, is_current: bool = False) -> WorkspaceMark:
        hue, mark = mark_of(slice_.number)
        return cls(slice_.name, reverse("workspace", args=[slice_.name]), hue, mark, is_current)


@dataclass(frozen=True, slots=True)
class Bell:
    count: int = 0  # of unread notices

    @classmethod
    def of(cls, user: User) -> Bell:
        return cls(unread_count(user))

    @property
    def count_text(self) -> str:
        return f"{COUNTED_MAX}+" if self.count > COUNTED_MAX else str(self.count)

    @property
    def label(self) -> str:
        return f"Notices, {self.count_text} unread" if self.count else "Notices, none unread"


@dataclass(frozen=True, slots=True)
class Shell:
    portal: str
    nav: tuple[NavItem, ...]
    switcher: tuple[WorkspaceMark, ...]
    current: WorkspaceMark | None
    user_name: str
    user_initials: str
    is_overseer: bool
    role: str
    now: datetime
    zone: str
    live_url: str
    toast: str = ""  # the result of the action before
    account_url: str = ""
    bell: Bell = Bell()

    @classmethod
    def user(cls, request: PageRequest, *, page: str, slice_: Slice | None = None, may_create: bool = True) -> Shell:
        slices = list(slices_visible_to(request.user).exclude(life=Life.REMOVED).only("name", "number").order_by("name")[:SWITCHER_MAX])
        marks = tuple(WorkspaceMark.of(each, is_current=each == slice_) for each in slices)
        current = WorkspaceMark.of(slice_, is_current=True) if slice_ else None
        nav = [NavItem("Workspaces", reverse("workspaces"), "home", page == "workspaces", key="g w")]
        if (approvals := approvals_count(request)) is not None:
            nav.append(NavItem("Approvals", reverse("approvals"), "rubber-stamp", page == "approvals", approvals, key="g a"))
        if slice_ is not None:
            nav.append(NavItem("GPU requests", reverse("workspace", args=[slice_.name]), "list-details", page == "requests", key="g r"))
            nav.append(NavItem("Jobs", reverse("jobs", args=[slice_.name]), "stack-2", page == "jobs", key="g j"))
            nav.append(NavItem("Notebooks", reverse("notebooks", args=[slice_.name]), "notebook", page == "notebooks"))
            nav.append(NavItem("Bookings", reverse("bookings", args=[slice_.name]), "calendar-event", page == "bookings"))
            nav.append(NavItem("Templates", reverse("templates", args=[slice_.name]), "copy", page == "templates"))
            nav.append(NavItem("Access", reverse("access", args=[slice_.name]), "key", page == "access"))
            nav.append(NavItem("Policy", reverse("workspace-policy", args=[slice_.name]), "settings", page == "policy"))
            nav.append(NavItem("People", reverse("workspace-people", args=[slice_.name]), "users", page == "people"))
            if may_create:
                nav.append(NavItem("Create GPU request", reverse("gpr-create", args=[slice_.name]), "plus", page == "create", key="c"))
        nav.append(NavItem("Workloads", reverse("workloads"), "server-2", page == "workloads", key="g l"))
        nav.append(NavItem("GPUs", reverse("gpus"), "flame", page == "gpus", key="g h"))
        nav.append(NavItem("Alerts", reverse("alerts"), "alert-triangle", page == "alerts", alerts_count(request)))
        nav.append(NavItem("Usage", reverse("usage"), "hourglass", page == "usage", key="g u"))
        nav.append(NavItem("Promises", reverse("promises"), "clock", page == "promises", key="g p"))
        return cls._build(request, "user", nav, marks, current)

    @classmethod
    def admin(cls, request: PageRequest, *, page: str, queue: NavCount | None, approvals: NavCount | None) -> Shell:
        """`approvals` None: the reader decides on none."""
        is_queue = page == "queue" or (page == "approvals" and approvals is None)
        asks = NavItem("Approvals", f"{reverse('admin-queue')}?state=approval", "rubber-stamp", page == "approvals", approvals, key="g a")
        nav = [
            NavItem("Queue", reverse("admin-queue"), "stack-2", is_queue, queue, key="g q"),
            *([asks] if approvals is not None else []),
            NavItem("Schedule", reverse("admin-schedule"), "calendar-event", page == "schedule", key="g s"),
            NavItem("Promises", reverse("admin-promises"), "clock", page == "promises", key="g p"),
            NavItem("Inventory", reverse("admin-inventory"), "server", page == "inventory", group="Fleet"),
            NavItem("Workloads", reverse("admin-workloads"), "server-2", page == "workloads", group="Fleet", key="g l"),
            NavItem("GPUs", reverse("admin-gpus"), "flame", page == "gpus", group="Fleet", key="g h"),
            NavItem("Alerts", reverse("admin-alerts"), "alert-triangle", page == "alerts", alerts_count(request), group="Fleet"),
            NavItem("Clusters", reverse("admin-clusters"), "topology-star", page == "clusters", group="Fleet"),
            NavItem("Set aside", reverse("admin-remediation"), "alert-triangle", page == "remediation", group="Fleet"),
            NavItem("Maintenance", reverse("admin-maintenance"), "tool", page == "maintenance", group="Fleet"),
            NavItem("Supplies", reverse("admin-supplies"), "truck-delivery", page == "supplies", group="Fleet"),
            NavItem("Checks", reverse("admin-checks"), "check", page == "checks", group="Fleet"),
            NavItem("Usage", reverse("admin-usage"), "hourglass", page == "usage", group="Tenants", key="g u"),
            NavItem("Budgets", reverse("admin-budgets"), "hourglass", page == "budgets", group="Tenants"),
            NavItem("Quotas", reverse("admin-quotas"), "scale", page == "quotas", group="Tenants"),
            NavItem("Policies", reverse("admin-policies"), "settings", page == "policies", group="Tenants"),
            NavItem("Templates", reverse("admin-templates"), "copy", page == "templates", group="Tenants"),
            NavItem("Projects", reverse("admin-projects"), "list-details", page == "projects", group="Tenants"),
            NavItem("Workspace requests", reverse("admin-workspace-requests"), "home", page == "workspace-requests", group="Tenants"),
            NavItem("People", reverse("admin-people"), "users", page == "people", group="Tenants"),
            NavItem("Audit", reverse("admin-audit"), "file-search", page == "audit", group="Tenants"),
        ]
        return cls._build(request, "admin", nav, (), None)

    @classmethod
    def _build(
        cls,
        request: PageRequest,
        portal: str,
        nav: Sequence[NavItem],
        switcher: tuple[WorkspaceMark, ...],
        current: WorkspaceMark | None,
    ) -> Shell:
        name = request.user.name
        return cls(
            portal=portal,
            nav=tuple(nav),
            switcher=switcher,
            current=current,
            user_name=name,
            user_initials=name[:2].upper(),
            is_overseer=is_overseer(request.user),
            role=PlatformRole(request.user.role).label,
            now=request.now,
            zone=str(request.zone),
            live_url=f"{LIVE_URL}?since={request.now.timestamp():.3f}",
            toast=toast_taken(request),
            account_url=reverse("account"),
            bell=Bell.of(request.user),
        )


def approvals_count(request: PageRequest) -> NavCount | None:
    """Returns None for people who decide on nothing, and in fragments, which show no navigation. Runs two queries at most."""
    if request.htmx or not is_approver(request.user, now=request.now):
        return None
    return NavCount.of_approvals(approvals_visible_to(request.user, now=request.now).order_by().count())


def alerts_count(request: PageRequest) -> NavCount | None:
    """Runs one query, and none in fragments."""
    return None if request.htmx else NavCount.of_alerts(firing_count(request.user))


def mark_of(number: int) -> tuple[int, int]:
    """Returns hue and shape. After 40 workspaces pairs repeat."""
    return number % HUE_COUNT, number // HUE_COUNT % MARK_COUNT
