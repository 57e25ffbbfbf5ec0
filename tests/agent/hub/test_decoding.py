"""msgspec 0.22 ends a process where two threads first decode the same struct at once: no hub, agent or program with the SDK may do so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.processes import ROOT

# The inner struct's annotations take a while to read; meanwhile the outer one is half known.
PROGRAM = """
import threading, time
import msgspec
from {module} import {name}

def slow():
    time.sleep(0.3)
    return int

class Inner(msgspec.Struct):
    count: "slow()"

class Outer(msgspec.Struct):
    inner: Inner

counts = []
threads = [threading.Thread(target=lambda: counts.append({call}.inner.count)) for _ in range(3)]
for thread in threads:
    thread.start()
    time.sleep(0.1)
for thread in threads:
    thread.join()
print(counts)
"""
BODY = 'b\'{"inner": {"count": 7}}\''


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        ("protocol.decoding", "decode", f"decode({BODY}, Outer)"),
        ("protocol.decoding", "convert", "convert({'inner': {'count': 7}}, Outer)"),
        ("egs_client.transport.answers", "read", f"read({BODY}, status=200, kind=Outer, url='', headers={{}})"),
    ],
)
def test_threads_that_read_the_same_message_first_at_once_all_read_it(module: str, name: str, call: str) -> None:
    program = PROGRAM.format(module=module, name=name, call=call)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[7, 7, 7]\n"), done.stderr
