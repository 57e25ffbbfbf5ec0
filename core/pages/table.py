"""Describes the columns and row groups of tables; `{% table %}` (templatetags/egs_tables.py) draws them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Generic, TypeVar

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString

Row_co = TypeVar("Row_co", covariant=True)

# On a phone a row is a card. By position in that card, the CSS class of a cell; without one it is a line with its heading.
PHONE_CSS = {
    "plain": "",
    "whole": "whole",
    "hide": "narrow-hide",
    "strip": "strip-cell",
    **{name: f"card-{name}" for name in ("first", "end", "ws", "ask", "late")},
}


REST_LEAST_PX: Final = 120  # of a column that takes the remaining width


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    width: str = ""  # a `.w-` class; empty: the remaining width
    css: str = ""
    is_num: bool = False
    phone: str = ""  # a key of PHONE_CSS
    head: str = ""  # a template that replaces the heading

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


def least_px(columns: Iterable[Column]) -> int:
    """Returns the width below which a table scrolls, since columns without a width of their own would vanish."""
    return sum(_widths_px().get(column.width, REST_LEAST_PX) for column in columns)


@cache
def _widths_px() -> dict[str, int]:
    css = (settings.BASE_DIR / "static/egs.css").read_text(encoding="utf-8")
    return {name: int(px) for name, px in re.findall(r"^\.w-([a-z-]+) \{ width: (\d+)px;", css, re.MULTILINE)}


@dataclass(frozen=True, slots=True)
class RowGroup(Generic[Row_co]):
    """Shows its rows under one heading. With `url` and `trigger` the group reloads itself."""

    id: str
    label: str
    rows: Sequence[Row_co]
    count: int | None = None
    note: str = ""
    more_url: str = ""  # if some rows are left out
    more_label: str = ""
    url: str = ""
    trigger: str = ""
