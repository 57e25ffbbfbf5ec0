"""People are told once, however many workers judge at once, and if one is killed while it does.

These tests use real processes and PostgreSQL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, connections

from journal.models import Event
from observability.alerts.evaluation import alerts_evaluate, alerts_step
from observability.alerts.models import Alert, AlertState
from tests.builders import make_cluster, make_user
from tests.observability.alerts.simulated import Fleet, notices, only, states, told

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]
MINUTE = timedelta(minutes=1)

# A worker that is killed at a chosen moment: when the Event is written and its transaction still open.
KILLED = """
import os, signal, sys
from datetime import datetime
import django
django.setup()
from observability.alerts import evaluation, telling
write = telling.events_record
def die(events):
    write(events)
    if events:
        os.kill(os.getpid(), signal.SIGKILL)
telling.events_record = die
evaluation.alerts_evaluate(now=datetime.fromisoformat(sys.argv[1]))
"""


def database_url() -> str:
    of = connection.settings_dict
    return f"postgresql://{of['USER']}:{of['PASSWORD']}@{of['HOST'] or 'localhost'}:{of['PORT'] or 5432}/{of['NAME']}"


def test_workers_that_judge_at_once_tell_once() -> None:
    fleet, admin = Fleet(make_cluster("c1", nodes=2, gpus=4)), make_user(is_admin=True)
    only("gpu-hot", "rows-failed")
    fleet.minutes(1, temperature_c=60, rows_failed=0)
    fleet.values |= {"temperature_c": 90, "rows_failed": 2}
    for _ in range(5):
        fleet.run(MINUTE, step=MINUTE)
        at = fleet.now

        def work(n: int, at: object = at) -> None:
            try:
                (alerts_step if n % 2 else alerts_evaluate)(now=at)  # type: ignore[arg-type]
            finally:
                connections.close_all()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))

    assert states("gpu-hot") == states("rows-failed") == [AlertState.FIRING]
    assert Alert.objects.count() == 2
    assert len(told()) == len(notices(admin)) == 2


def test_a_worker_that_is_killed_while_it_tells_has_told_nothing_and_the_next_tells_once() -> None:
    fleet, admin = Fleet(make_cluster("c1", nodes=1, gpus=2)), make_user(is_admin=True)
    only("rows-failed")
    fleet.minutes(1, rows_failed=0)
    fleet.minutes(0.25, rows_failed=1)
    assert not told()
    at = fleet.now + MINUTE
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "egs.settings", "EGS_DATABASE_URL": database_url()}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, at.isoformat()], env=environment, check=False, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not Event.objects.filter(kind="alert.fired").exists()

    for _ in range(2):
        alerts_evaluate(now=at)
    assert len(told()) == len(notices(admin)) == 1
