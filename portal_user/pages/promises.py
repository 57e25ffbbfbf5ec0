"""Shows kept promises of all workspaces, and recent ones of the reader's."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from gpr.promises.calibration import calibration_for
from portal_shared.access import PageRequest
from portal_shared.parts.promises import PromiseFigures, PromiseLine, days_asked
from portal_shared.shell import Shell, WorkspaceMark


@dataclass(frozen=True, slots=True)
class UserPromisesPage:
    shell: Shell
    figures: PromiseFigures
    last: tuple[PromiseLine, ...]

    @classmethod
    def build(cls, request: PageRequest) -> UserPromisesPage:
        found = calibration_for(request.user, days=days_asked(request), now=request.now)
        return cls(
            shell=Shell.user(request, page="promises"),
            figures=PromiseFigures.of(found, reverse("promises")),
            last=tuple(PromiseLine.of(one, page="gpr", mark=WorkspaceMark.of(one.slice)) for one in found.last),
        )
