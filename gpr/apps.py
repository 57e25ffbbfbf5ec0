from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from inventory.cluster_requests import ClusterRequestHandler


class GprConfig(AppConfig):
    name = "gpr"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from core.triggers import triggers_of
        from gpr.approvals.expiry import approvals_watch
        from gpr.budgets.services import budgets_watch
        from gpr.jobs.logs import logs_watch
        from gpr.notices.services import ends_soon_record, requesters_of, restarts_record, silent_agents_record, undecided_record
        from gpr.triggers import TRIGGERS
        from inventory import cluster_requests
        from journal.notices import audience, periodic
        from journal.notices.kinds import To

        cluster_requests.set_handler(_request_handler)
        triggers_of(self, TRIGGERS)
        audience.find_by(To.REQUESTER, requesters_of)
        periodic.watch_by(ends_soon_record)
        periodic.watch_by(undecided_record)
        periodic.watch_by(restarts_record)
        periodic.watch_by(silent_agents_record)
        periodic.watch_by(budgets_watch)
        periodic.watch_by(approvals_watch)
        periodic.watch_by(logs_watch)


def _request_handler() -> ClusterRequestHandler:
    # It imports the planner and its compiler: 80 MB, which Celery's beat and parent process do not need.
    from gpr.cluster_requests import handler

    return handler
