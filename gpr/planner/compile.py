"""`python -m gpr.planner.compile`: compile the planner's kernels now, so that the first request need not wait for it."""

from __future__ import annotations

from dataclasses import replace

from gpr.planner.engine import plan
from gpr.planner.snapshot import Node, Policy, PolicyName, Pool, Request, Snapshot


def compile_all() -> None:
    """A plan in which everything happens: who starts, who waits, gangs, and the same from stored slots. Both policies."""
    pool = Pool("p", "c", "s", (Node("a", 2), Node("b", 2)))
    queue = tuple(Request(f"q{i}", "s", "x", 101, i, 1 + i % 2, i % 2, 100, ("p",)) for i in range(4))
    for name in PolicyName:
        snapshot = Snapshot(0, (pool,), queue=queue, policy=Policy(name=name))
        placed = {placement.id: placement for placement in plan(snapshot).placements}
        stored = tuple(replace(request, slot=placed[request.id].slot, promise_s=placed[request.id].promise_s) for request in queue)
        # A second late, so that slots are shoved as well.
        plan(Snapshot(1, (pool,), queue=stored, policy=Policy(name=name)))


if __name__ == "__main__":
    compile_all()
