"""Finds a cluster's exporters of GPU metrics."""

from __future__ import annotations

import re
from typing import Final

# A word of the setting `exporters`: pods by a label, or an address that serves several nodes.
EXPORTER: Final = re.compile(
    r"(?P<label>[A-Za-z0-9./_-]{1,253}=[A-Za-z0-9._-]{1,63}):(?P<port>\d{1,5})(?P<path>/[^\s]*)|(?P<url>https?://\S{1,500})"
)
EXPORTERS: Final = (
    "app=nvidia-dcgm-exporter:9400/metrics",
    "app.kubernetes.io/name=dcgm-exporter:9400/metrics",
    "app.kubernetes.io/name=metrics-exporter:5000/metrics",  # of AMD's GPU operator
    "app=intel-xpumanager:29999/metrics",
)
