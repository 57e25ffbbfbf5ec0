"""`make bench`, or `python -m bench NAME…`, runs benchmarks. Each prints ours beside a peer's figure where there is one.

They measure and never fail on a figure. bench/README.md says what each compares, and what it does not.
"""

import os

os.environ.setdefault("EGS_WORKSPACE_RATE_PER_MIN", "0")  # one workspace asks for all of a fleet
