"""Replay one seed: `python -m tests.simulation --seed N [--trace]`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1, help="run so many seeds from there")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["EGS_DATABASE_URL"] = f"sqlite:///{Path(directory) / 'simulation.sqlite3'}"
        os.environ["EGS_VAR_DIR"] = directory
        os.environ.setdefault("EGS_LOG_LEVEL", "CRITICAL")
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
        return run_all(range(options.seed, options.seed + options.count), show_trace=options.trace)


def run_all(seeds: range, *, show_trace: bool) -> int:
    import django
    import structlog

    django.setup()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    from django.core.management import call_command
    from django.db import transaction

    from tests.simulation.run import Failed, run_seed

    call_command("migrate", verbosity=0)
    failed = 0
    faults: Counter[str] = Counter()
    states: Counter[str] = Counter()
    began = time.process_time()
    for seed in seeds:
        try:
            with transaction.atomic():
                report = run_seed(seed)
                transaction.set_rollback(True)
            faults.update(report.faults)
            states.update(report.sometimes)
            trace, line = report.trace, f"seed {seed}: {report.gpr_count} GPRs, {sum(report.faults.values())} faults"
        except Failed as error:
            failed += 1
            trace, line = error.trace, str(error)
        sys.stdout.write("\n".join([*(trace if show_trace else []), line, ""]))
    if len(seeds) > 1:
        sys.stdout.write("".join(f"{count:6} {name}\n" for name, count in [*faults.most_common(), *states.most_common()]))
    took_s = (time.process_time() - began) / len(seeds)
    sys.stdout.write(f"{len(seeds) - failed} passed, {failed} failed, {took_s:.3f} s of CPU each\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
