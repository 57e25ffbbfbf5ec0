from __future__ import annotations

from django.urls import URLPattern, path

from portal_user.views import access, actions, bookings, create, detail, notices, promises, templates, tenancy, workspaces

urlpatterns: list[URLPattern] = [
    path("", workspaces.workspaces, name="workspaces"),
    path("promises/", promises.promises, name="promises"),
    path("notices/", notices.notices, name="notices"),
    path("notices/read-all/", notices.read_all, name="notices-read-all"),
    path("notices/<uuid:pk>/read/", notices.read, name="notice-read"),
    path("workspaces/<str:slice>/", workspaces.workspace, name="workspace"),
    path("workspaces/<str:slice>/create/", create.create, name="gpr-create"),
    path("workspaces/<str:slice>/offers/", create.offers, name="gpr-offers"),
    path("workspaces/<str:slice>/bookings/", bookings.bookings, name="bookings"),
    path("workspaces/<str:slice>/bookings/new/", bookings.book, name="book"),
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
    path("invitations/<uuid:pk>/accept/", tenancy.accept, name="invitation-accept"),
    path("invitations/<uuid:pk>/decline/", tenancy.decline, name="invitation-decline"),
    path("booking-series/<uuid:pk>/cancel/", bookings.cancel, name="series-cancel"),
    path("gprs/<uuid:pk>/", detail.gpr, name="gpr"),
    path("gprs/<uuid:pk>/edit/", create.edit, name="gpr-edit"),
    path("gprs/<uuid:pk>/release/", actions.release, name="gpr-release"),
    path("gprs/<uuid:pk>/extend/", actions.extend, name="gpr-extend"),
    path("gprs/<uuid:pk>/delete/", actions.delete, name="gpr-delete"),
]
