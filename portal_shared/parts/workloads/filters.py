from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from core.errors import InvalidInput
from portal_shared.access import PageRequest
from portal_shared.parts.paging import url_with

FILTER_MAX_CHARS: Final = 100
NAMES: Final = ("view", "cluster", "kind", "q", "workload", "gpr")


@dataclass(frozen=True, slots=True)
class ListFilters:
    view: str = ""
    cluster: str = ""
    kind: str = ""
    q: str = ""
    workload: str = ""
    gpr: str = ""

    @classmethod
    def of(cls, request: PageRequest, views: Mapping[str, str]) -> ListFilters:
        given = {name: request.GET.get(name, "").replace("\x00", "")[:FILTER_MAX_CHARS].strip() for name in NAMES}
        if given["view"] not in views:
            raise InvalidInput({"view": [f"There is no such view. There are: {', '.join(filter(None, views))}."]})
        return cls(**given)

    @property
    def in_url(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in NAMES}

    def clear_url(self, url: str) -> str:
        """Empty where nothing but the view is chosen."""
        return url_with(url, {"view": self.view}) if any((self.cluster, self.kind, self.q, self.workload, self.gpr)) else ""
