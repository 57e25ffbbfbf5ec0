"""Measures in a pod what it is told to (one JSON document, its only argument), and says it as one JSON document.

It judges nothing. That document is the last line it prints, and the pod's last words where it is small enough for them.
Standard library only, Python 3.8 or newer: this file is the command of the pod.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

COMMAND_S, CONNECT_S = 60, 5
LAST_WORDS, LAST_WORDS_BYTES = "/dev/termination-log", 4096
BLOCK, BLOCKS = 1 << 20, 64
XIDS_KEPT = 20
READ_ALL, BUFFER_SIZE = 3, 10  # of syslog(2)


def run(alternatives: Sequence[Sequence[str]]) -> dict[str, str]:
    """The output of the first of these commands that succeeds; drivers of other years know other fields."""
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
    """Files by path."""
    texts = {}
    for path in sorted(glob.glob(pattern)):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts[path] = file.read().strip()
        except OSError as error:
            texts[path] = f"error: {error}"
    return texts


def kernel_xids() -> dict[str, Any]:
    """The last lines about Xids in the kernel's log, and its uptime. Needs the capability SYSLOG."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = libc.klogctl(BUFFER_SIZE, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 0) + 1)
    length = libc.klogctl(READ_ALL, buffer, max(size, 0))
    if size < 0 or length < 0:
        return {"error": f"the kernel's log cannot be read: {os.strerror(ctypes.get_errno())}"}
    lines = [line for line in buffer.raw[:length].decode(errors="replace").splitlines() if re.search(r"NVRM: Xid", line)]
    return {"text": "\n".join(line[:160] for line in lines[-XIDS_KEPT:]), "uptime_s": time.clock_gettime(time.CLOCK_BOOTTIME)}


def try_volume(folder: str) -> dict[str, Any]:
    """Writes a file, reads it back from the volume itself, deletes it."""
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
    """`address`: host:port."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        return {"error": f"{address}: {error}"}
    return {"ms": (time.monotonic() - began) * 1000}


def measured(plan: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"commands": {name: run(alternatives) for name, alternatives in plan.get("commands", {}).items()}}
    said["files"] = {path: text for pattern in plan.get("files", []) for path, text in read(pattern).items()}
    if plan.get("xids"):
        said["xids"] = kernel_xids()
    if "volume" in plan:
        said["volume"] = try_volume(plan["volume"])
    said["names"] = {name: look_up(name) for name in plan.get("names", [])}
    said["addresses"] = {address: connect(address) for address in plan.get("addresses", [])}
    return {name: value for name, value in said.items() if value}


def main() -> None:
    document = json.dumps(measured(json.loads(sys.argv[1])))
    sys.stdout.write(f"{document}\n")
    if len(document) <= LAST_WORDS_BYTES and os.path.exists(LAST_WORDS):
        with open(LAST_WORDS, "w", encoding="ascii") as file:
            file.write(document)


if __name__ == "__main__":
    main()
