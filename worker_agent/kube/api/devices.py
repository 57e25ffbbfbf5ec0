"""What the resources of a cluster are: which are GPUs, and which other devices come with a whole node alone.

Lives here: the rules, as an installation sets them (settings.py reads them), and what follows for a resource by its name. They are set
once, before the agent judges any pod. The admission policies of the cluster go by the same lists: deploy/agent/install
writes them in. Must not live here: amounts (lifting.py), any call.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.cluster_names import GPU, GPU_PREFIXES

NO_GPUS: Final = ("nvidia.com/hostdev", "nvidia.com/hostdev_rdma", "nvidia.com/mlnxnics", "amd.com/nic", "amd.com/vnic")

# Not devices: each node has them, and what a part of a shared node has of them goes with its GPUs.
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_HUGEPAGES: Final = "hugepages-"


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """`gpus`: what the names of GPU resources begin with. `no_gpus`: names that begin so and are none, as of network cards. `in_parts`:
    names of other devices of which a box has as large a part as of the GPUs of a shared node; all others come with whole nodes alone.
    """

    gpus: tuple[str, ...] = GPU_PREFIXES
    no_gpus: tuple[str, ...] = NO_GPUS
    in_parts: tuple[str, ...] = ()

    def is_gpu(self, resource: str) -> bool:
        return resource.startswith(self.gpus) and resource not in self.no_gpus

    def comes_in_parts(self, resource: str) -> bool:
        return resource in (*_PLAIN, *self.in_parts) or resource.startswith(_HUGEPAGES)

    def is_whole(self, resource: str) -> bool:
        """It comes with a whole node alone."""
        return resource not in (GPU, "pods") and not self.comes_in_parts(resource)


class _Here:
    """Those of the cluster that the agent works on."""

    rules = Devices()


def use(rules: Devices) -> None:
    _Here.rules = rules


def here() -> Devices:
    return _Here.rules
