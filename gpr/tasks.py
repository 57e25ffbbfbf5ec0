"""Celery calls these functions."""

from celery import shared_task

from journal.hints import TICK_TASK, kick_keep, kick_taken


@shared_task(name=TICK_TASK, ignore_result=True)
def tick_task() -> None:
    # Only the process that runs ticks needs the planner and its compiler: 80 MB.
    from gpr.allocation.allocator import tick

    is_kicked = kick_taken()
    if tick(may_rest=not is_kicked, may_hurry=is_kicked) is None and is_kicked:
        kick_keep()
