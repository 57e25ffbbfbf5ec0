"""A real Prometheus of the test's own: it scrapes what the test names, or finds the past that the test wrote into its store."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.processes import free_port, program

EVERY = "1s"
READY_S = 30.0


class OwnPrometheus:
    def __init__(self, folder: Path, *, scrapes: Mapping[str, int] | None = None, web: Mapping[str, Any] | None = None) -> None:
        """`scrapes` has ports on this machine by job. `web` is its web.config.file, for TLS and passwords."""
        self._folder = folder
        self.port = free_port()
        jobs = [
            {"job_name": job, "scrape_interval": EVERY, "scrape_timeout": EVERY, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for job, port in (scrapes or {}).items()
        ]
        self._write("prometheus.yaml", {"scrape_configs": jobs})
        self._write("web.yaml", web or {})
        self.scheme = "https" if web and "tls_server_config" in web else "http"
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        self._child: subprocess.Popen[bytes] | None = None

    def remember(self, rows: Iterable[tuple[str, str, float, float]]) -> None:
        """Rows of the past: name, labels as text, value, time. Before it starts."""
        by_name: dict[str, list[str]] = {}
        for name, labels, value, at_s in rows:
            by_name.setdefault(name, []).append(f"{name}{{{labels}}} {value} {at_s:.3f}")
        text = "".join("\n".join([f"# TYPE {name} gauge", *lines]) + "\n" for name, lines in by_name.items())
        (self._folder / "past.txt").write_text(f"{text}# EOF\n")
        arguments = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration", "2400h"]
        subprocess.run([*arguments, self._folder / "past.txt", self._folder / "data"], check=True, capture_output=True)

    def start(self) -> None:
        arguments = [
            program("prometheus"), f"--config.file={self._folder}/prometheus.yaml", f"--web.config.file={self._folder}/web.yaml",
            f"--storage.tsdb.path={self._folder}/data", "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._child = subprocess.Popen(arguments, stdout=log, stderr=log)
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/-/ready", verify=False).status_code in (200, 401):  # noqa: S501  # is it there at all?
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError((self._folder / "log").read_text())

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it returns now."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(yaml.safe_dump(json.loads(json.dumps(content))))
