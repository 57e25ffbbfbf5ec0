"""Runs the measurements of its only argument, a JSON document, and prints one JSON document as its last line.

It judges nothing. It needs the standard library only, of Python 3.8 or newer: this file is the command of the pod.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

COMMAND_S, CONNECT_S, PAUSE_S = 60, 5, 0.5
ROUNDS, MESSAGE = 5, "%15d\n"
LAST_WORDS, LAST_WORDS_BYTES = "/dev/termination-log", 4096
BLOCK, BLOCKS = 1 << 20, 64
XIDS_KEPT = 64
UNSET_HALF, SUBNET_CHARS, IPV4_CHARS = "0000:" * 4, 19, 29  # of a GID: four groups, or six where an IPv4 address may follow
READ_ALL, BUFFER_SIZE = 3, 10  # actions of syslog(2)


def run(alternatives: Sequence[Sequence[str]]) -> dict[str, str]:
    """Returns the output of the first command that succeeds; older drivers know other fields."""
    why = ""
    for command in alternatives:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            why = f"{command[0]}: {error}"
            continue
        if done.returncode == 0:
            return {"text": done.stdout}
        why = f"{command[0]}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"
    return {"error": why}


def read(pattern: str) -> dict[str, str]:
    texts = {}
    for path in sorted(glob.glob(pattern)):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts[path] = file.read().strip()
        except OSError as error:
            texts[path] = f"error: {error}"
    return texts


def by_subnet(files: dict[str, str]) -> dict[str, str]:
    """Keeps only the subnets of each port's GIDs, to shorten the output."""
    kept, seen = {}, set()
    for path, text in files.items():
        folder, _ = os.path.split(path)
        if os.path.basename(folder) != "gids":
            kept[path] = text
            continue
        subnet = text[:IPV4_CHARS] if text.startswith(UNSET_HALF) else text[:SUBNET_CHARS]
        if text != f"{UNSET_HALF}{UNSET_HALF}"[:-1] and (folder, subnet) not in seen:
            seen.add((folder, subnet))
            kept[path] = subnet
    return kept


def kernel_xids(file: str) -> dict[str, Any]:
    """Returns the last line of each Xid of each GPU. `file`: holds the log; "": ask the kernel."""
    log = read(file).get(file, f"error: there is no {file}") if file else kernel_log()
    if log.startswith("error: "):
        return {"error": f"the kernel's log cannot be read: {log[len('error: ') :]}"}
    newest: dict[str, str] = {}
    for line in log.splitlines():
        if said := re.search(r"NVRM: Xid \(\S*: \d+", line):
            newest.pop(said[0], None)
            newest[said[0]] = line[:160]
    return {"text": "\n".join(list(newest.values())[-XIDS_KEPT:]), "uptime_s": time.clock_gettime(time.CLOCK_BOOTTIME)}


def kernel_log() -> str:
    """Needs the capability SYSLOG."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = libc.klogctl(BUFFER_SIZE, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 0) + 1)
    length = libc.klogctl(READ_ALL, buffer, max(size, 0))
    if size < 0 or length < 0:
        return f"error: {os.strerror(ctypes.get_errno())}"
    return buffer.raw[:length].decode(errors="replace")


def try_volume(folder: str) -> dict[str, Any]:
    """Writes a file, reads it back from the volume itself, and deletes it."""
    path, block = os.path.join(folder, "egs-check"), os.urandom(BLOCK)
    began = time.monotonic()
    with open(path, "wb") as file:
        for _ in range(BLOCKS):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    written = time.monotonic()
    is_same = True
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        digest = hashlib.sha256(block).digest()
        for _ in range(BLOCKS):
            is_same = is_same and hashlib.sha256(file.read(BLOCK)).digest() == digest
    done = time.monotonic()
    os.remove(path)
    return {"bytes": BLOCK * BLOCKS, "write_s": written - began, "read_s": done - written, "is_same": is_same}


def look_up(name: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        return {"error": f"{name}: {error}"}
    return {"ms": (time.monotonic() - began) * 1000}


def connect(address: str) -> dict[str, Any]:
    """`address` is host:port."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        return {"error": f"{address}: {error}"}
    return {"ms": (time.monotonic() - began) * 1000}


