"""Celery calls these functions."""

from celery import shared_task

from journal.hints import NOTICES_TASK


@shared_task(name=NOTICES_TASK, ignore_result=True)
def notices_task() -> None:
    from journal.notices.periodic import notices_step

    notices_step()
