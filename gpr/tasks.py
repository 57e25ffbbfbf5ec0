"""Celery entry points: three lines that call services."""

from celery import shared_task

from gpr.allocator import tick


@shared_task(name="gpr.tick", ignore_result=True)
def tick_task() -> None:
    tick()
