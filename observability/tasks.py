"""Celery calls these functions."""

from celery import shared_task

TELEMETRY_TASK = "observability.telemetry"


@shared_task(name=TELEMETRY_TASK, ignore_result=True)
def telemetry_task() -> None:
    from core.clock import db_now
    from observability.services import readings_step

    readings_step(now=db_now())
