from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.routers import SimpleRouter

from accounts.devices.api import DeviceLoginViewSet, SignInViewSet
from accounts.idempotency import post_once
from accounts.people.api import GroupRoleViewSet, LoginViewSet, UserViewSet
from accounts.tokens.api import TokenViewSet
from core.rest.problems import problem, problem_response
from core.rest.views import ApiViewSet
from gpr.approvals.api import ApprovalViewSet
from gpr.bookings.api import BookingSeriesViewSet
from gpr.budgets.api import BudgetViewSet
from gpr.closing.api import ProjectClosingViewSet, SliceClosingViewSet
from gpr.defragmentation.api import DefragmentationViewSet
from gpr.evictions.api import EvictionViewSet
from gpr.jobs.api import JobViewSet, NotebookViewSet
from gpr.maintenance.api import MaintenanceViewSet
from gpr.policies.api import PolicyBreachViewSet, PolicyVersionViewSet, PolicyViewSet
from gpr.promises.api import InsightsViewSet
from gpr.quotas.api import QuotaViewSet
from gpr.requests.api import GprStepViewSet, GprViewSet, NodeStepViewSet, QueueViewSet
from gpr.requests.events_api import EventViewSet
from gpr.supplies.api import SupplyOrderViewSet, SupplyViewSet
from gpr.templates.api import TemplateViewSet
from gpr.usage.api import LeagueViewSet, PriceViewSet, UsageViewSet
from inventory.api import ClusterViewSet, GpuViewSet, NodeViewSet, ScheduleViewSet, ShapeViewSet
from inventory.check_api import CheckPolicyViewSet
from journal.audit_api import AuditViewSet
from journal.notices.api import NoticeViewSet
from journal.notices.channels.api import ChannelViewSet, DeliveryViewSet
from journal.notices.settings.api import NoticeSettingsViewSet
from manifests.api import ManifestViewSet
from observability.alerts.api import AlertRuleViewSet, AlertSilenceViewSet, AlertSubjectViewSet, AlertViewSet
from observability.prometheus.api import PrometheusViewSet
from observability.remediation.api import RemediationPolicyViewSet, RemediationViewSet
from observability.telemetry.api import GpuMetricsViewSet, HotspotViewSet
from observability.workloads.api import PodViewSet, WorkloadViewSet
from slices.api import MemberViewSet, MeViewSet, ProjectViewSet, SliceViewSet
from slices.deputies.api import DeputyViewSet
from slices.invitations.api import InvitationViewSet, SliceInvitationViewSet
from slices.kubeconfigs.api import KubeconfigViewSet
from slices.namespaces.api import NamespaceViewSet
from slices.roles.api import ProjectAdminViewSet, SliceGroupViewSet
from slices.service_accounts.api import ServiceAccountViewSet, ServiceTokenViewSet
from slices.workspace_requests.api import WorkspaceRequestViewSet

