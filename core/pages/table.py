"""The columns of a table, and the groups of its rows. Every list of both portals is drawn by `{% table %}` (templatetags/egs_tables.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.utils.html import format_html
from django.utils.safestring import SafeString

Row_co = TypeVar("Row_co", covariant=True)

# How a cell lies in the card that a row becomes on a phone, and the class that says so. Else it is a line with its heading.
PHONE_CSS = {
    "plain": "",
    "whole": "whole",
    "hide": "narrow-hide",
    "strip": "strip-cell",
    **{name: f"card-{name}" for name in ("first", "end", "ws", "ask", "late")},
}


@dataclass(frozen=True, slots=True)
class Column:
    """`width`: a `.w-` class, or empty for what is left. `phone`: of PHONE_CSS, or empty. `head`: a template instead of the heading."""

    heading: str
    width: str = ""
    css: str = ""
    is_num: bool = False
    phone: str = ""
    head: str = ""

    @property
    def heading_css(self) -> str:
        return "num" if self.is_num else "strip-cell" if self.phone == "strip" else ""

    @property
    def cell_start(self) -> SafeString:
        place = PHONE_CSS[self.phone] if self.phone else ""
        css = " ".join(part for part in ("num" if self.is_num else "", self.css, place) if part)
        css_attribute = format_html(' class="{}"', css) if css else ""
        label = "" if self.phone else format_html(' data-label="{}"', self.heading)
        return format_html("<td{}{}>", css_attribute, label)


@dataclass(frozen=True, slots=True)
class RowGroup(Generic[Row_co]):
    """Rows under a heading of their own. `more_url` when they are not all; with `url` and `trigger` the group refetches itself."""

    id: str
    label: str
    rows: Sequence[Row_co]
    count: int | None = None
    note: str = ""
    more_url: str = ""
    more_label: str = ""
    url: str = ""
    trigger: str = ""
