"""Celery calls these functions."""

from celery import shared_task

ALERTS_TASK = "observability.alerts"
TELEMETRY_TASK = "observability.telemetry"
WORKLOADS_TASK = "observability.workloads"
REMEDIATION_TASK = "observability.remediation"


@shared_task(name=ALERTS_TASK, ignore_result=True)
def alerts_task() -> None:
    from core.clock import db_now
    from observability.alerts.evaluation import alerts_step

    alerts_step(now=db_now())


@shared_task(name=TELEMETRY_TASK, ignore_result=True)
def telemetry_task() -> None:
    from core.clock import db_now
    from observability.services import readings_step

    readings_step(now=db_now())


@shared_task(name=WORKLOADS_TASK, ignore_result=True)
def workloads_task() -> None:
    from core.clock import db_now
    from observability.workloads.measuring import workloads_step

    workloads_step(now=db_now())


@shared_task(name=REMEDIATION_TASK, ignore_result=True)
def remediation_task() -> None:
    from core.clock import db_now
    from observability.remediation.services import remediation_step

    remediation_step(now=db_now())
