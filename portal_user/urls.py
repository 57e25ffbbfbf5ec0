from __future__ import annotations

from typing import Final

from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from portal_shared.access import signed_in
from portal_shared.parts.alerts.views import render_count
from portal_shared.parts.portals import Portal
from portal_shared.paths import shared_paths
from portal_shared.shell import Shell
from portal_user.job_form import JobForm
from portal_user.views import (
    account,
    actions,
    approvals,
    bookings,
    channels,
    create,
    detail,
    jobs,
    notices,
    policies,
    promises,
    templates,
    usage,
)
from portal_user.views.tenants import access, people, tenancy, workspace_requests, workspaces

PORTAL: Final = Portal(
    "user", prefix="", request_page="gpr", is_admin=False, shell_of=lambda request, nav: Shell.user(request, page=nav), guard=signed_in
)

urlpatterns: list[URLPattern] = [
    *shared_paths(PORTAL),
    path("", workspaces.workspaces, name="workspaces"),
    path("usage/projects/<uuid:pk>/league/", usage.league_switch, name="league-switch"),
    path("approvals/", approvals.approvals, name="approvals"),
    path("approvals/count/", approvals.count, name="approvals-count"),
    path("approvals/approve/", approvals.approve_many, name="approve-many"),
    path("approvals/reject/", approvals.reject_many, name="reject-many"),
    path("approvals/deputies/new/", approvals.name_deputy, name="deputy-name"),
    path("approvals/deputies/<uuid:pk>/withdraw/", approvals.withdraw_deputy, name="deputy-withdraw"),
    path("projects/<str:project>/policy/", policies.of_project, name="project-policy"),
    path("workspaces/<str:slice>/policy/", policies.of_workspace, name="workspace-policy"),
    path("alerts/count/", require_GET(signed_in(render_count)), name="alerts-count"),
    path("promises/", promises.promises, name="promises"),
    path("notices/", notices.notices, name="notices"),
    path("notices/read-all/", notices.read_all, name="notices-read-all"),
    path("notices/<uuid:pk>/read/", notices.read, name="notice-read"),
    path("account/notices/", channels.settings, name="notice-settings"),
    path("channels/new/<str:kind>/", channels.create, name="channel-create"),
    path("channels/<uuid:pk>/", channels.channel, name="channel"),
    path("channels/<uuid:pk>/change/", channels.change, name="channel-change"),
    path("channels/<uuid:pk>/confirm/", channels.confirm, name="channel-confirm"),
    path("channels/<uuid:pk>/delete/", channels.delete, name="channel-delete"),
    path("channels/<uuid:pk>/replace-key/", channels.replace_key, name="channel-replace-key"),
    path("channels/<uuid:pk>/test/", channels.test, name="channel-test"),
    path("channels/<uuid:pk>/deliveries/<uuid:delivery>/retry/", channels.retry, name="delivery-retry"),
    path("workspaces/<str:slice>/", workspaces.workspace, name="workspace"),
    path("workspaces/<str:slice>/channels/", channels.of_workspace, name="workspace-channels"),
    path("workspaces/<str:slice>/people/", people.people, name="workspace-people"),
    path("workspaces/<str:slice>/people/add/", people.add, name="member-add"),
    path("workspaces/<str:slice>/people/<uuid:pk>/role/", people.role, name="member-role"),
    path("workspaces/<str:slice>/people/<uuid:pk>/remove/", people.remove, name="member-remove"),
    path("workspaces/<str:slice>/people/invitations/<uuid:pk>/withdraw/", people.withdraw, name="member-invitation-withdraw"),
    path("workspaces/<str:slice>/people/groups/add/", people.add_group, name="member-group-add"),
    path("workspaces/<str:slice>/people/groups/<uuid:pk>/remove/", people.remove_group, name="member-group-remove"),
    path("workspaces/<str:slice>/create/", create.create, name="gpr-create"),
    path("workspaces/<str:slice>/offers/", create.offers, name="gpr-offers"),
    path("workspaces/<str:slice>/bookings/", bookings.bookings, name="bookings"),
    path("workspaces/<str:slice>/bookings/new/", bookings.book, name="book"),
    path("workspaces/<str:slice>/jobs/", jobs.jobs, name="jobs"),
    path("workspaces/<str:slice>/jobs/new/", create.create, {"kind": JobForm}, name="job-create"),
    path("workspaces/<str:slice>/jobs/offers/", create.offers, {"kind": JobForm}, name="job-offers"),
    path("workspaces/<str:slice>/notebooks/", jobs.notebooks, name="notebooks"),
    path("workspaces/<str:slice>/templates/", templates.templates, name="templates"),
    path("workspaces/<str:slice>/templates/new/", templates.create, name="template-create"),
    path("workspaces/<str:slice>/templates/<uuid:pk>/", templates.change, name="template"),
    path("workspaces/<str:slice>/templates/<uuid:pk>/delete/", templates.delete, name="template-delete"),
    path("workspaces/<str:slice>/templates/<uuid:pk>/<str:switch>/", templates.switch, name="template-switch"),
    path("workspaces/<str:slice>/access/", access.access, name="access"),
    path("workspaces/<str:slice>/access/new/", access.ask, name="kubeconfig-ask"),
    path("workspaces/<str:slice>/access/<uuid:pk>/", access.show, name="kubeconfig"),
    path("workspaces/<str:slice>/access/<uuid:pk>/revoke/", access.revoke, name="kubeconfig-revoke"),
    path("workspaces/<str:slice>/access/namespaces/<uuid:pk>/adopt/", access.adopt, name="namespace-adopt"),
    path("workspaces/<str:slice>/access/namespaces/<uuid:pk>/approve/", tenancy.approve, name="namespace-approve"),
    path("workspaces/<str:slice>/access/namespaces/<uuid:pk>/refuse/", tenancy.refuse, name="namespace-refuse"),
    path("workspace-requests/new/", workspace_requests.ask, name="workspace-ask"),
    path("workspace-requests/<uuid:pk>/cancel/", workspace_requests.cancel, name="workspace-ask-cancel"),
    path("account/", account.account, name="account"),
    path("connect/", account.connect, name="connect"),
    path("connect/<uuid:pk>/", account.connect_answer, name="connect-answer"),
    path("account/tokens/new/", account.token_new, name="token-new"),
    path("account/tokens/<uuid:pk>/revoke/", account.token_end, name="token-revoke"),
    path("account/identities/<uuid:pk>/unlink/", account.unlink, name="identity-unlink"),
    path("account/sessions/others/end/", account.others_end, name="logins-end"),
    path("account/sessions/<uuid:pk>/end/", account.login_end, name="login-end"),
    path("invitations/<uuid:pk>/accept/", tenancy.accept, name="invitation-accept"),
    path("invitations/<uuid:pk>/decline/", tenancy.decline, name="invitation-decline"),
    path("booking-series/<uuid:pk>/cancel/", bookings.cancel, name="series-cancel"),
    path("jobs/<uuid:pk>/", jobs.job, name="job"),
    path("jobs/<uuid:pk>/open/", jobs.open_notebook, name="notebook-open"),
    path("gprs/<uuid:pk>/", detail.gpr, name="gpr"),
    path("gprs/<uuid:pk>/job.yaml", detail.job, name="gpr-job"),
    path("gprs/<uuid:pk>/run/", jobs.run_in, name="gpr-run"),
    path("gprs/<uuid:pk>/edit/", create.edit, name="gpr-edit"),
    path("gprs/<uuid:pk>/approve/", actions.approve, name="gpr-approve"),
    path("gprs/<uuid:pk>/reject/", actions.reject, name="gpr-reject"),
    path("gprs/<uuid:pk>/release/", actions.release, name="gpr-release"),
    path("gprs/<uuid:pk>/keep/", actions.keep, name="gpr-keep"),
    path("gprs/<uuid:pk>/extend/", actions.extend, name="gpr-extend"),
    path("gprs/<uuid:pk>/delete/", actions.delete, name="gpr-delete"),
]
