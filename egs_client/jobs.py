"""Knows what a client needs to know of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from egs_client.models.gpr import Job

SUCCEEDED, FAILED, STOPPED = "SUCCEEDED", "FAILED", "STOPPED"
OVER = {SUCCEEDED, FAILED, STOPPED}


def sentence_of(job: Job) -> str:
    """Says what the job is now, and why."""
    if job.state == STOPPED:
        return f"{job.name} was stopped before it was done: its request is {job.gpr_state}."
    if job.state == "RUNNING":
        return f"{job.name} runs in {job.pods_running} of {job.nodes} pods." if job.kind != "Manifest" else f"{job.name} runs."
    return f"{job.name} is {job.state}. {job.message}".strip()
