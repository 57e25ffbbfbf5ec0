"""Simulates the neighbors of EGS on GPU nodes: an exporter that speaks as dcgm-exporter does, and a tool that reboots nodes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

from tests.kube.cluster import Cluster

LOOK_EVERY_S = 0.5
METRICS = {"DEV_GPU_TEMP": 41, "DEV_GPU_UTIL": 97, "DEV_POWER_USAGE": 640.5, "DEV_FB_USED": 70123, "DEV_ROW_REMAP_FAILURE": 0}


class Exporter:
    """One address for all nodes, whose rows name theirs. `xids`: what the gauge shows, by node and GPU; others show 0.

    It has no rows of the GPUs `fallen`.
    """

    def __init__(self, nodes: Sequence[str], gpus: int) -> None:
        self._nodes, self._gpus = nodes, gpus
        self.xids: dict[tuple[str, int], int] = {}
        self.fallen: set[tuple[str, int]] = set()

    def text(self) -> str:
        lines = []
        for name in (*METRICS, "DEV_XID_ERRORS"):
            field = f"DCGM_FI_{name}"
            lines += [f"# HELP {field} As the driver says.", f"# TYPE {field} gauge"]
            for node in self._nodes:
                for gpu in range(self._gpus):
                    if (node, gpu) in self.fallen:
                        continue
                    value = METRICS.get(name, self.xids.get((node, gpu), 0))
                    labels = f'gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",Hostname="{node}"'
                    lines.append(f'{field}{{{labels},modelName="NVIDIA H100 80GB HBM3",DCGM_FI_DRIVER_VERSION="570.86.15"}} {value}')
        return "\n".join(lines) + "\n"


@contextmanager
def exporting(exporter: Exporter) -> Iterator[str]:
    """Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exporter.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The test's output stays readable."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def rebooting(cluster: Cluster, exporter: Exporter) -> Iterator[list[str]]:
    """Reboots a node when the agent asks for it: another boot id, and a driver that has seen no Xid. Yields the nodes, as they come."""
    done: list[str] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for node in cluster.list("nodes"):
                name = node["metadata"]["name"]
                asked = json.loads(node["metadata"].get("annotations", {}).get("egs.io/repair", "{}"))
                if asked.get("step") == "reboot_node" and asked.get("boot_id", "") == node["status"].get("nodeInfo", {}).get("bootID", ""):
                    exporter.xids = {key: xid for key, xid in exporter.xids.items() if key[0] != name}
                    exporter.fallen = {key for key in exporter.fallen if key[0] != name}
                    info = {**node["status"].get("nodeInfo", {}), "bootID": f"boot-{uuid4()}"}
                    cluster.patch("node", name, {"status": {"nodeInfo": info}}, sub="status")
                    done.append(name)
            time.sleep(LOOK_EVERY_S)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
