"""`python -m tests.report FILE.xml ...`: how many tests each folder has, how long they took, and which were the slowest."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SLOWEST_COUNT = 20


def main(paths: list[str]) -> None:
    tests = [test for path in paths for test in tests_of(Path(path))]
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for took_s, lane, name in tests:
        seconds[lane, "/".join(name.split("/")[:2])].append(took_s)
    lines = ["  tests  seconds  lane, folder"]
    lines += [
        f"{len(seconds[key]):7} {sum(seconds[key]):8.1f}  {', '.join(key)}" for key in sorted(seconds, key=lambda key: -sum(seconds[key]))
    ]
    lines += [f"{len(tests):7} {sum(took_s for took_s, _, _ in tests):8.1f}  all", "The slowest:"]
    lines += [f"{took_s:8.1f} s  {lane}, {name}" for took_s, lane, name in sorted(tests, reverse=True)[:SLOWEST_COUNT]]
    sys.stdout.write("\n".join(lines) + "\n")


def tests_of(path: Path) -> list[tuple[float, str, str]]:
    """Seconds, lane and name of each test in a JUnit file, which pytest wrote."""
    cases = ElementTree.parse(path).iter("testcase")  # noqa: S314  # our own file
    return [(float(case.get("time", 0)), path.stem, f"{case.get('file')}::{case.get('name')}") for case in cases]


if __name__ == "__main__":
    main(sys.argv[1:])
