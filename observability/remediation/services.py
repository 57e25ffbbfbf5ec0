"""Runs the periodic step of remediation."""

from __future__ import annotations

from datetime import datetime

from observability.remediation.cases import cases_review
from observability.remediation.counts import counts_prune
from observability.remediation.watching import faults_review


def remediation_step(*, now: datetime) -> None:
    """Sets nodes with faults aside and brings cases forward. Right however often it runs, and in several processes at once."""
    faults_review(now=now)
    cases_review(now=now)
    counts_prune(now=now)
