from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, connections, transaction

from egs.runner import pooled
from gpr.allocation.stored_plan import plan_lock
from tests import factories
from tests.promises.races.processes import script


@pytest.mark.postgres_only
@pytest.mark.django_db
def test_the_next_request_gets_the_connection_of_one_that_has_ended() -> None:
    wrapper: Any = type(connections["default"])
    requests = [wrapper(pooled(connection.settings_dict), alias="pool_of_this_test") for _ in range(10)]  # more than the pool keeps open

    def server_process(request: Any) -> int:
        with request.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        request.close()
        return int(pid)

    try:
        assert len({server_process(request) for request in requests}) < len(requests)
    finally:
        requests[0].close_pool()


# A web process with few connections; it files many requests, and reads its list meanwhile.
CROWD = """
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from django.core.signals import request_finished
from django.conf import settings
from django.db import connection, connections
from egs import runner
from tests.api.conftest import Caller

secret, names = sys.stdin.readline().strip(), [f"vision{number}" for number in range(8)]
settings.ALLOWED_HOSTS = ["testserver"]
runner.POOL.update(min_size=1, max_size=4, timeout=1.0)
connection.close()
connections.settings["default"].update(runner.pooled(connection.settings_dict))
request_finished.connect(runner._close_connections)

def file(name):
    ask = {"name": "train", "slice": name, "shape": "H100-80GB", "nodes": 1, "duration_s": 3600}
    return Caller(secret).post("gprs/", ask).status_code

with ThreadPoolExecutor(len(names)) as pool:
    filed = [pool.submit(file, name) for name in names]
    sleep(3)
    print(Caller(secret).get("gprs/").status_code, flush=True)
    print(*{each.result() for each in filed})
connection.close_pool()
"""


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_those_who_wait_for_the_plan_leave_connections_to_others() -> None:
    people, cluster = factories.make_people(), factories.cluster("aurora")
    for number in range(8):
        factories.make_slice(cluster, name=f"vision{number}", owner=people.owner)
    child = script(CROWD)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{factories.token(people.owner)}\n")
    child.stdin.flush()

    with transaction.atomic():
        plan_lock()
        read = child.stdout.readline()
    filed, error = child.communicate(timeout=60)

    assert (read, filed) == ("200\n", "201\n"), error
