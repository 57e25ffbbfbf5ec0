"""The agent finds the exporters of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.fake_kube import FakeApi
from worker_agent.telemetry.discovery import ExporterTelemetry
from worker_agent.telemetry.exporters import EXPORTER, EXPORTERS
from worker_agent.telemetry.scrape import Exporter

PODS = [
    ("gpu-operator", "gpu-1", "10.0.0.1", "Running"),
    ("gpu-operator", "gpu-2", "fd00::2", "Running"),
    ("gpu-operator", "gpu-3", "", "Pending"),
    ("vision", "gpu-4", "10.0.0.4", "Running"),  # a workspace's own pod that calls itself so
]


def listed(label: str) -> list[dict[str, Any]]:
    return [
        {"metadata": {"name": "p", "namespace": namespace}, "spec": {"nodeName": node}, "status": {"phase": phase, "podIP": ip}}
        for namespace, node, ip, phase in (PODS if label == "nvidia-dcgm-exporter" else [])
    ]


def test_exporters_are_found_by_label_or_url_and_never_among_pods_of_workspaces() -> None:
    api: Any = FakeApi()
    api.pods = listed
    telemetry = ExporterTelemetry(
        api=api,
        words=[*EXPORTERS, "https://metrics.example/federate"],
        pods=lambda: [],
        workspace_of=lambda namespace: "slice-1" if namespace == "vision" else "",
        warnings=dict,
        note=lambda *_: None,
    )

    telemetry._look()

    assert telemetry._exporters == [
        Exporter("http://10.0.0.1:9400/metrics", node="gpu-1"),
        Exporter("http://[fd00::2]:9400/metrics", node="gpu-2"),
        Exporter("https://metrics.example/federate"),
    ]
    telemetry.close()


@pytest.mark.parametrize("word", ["app=x", "app=x:9400", "ftp://x/metrics", "app in (x):9400/metrics", "=x:1/", "app=x:123456/metrics"])
def test_a_word_that_names_no_exporter_is_none(word: str) -> None:
    assert EXPORTER.fullmatch(word) is None
