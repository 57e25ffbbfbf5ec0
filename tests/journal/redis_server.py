"""A Redis of the test's own, which it may kill."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
import redis

from tests.e2e.processes import free_port


class OwnRedis:
    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("there is no redis-server here")
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._child = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        with redis.Redis.from_url(self.url) as client:
            while time.monotonic() < until:
                try:
                    client.ping()
                except redis.ConnectionError:
                    time.sleep(0.02)
                else:
                    return
        raise AssertionError("Redis does not answer")

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def listener_count(self, channel: str) -> int:
        with redis.Redis.from_url(self.url) as client:
            return int(dict(client.pubsub_numsub(channel))[channel.encode()])