class GangProbe:
    """It runs in one of `count` pods on as many nodes. It answers on `port`, and asks the next `fan_out` in a ring."""

    def __init__(self, hosts: str, count: int, fan_out: int, port: int, within_s: float) -> None:
        # `hosts`: the name of each pod, with {} for its index.
        self.index, self.hosts, self.port = int(os.environ["JOB_COMPLETION_INDEX"]), hosts, port
        self.until = time.monotonic() + within_s
        steps = range(1, min(fan_out, count - 1) + 1)
        self.asked = [(self.index + step) % count for step in steps]
        self.waited_for = {(self.index - step) % count for step in steps}

    def measured(self) -> dict[str, Any]:
        """Stays until the pods that ask this one have done so, for `within_s` at most."""
        with listener(self.port) as server:
            threading.Thread(target=self.answer, args=(server,), daemon=True).start()
            peers: dict[int, dict[str, Any]] = {}
            while time.monotonic() < self.until and not (self.is_done(peers) and not self.waited_for):
                peers.update({peer: self.ask(self.hosts.format(peer)) for peer in self.asked if "ms" not in peers.get(peer, {})})
                time.sleep(PAUSE_S)
        return {"index": self.index, "peers": peers}

    def is_done(self, peers: dict[int, dict[str, Any]]) -> bool:
        return all("ms" in peers.get(peer, {}) for peer in self.asked)

    def ask(self, host: str) -> dict[str, Any]:
        """Returns the best of ROUNDS on one connection."""
        message, best_s = (MESSAGE % self.index).encode(), float("inf")
        try:
            with socket.create_connection((host, self.port), timeout=CONNECT_S) as connection:
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    connection.sendall(message)
                    if received(connection) != message:
                        return {"error": "it answered something else"}
                    best_s = min(best_s, time.monotonic() - began)
        except socket.gaierror as error:
            return {"error": str(error), "is_found": False}
        except OSError as error:
            return {"error": str(error)}
        return {"ms": best_s * 1000}

    def answer(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return  # the listener was closed
            threading.Thread(target=self.echo, args=(connection,), daemon=True).start()

    def echo(self, connection: socket.socket) -> None:
        rounds = 0
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(CONNECT_S)
            while message := received(connection):
                connection.sendall(message)
                rounds += 1
                if rounds == ROUNDS:
                    self.waited_for.discard(int(message))


def listener(port: int) -> socket.socket:
    """Listens on the pod's own address."""
    address = os.environ.get("POD_IP", "")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def received(connection: socket.socket) -> bytes:
    text = b""
    while len(text) < len(MESSAGE % 0) and (more := connection.recv(len(MESSAGE % 0) - len(text))):
        text += more
    return text


def measured(plan: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"commands": {name: run(alternatives) for name, alternatives in plan.get("commands", {}).items()}}
    said["files"] = by_subnet({path: text for pattern in plan.get("files", []) for path, text in read(pattern).items()})
    if "xids" in plan:
        said["xids"] = kernel_xids(plan["xids"])
    if "volume" in plan:
        said["volume"] = try_volume(plan["volume"])
    said["names"] = {name: look_up(name) for name in plan.get("names", [])}
    said["addresses"] = {address: connect(address) for address in plan.get("addresses", [])}
    if "gang" in plan:
        said["gang"] = GangProbe(**plan["gang"]).measured()
    return {name: value for name, value in said.items() if value}


def main() -> None:
    document = json.dumps(measured(json.loads(sys.argv[1])))
    sys.stdout.write(f"{document}\n")
    if len(document) <= LAST_WORDS_BYTES and os.path.exists(LAST_WORDS):
        with open(LAST_WORDS, "w", encoding="ascii") as file:
            file.write(document)


if __name__ == "__main__":
    main()
