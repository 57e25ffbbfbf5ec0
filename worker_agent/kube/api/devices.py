"""Tells which resources are GPUs, and which other devices come only with a whole node.

deploy/agent/install writes the same rules into the admission policies.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.cluster_names import GPU, GPU_PREFIXES

NO_GPUS: Final = ("nvidia.com/hostdev", "nvidia.com/hostdev_rdma", "nvidia.com/mlnxnics", "amd.com/nic", "amd.com/vnic")

# These are no devices: every node has them, and a part of a shared node gets the same share of them as of its GPUs.
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_HUGEPAGES: Final = "hugepages-"


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[str, ...] = GPU_PREFIXES  # prefixes of the names of GPU resources
    no_gpus: tuple[str, ...] = NO_GPUS  # names with such a prefix that are no GPUs, such as network cards
    in_parts: tuple[str, ...] = ()  # other devices, of which a box gets the same share as of a shared node's GPUs

    def is_gpu(self, resource: str) -> bool:
        return resource.startswith(self.gpus) and resource not in self.no_gpus

    def comes_in_parts(self, resource: str) -> bool:
        return resource in (*_PLAIN, *self.in_parts) or resource.startswith(_HUGEPAGES)

    def is_whole(self, resource: str) -> bool:
        """It comes only with a whole node."""
        return resource not in (GPU, "pods") and not self.comes_in_parts(resource)


class _Current:
    rules = Devices()


def use(rules: Devices) -> None:
    _Current.rules = rules


def current() -> Devices:
    return _Current.rules