ApiViewSet.post_once = post_once
router = SimpleRouter()
router.register("gprs", GprViewSet, basename="gpr")
router.register("gprs/(?P<gpr_pk>[^/]+)/steps", GprStepViewSet, basename="gpr-step")
router.register("jobs", JobViewSet, basename="job")
router.register("notebooks", NotebookViewSet, basename="notebook")
router.register("approvals", ApprovalViewSet, basename="approval")
router.register("deputies", DeputyViewSet, basename="deputy")
router.register("policies", PolicyViewSet, basename="policy")
router.register("policies/(?P<policy_pk>[^/]+)/versions", PolicyVersionViewSet, basename="policy-version")
router.register("policies/(?P<policy_pk>[^/]+)/breaches", PolicyBreachViewSet, basename="policy-breach")
router.register("queue", QueueViewSet, basename="queue")
router.register("templates", TemplateViewSet, basename="template")
router.register("projects", ProjectViewSet, basename="project")
router.register("slices", SliceViewSet, basename="slice")
router.register("slices/(?P<slice>[^/]+)/members", MemberViewSet, basename="slice-member")
router.register("slices/(?P<slice>[^/]+)/service-accounts", ServiceAccountViewSet, basename="service-account")
router.register("slices/(?P<slice>[^/]+)/service-accounts/(?P<account>[^/]+)/tokens", ServiceTokenViewSet, basename="service-account-token")
router.register("slices/(?P<slice>[^/]+)/invitations", SliceInvitationViewSet, basename="slice-invitation")
router.register("invitations", InvitationViewSet, basename="invitation")
router.register("slices/(?P<slice>[^/]+)/namespaces", NamespaceViewSet, basename="slice-namespace")
router.register("slices/(?P<slice>[^/]+)/kubeconfig", KubeconfigViewSet, basename="slice-kubeconfig")
router.register("workspace-requests", WorkspaceRequestViewSet, basename="workspace-request")
router.register("quotas", QuotaViewSet, basename="quota")
router.register("budgets", BudgetViewSet, basename="budget")
router.register("usage/prices", PriceViewSet, basename="usage-price")
router.register("usage/league", LeagueViewSet, basename="usage-league")
router.register("usage", UsageViewSet, basename="usage")
router.register("clusters", ClusterViewSet, basename="cluster")
router.register("nodes", NodeViewSet, basename="node")
router.register("nodes/(?P<node_ref>[^/]+)/steps", NodeStepViewSet, basename="node-step")
router.register("gpus", GpuViewSet, basename="gpu")
router.register("hotspots", HotspotViewSet, basename="hotspot")
router.register("workloads", WorkloadViewSet, basename="workload")
router.register("pods", PodViewSet, basename="pod")
router.register("alerts", AlertViewSet, basename="alert")
router.register("alerts/(?P<alert_pk>[^/]+)/subjects", AlertSubjectViewSet, basename="alert-subject")
router.register("alert-rules", AlertRuleViewSet, basename="alert-rule")
router.register("alert-silences", AlertSilenceViewSet, basename="alert-silence")
router.register("shapes", ShapeViewSet, basename="shape")
router.register("schedule", ScheduleViewSet, basename="schedule")
router.register("booking-series", BookingSeriesViewSet, basename="booking-series")
router.register("maintenance", MaintenanceViewSet, basename="maintenance")
router.register("check-policies", CheckPolicyViewSet, basename="check-policy")
router.register("remediation", RemediationViewSet, basename="remediation")
router.register("remediation-policies", RemediationPolicyViewSet, basename="remediation-policy")
router.register("prometheus", PrometheusViewSet, basename="prometheus")
router.register("supplies", SupplyViewSet, basename="supply")
router.register("supply-orders", SupplyOrderViewSet, basename="supply-order")
router.register("evictions", EvictionViewSet, basename="eviction")
router.register("defragmentation", DefragmentationViewSet, basename="defragmentation")
router.register("manifests", ManifestViewSet, basename="manifest")
router.register("events", EventViewSet, basename="event")
router.register("channels", ChannelViewSet, basename="channel")
router.register("channels/(?P<channel_pk>[^/]+)/deliveries", DeliveryViewSet, basename="channel-delivery")
router.register("audit", AuditViewSet, basename="audit")
router.register("notices", NoticeViewSet, basename="notice")
router.register("tokens", TokenViewSet, basename="token")
router.register("device-logins", DeviceLoginViewSet, basename="device-login")
router.register("logins", LoginViewSet, basename="login")
router.register("users", UserViewSet, basename="user")
router.register("roles", GroupRoleViewSet, basename="group-role")
router.register("slices/(?P<slice>[^/]+)/groups", SliceGroupViewSet, basename="slice-group")
router.register("projects/(?P<project>[^/]+)/admins", ProjectAdminViewSet, basename="project-admin")


@csrf_exempt  # else a POST would get the CSRF error page
def path_not_found(request: HttpRequest, rest: str) -> JsonResponse:
    """Answers 404 instead of redirecting to the path with a slash, which would lose the body of a POST."""
    detail = "There is nothing at this address. All addresses end with a slash; /api/schema/ lists them."
    return problem_response(problem(status=404, code="not_found", title="Not found", detail=detail))


app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("sign-in/", SignInViewSet.as_view({"get": "retrieve"}), name="sign-in"),
    path("me/", MeViewSet.as_view({"get": "retrieve"}), name="me"),
    path("me/notices/", NoticeSettingsViewSet.as_view({"get": "retrieve", "patch": "partial_update"}), name="me-notices"),
    path("gpus/<str:ref>/metrics/", GpuMetricsViewSet.as_view({"get": "retrieve"}), name="gpu-metrics"),
    path("insights/", InsightsViewSet.as_view({"get": "retrieve"}), name="insights"),
    path("slices/<slice>/closing/", SliceClosingViewSet.as_view({"get": "retrieve"}), name="slice-closing"),
    path("slices/<slice>/archive/", SliceClosingViewSet.as_view({"post": "archive"}), name="slice-archive"),
    path("slices/<slice>/remove/", SliceClosingViewSet.as_view({"post": "remove"}), name="slice-remove"),
    path("slices/<slice>/restore/", SliceClosingViewSet.as_view({"post": "restore"}), name="slice-restore"),
    path("projects/<project>/closing/", ProjectClosingViewSet.as_view({"get": "retrieve"}), name="project-closing"),
    path("projects/<project>/archive/", ProjectClosingViewSet.as_view({"post": "archive"}), name="project-archive"),
    path("projects/<project>/remove/", ProjectClosingViewSet.as_view({"post": "remove"}), name="project-remove"),
    path("projects/<project>/restore/", ProjectClosingViewSet.as_view({"post": "restore"}), name="project-restore"),
    path("", include(router.urls)),
    re_path("^(?P<rest>.*)$", path_not_found),
]
