"""One of an agent's replicas acts; a hanging one stops."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.processes import ROOT, START_S
from worker_agent.__main__ import EXIT_DEPOSED

HANGS = """
import threading
from worker_agent import __main__ as agent

class Lost:
    is_lost = True
    def keep(self, stop, idle_s):
        stop.set()

agent.END_WITHIN_S = 0.1
threading.Thread(target=agent._keep, args=(Lost(), threading.Event(), lambda: 1e9)).start()
threading.Event().wait()
"""


def test_a_process_that_lost_its_turn_and_hangs_ends_itself() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, timeout=START_S, check=False)

    assert done.returncode == EXIT_DEPOSED
