from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, connections

from egs.runner import pooled


@pytest.mark.postgres_only
@pytest.mark.django_db
def test_the_next_request_gets_the_connection_of_one_that_has_ended() -> None:
    wrapper: Any = type(connections["default"])
    requests = [wrapper(pooled(connection.settings_dict), alias="pool_of_this_test") for _ in range(3)]

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
