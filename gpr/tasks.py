"""Celery entry points."""

from celery import shared_task

from gpr.allocation.allocator import tick
from journal.hints import TICK_TASK, kick_taken


@shared_task(name=TICK_TASK, ignore_result=True)
def tick_task() -> None:
    tick(may_rest=not kick_taken())
