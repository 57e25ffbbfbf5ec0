"""Reads the ConfigMap egs-settings, where administrators describe their cluster, when the agent becomes the leader. It never writes it.

A missing or unreadable setting has its default. deploy/agent/install writes `gpus` and `no-gpus` into the admission policies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol import cluster_names
from protocol.tenancy.notebooks import NO_INGRESS, IngressWay
from worker_agent.cluster.base import Note
from worker_agent.kube.api.client import Api, Forbidden, Missing
from worker_agent.kube.api.devices import Devices
from worker_agent.kube.api.objects import ConfigMap
from worker_agent.kube.nodes.repairs import DRIVER_PODS
from worker_agent.kube.tenancy.isolation import QUOTA, QUOTA_KEPT
from worker_agent.telemetry.exporters import EXPORTER, EXPORTERS

PATH: Final = f"/api/v1/namespaces/{cluster_names.NAMESPACE}/configmaps/egs-settings"
WORDS_MAX: Final = 50
_PREFIX: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9._-]{0,63}")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9._-]{1,63}")
_LABEL: Final = re.compile(r"[A-Za-z0-9./_-]{1,253}=[A-Za-z0-9._-]{1,63}")
_INGRESS: Final = re.compile(r"(https?)://([a-z0-9]([a-z0-9.-]{0,180}[a-z0-9])?)/?(?:\s+class=([a-z0-9][a-z0-9.-]{0,252}))?")
_LIMIT: Final = re.compile(r"([a-z0-9][a-z0-9./-]{0,252})=([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Settings:
    devices: Devices = field(default_factory=Devices)
    # Limits of each namespace of a workspace by resource, defaults included.
    quota: Mapping[str, str] = field(default_factory=lambda: QUOTA)
    exporters: tuple[str, ...] = EXPORTERS
    driver_pods: tuple[str, ...] = DRIVER_PODS
    ingress: IngressWay = NO_INGRESS


def read_settings(api: Api, *, note: Note) -> Settings:
    """Raises ClusterError when the API server does not answer."""
    try:
        data = api.get(PATH, ConfigMap).data
    except Missing:
        return Settings()
    except Forbidden as error:  # the role of an older installation does not allow it
        note("settings_unreadable", {"why": str(error)})
        return Settings()
    return settings_of(data, note=note)


def settings_of(data: Mapping[str, str], *, note: Note) -> Settings:
    rules = Devices()
    gpus = _words(data, "gpus", _PREFIX, rules.gpus, note)
    no_gpus = _words(data, "no-gpus", _NAME, rules.no_gpus, note)
    if not cluster_names.GPU.startswith(gpus) or cluster_names.GPU in no_gpus:
        note("settings_unreadable", {"why": f"by them {cluster_names.GPU} would be no GPU"})
        gpus, no_gpus = rules.gpus, rules.no_gpus
    in_parts = _words(data, "in-parts", _NAME, rules.in_parts, note)
    chosen = Devices(gpus=gpus, no_gpus=no_gpus, in_parts=in_parts)
    if any(map(chosen.is_gpu, in_parts)):
        note("settings_unreadable", {"why": "GPUs are given in parts of a node anyway: in-parts names others"})
        chosen = Devices(gpus=gpus, no_gpus=no_gpus)
    exporters = _words(data, "exporters", EXPORTER, EXPORTERS, note)
    driver_pods = _words(data, "driver-pods", _LABEL, DRIVER_PODS, note)
    ingress = _ingress(data.get("notebooks", "").strip(), note)
    return Settings(chosen, {**QUOTA, **_limits(data.get("quota", ""), note)}, exporters, driver_pods, ingress)


def _ingress(text: str, note: Note) -> IngressWay:
    """Parses e.g. `https://notebooks.example.org class=nginx`."""
    if not text:
        return NO_INGRESS
    match = _INGRESS.fullmatch(text)
    if match is None:
        note("settings_unreadable", {"why": f"notebooks: {text[:100]}"})
        return NO_INGRESS
    return IngressWay(match[1], match[2], match[4] or "")


def _words(data: Mapping[str, str], key: str, what: re.Pattern[str], default: tuple[str, ...], note: Note) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(data.get(key, "").split()))
    if not words:
        return default
    wrong = [word for word in words if not what.fullmatch(word)]
    if wrong or len(words) > WORDS_MAX:
        note("settings_unreadable", {"why": f"{key}: {wrong[0] if wrong else f'more than {WORDS_MAX} words'}"})
        return default
    return words


def _limits(text: str, note: Note) -> dict[str, str]:
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _LIMIT.fullmatch(line)  # resource=number
        if match is None or match[1] in QUOTA_KEPT:
            note("settings_unreadable", {"why": f"quota: {line[:100]}"})
        else:
            found[match[1]] = match[2]
    return found
