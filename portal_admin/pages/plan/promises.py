"""Kept promises with exact counts, and the ones that were missed most."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from gpr.promises.calibration import calibration_for
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest
from portal_shared.parts.promises import PromiseFigures, PromiseLine, days_asked
from portal_shared.shell import Shell


@dataclass(frozen=True, slots=True)
class AdminPromisesPage:
    shell: Shell
    figures: PromiseFigures
    worst: tuple[PromiseLine, ...]

    @classmethod
    def build(cls, request: PageRequest) -> AdminPromisesPage:
        found = calibration_for(request.user, days=days_asked(request), now=request.now)
        return cls(
            shell=admin_shell(request, page="promises"),
            figures=PromiseFigures.of(found, reverse("admin-promises")),
            worst=tuple(PromiseLine.of(one, page="admin-inspect", mark=Mark.of(one.slice)) for one in found.worst),
        )
