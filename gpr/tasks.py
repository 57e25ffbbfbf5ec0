"""Celery entry points."""

from celery import shared_task

from journal.hints import TICK_TASK, kick_taken


@shared_task(name=TICK_TASK, ignore_result=True)
def tick_task() -> None:
    # Only the process that runs ticks needs the planner and its compiler: 80 MB.
    from gpr.allocation.allocator import tick

    tick(may_rest=not kick_taken())
