"""Lists the addresses of pages that both portals have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET, require_http_methods

from portal_shared.access import PageRequest, needs_write
from portal_shared.parts.alerts import views as alerts
from portal_shared.parts.alerts.listing import alerts_csv
from portal_shared.parts.fleet_map import render_map
from portal_shared.parts.gpu_courses import render_comparison, render_gpu
from portal_shared.parts.gpus import gpus_csv, render_table
from portal_shared.parts.limits import budgets, endings, policies
from portal_shared.parts.portals import Portal
from portal_shared.parts.usage import render_usage, usage_csv
from portal_shared.parts.workloads.detail import render_workload
from portal_shared.parts.workloads.listing import render_workloads, workloads_csv
from portal_shared.parts.workloads.pods import pods_csv, render_pods
from slices.models import Life

SharedView = Callable[..., HttpResponseBase]


def shared_paths(portal: Portal) -> list[URLPattern]:
    """Each view takes the request, the portal, and what stands in the address."""

    def of_portal(view: SharedView) -> SharedView:
        @wraps(view)
        def answer(request: PageRequest, **at: Any) -> HttpResponseBase:
            return view(request, portal, **at)

        return answer

    def page(route: str, view: SharedView, name: str) -> URLPattern:
        return path(route, require_GET(portal.guard(of_portal(view))), name=f"{portal.prefix}{name}")

    def question(route: str, view: SharedView, name: str, **given: Any) -> URLPattern:
        guarded = portal.guard(needs_write(of_portal(view)))
        return path(route, require_http_methods(["GET", "POST"])(guarded), given, name=f"{portal.prefix}{name}")

    return [
        page("gpus/", render_table, "gpus"),
        page("gpus/gpus.csv", gpus_csv, "gpus-csv"),
        page("gpus/compare/", render_comparison, "gpu-compare"),
        page("gpus/map/", render_map, "gpu-map"),
        page("gpus/<uuid:pk>/", render_gpu, "gpu"),
        page("workloads/", render_workloads, "workloads"),
        page("workloads/workloads.csv", workloads_csv, "workloads-csv"),
        page("workloads/<uuid:pk>/", render_workload, "workload"),
        page("pods/", render_pods, "pods"),
        page("pods/pods.csv", pods_csv, "pods-csv"),
        page("usage/", render_usage, "usage"),
        page("usage/usage.csv", usage_csv, "usage-csv"),
        page("alerts/", alerts.render_alerts, "alerts"),
        page("alerts/alerts.csv", alerts_csv, "alerts-csv"),
        page("alerts/<uuid:pk>/", alerts.render_alert, "alert"),
        question("alerts/<uuid:pk>/acknowledge/", alerts.acknowledge, "alert-acknowledge"),
        question("alerts/<uuid:pk>/silence/", alerts.silence, "alert-silence"),
        page("alert-rules/", alerts.render_rules, "alert-rules"),
        question("alert-rules/new/", alerts.create_rule, "alert-rule-create"),
        question("alert-rules/<uuid:pk>/", alerts.change_rule, "alert-rule"),
        question("alert-rules/<uuid:pk>/delete/", alerts.delete_rule, "alert-rule-delete"),
        question("alert-silences/new/", alerts.create_silence, "alert-silence-create"),
        question("alert-silences/<uuid:pk>/end/", alerts.end_silence, "alert-silence-end"),
        question("policies/<uuid:pk>/<str:term>/", policies.change_term, "policy-change"),
        question("policies/<uuid:pk>/<str:term>/inherit/", policies.inherit_term, "policy-inherit"),
        question("budgets/<uuid:pk>/", budgets.change, "budget"),
        question("budgets/<uuid:pk>/delete/", budgets.delete, "budget-delete"),
        question("projects/workspaces/<uuid:pk>/budgets/new/", budgets.give, "slice-budget-create"),
        question("projects/workspaces/<uuid:pk>/archive/", endings.close_slice, "slice-archive", to=Life.ARCHIVED),
        question("projects/workspaces/<uuid:pk>/remove/", endings.close_slice, "slice-remove", to=Life.REMOVED),
        question("projects/workspaces/<uuid:pk>/end/", endings.set_slice_end, "slice-end"),
    ]
