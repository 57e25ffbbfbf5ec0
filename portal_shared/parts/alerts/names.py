from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.urls import reverse

from portal_shared.access import PageRequest
from portal_shared.shell import Shell


@dataclass(frozen=True, slots=True)
class AlertPortal:
    """`prefix` of the names of its addresses; `gpr` and `gpu` are names of its pages."""

    is_admin: bool
    prefix: str
    gpr: str
    gpu: str
    shell_of: Callable[[PageRequest, str], Shell]

    def url(self, name: str, *args: object) -> str:
        return reverse(f"{self.prefix}{name}", args=args)
