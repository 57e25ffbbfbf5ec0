"""Addresses of the admin portal, below /admin/."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal_admin.views import acts, checks, clusters, defragmentation, evictions, inventory, maintenance, queue, quotas, schedule, supplies

urlpatterns: list[URLPattern] = [
    path("", queue.home, name="admin-home"),
    path("queue/", queue.queue, name="admin-queue"),
    path("queue/count/", queue.count, name="admin-queue-count"),
    path("queue/<uuid:pk>/", queue.inspect, name="admin-inspect"),
    path("queue/<uuid:pk>/priority/", acts.priority, name="admin-priority"),
    path("queue/<uuid:pk>/move/", acts.move, name="admin-move"),
    path("queue/<uuid:pk>/evict/", acts.evict, name="admin-evict"),
    path("queue/<uuid:pk>/reject/", acts.reject, name="admin-reject"),
    path("queue/<uuid:pk>/approve/", acts.approve, name="admin-approve"),
    path("evictions/", evictions.evictions, name="admin-evictions"),
    path("defragmentation/", defragmentation.defragmentation, name="admin-defragmentation"),
    path("defragmentation/booking/", defragmentation.booking, name="admin-defragmentation-booking"),
    path("defragmentation/<uuid:pk>/apply/", defragmentation.apply, name="admin-defragmentation-apply"),
    path("inventory/", inventory.inventory, name="admin-inventory"),
    path("inventory/<uuid:pk>/", inventory.node, name="admin-node"),
    path("inventory/<uuid:pk>/cordon/", inventory.cordon, name="admin-cordon"),
    path("inventory/<uuid:pk>/uncordon/", inventory.uncordon, name="admin-uncordon"),
    path("inventory/<uuid:pk>/replace/", inventory.replace_node, name="admin-replace-node"),
    path("inventory/<uuid:pk>/force-release/", inventory.force_release, name="admin-force-release"),
    path("clusters/", clusters.clusters, name="admin-clusters"),
    path("clusters/<uuid:pk>/join-token/", clusters.join_token, name="admin-join-token"),
    path("clusters/<uuid:pk>/enable/", clusters.enable, name="admin-cluster-enable"),
    path("clusters/<uuid:pk>/disable/", clusters.disable, name="admin-cluster-disable"),
    path("clusters/<uuid:pk>/resume/", clusters.resume, name="admin-cluster-resume"),
    path("maintenance/", maintenance.maintenance, name="admin-maintenance"),
    path("maintenance/announce/", maintenance.announce, name="admin-maintenance-announce"),
    path("maintenance/<uuid:pk>/cancel/", maintenance.cancel, name="admin-maintenance-cancel"),
    path("checks/", checks.checks, name="admin-checks"),
    path("checks/create/", checks.create, name="admin-check-policy-create"),
    path("checks/<uuid:pk>/", checks.change, name="admin-check-policy"),
    path("checks/<uuid:pk>/delete/", checks.delete, name="admin-check-policy-delete"),
    path("supplies/", supplies.supplies, name="admin-supplies"),
    path("supplies/create/", supplies.create, name="admin-supply-create"),
    path("supplies/<uuid:pk>/", supplies.change, name="admin-supply"),
    path("supplies/<uuid:pk>/enable/", supplies.enable, name="admin-supply-enable"),
    path("supplies/<uuid:pk>/disable/", supplies.disable, name="admin-supply-disable"),
    path("supplies/orders/<uuid:pk>/cancel/", supplies.cancel_order, name="admin-supply-order-cancel"),
    path("supplies/orders/<uuid:pk>/fail/", supplies.fail_order, name="admin-supply-order-fail"),
    path("quotas/", quotas.quotas, name="admin-quotas"),
    path("quotas/create/", quotas.create, name="admin-quota-create"),
    path("quotas/<uuid:pk>/", quotas.change, name="admin-quota"),
    path("quotas/<uuid:pk>/delete/", quotas.delete, name="admin-quota-delete"),
    path("schedule/", schedule.schedule, name="admin-schedule"),
]
