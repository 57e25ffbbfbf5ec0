"""Defines the builtin tags `{% table %}`, `{% col %}` and `{% action %}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django import template
from django.template.base import FilterExpression, NodeList, Parser, Token, token_kwargs
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from core.pages.table import Column, RowGroup, least_px

register = template.Library()
TABLE, BODIES = "components/lists/table.html", "components/lists/table_bodies.html"
# Default parameters; they also hide the page's variables of the same names.
DEFAULTS = {"name": "", "caption": "", "label": "", "css": "", "id": "", "scroll_id": "", "foot": None, "is_part": False}


@register.tag
def table(parser: Parser, token: Token) -> TableNode:
    """See templates/components/README.md."""
    named = _named(token.split_contents()[1:], parser)
    columns = parser.parse(("empty", "endtable"))
    empty = NodeList()
    if parser.next_token().contents == "empty":
        empty = parser.parse(("endtable",))
        parser.delete_first_token()
    return TableNode(named, [node for node in columns if isinstance(node, ColumnNode)], empty)


@register.tag
def col(parser: Parser, token: Token) -> ColumnNode:
    """`{% col "Lead time" width="clock" is_num=True %}{{ row.lead_s|duration }}{% endcol %}`"""
    _, heading, *bits = token.split_contents()
    named = {"heading": parser.compile_filter(heading), **_named(bits, parser)}
    inner = parser.parse(("endcol",))
    parser.delete_first_token()
    return ColumnNode(named, inner)


@register.simple_tag
def action(url: str, verb: str, *of: object, stop: bool = False) -> SafeString:
    """`{% action row.delete_url "Delete" "supply" row.name stop=True %}`: opens a dialog."""
    if not url:
        return SafeString("")
    return format_html(
        '<a class="btn btn-sm{}" href="{}" hx-get="{}" hx-target="#ask" hx-swap="outerHTML" aria-label="{}">{}</a>',
        " btn-stop" if stop else "",
        url,
        url,
        " ".join([verb, *map(str, of)]),
        verb,
    )


class ColumnNode(template.Node):
    child_nodelists = ("inner",)

    def __init__(self, named: dict[str, FilterExpression], inner: NodeList) -> None:
        self.named, self.inner = named, inner


class TableNode(template.Node):
    child_nodelists = ("empty",)

    def __init__(self, named: dict[str, FilterExpression], columns: list[ColumnNode], empty: NodeList) -> None:
        self.named, self.columns, self.empty = named, columns, empty

    def render(self, context: template.Context) -> SafeString:
        given = {**DEFAULTS, **_resolved(self.named, context)}
        groups = given.pop("groups") if "groups" in given else [RowGroup("", "", given.pop("rows"))]
        groups = [group for group in groups if group.rows or group.url]
        columns = list(self._columns(context))
        bodies = [(group, _rows(context, group.rows, columns, given["name"])) for group in groups]
        component = BODIES if given["is_part"] else TABLE
        empty = "" if groups else self.empty.render(context)
        drawn = [column for column, _ in columns]
        with context.push(**given, columns=drawn, least_px=least_px(drawn), bodies=bodies, empty=empty):
            return context.template.engine.get_template(component).render(context)  # type: ignore[union-attr]

    def _columns(self, context: template.Context) -> Iterator[tuple[Column, NodeList]]:
        for node in self.columns:
            given = _resolved(node.named, context)
            if not given.pop("hidden", False):
                yield Column(**given), node.inner


def _rows(context: template.Context, rows: Sequence[Any], columns: Sequence[tuple[Column, NodeList]], name: str) -> SafeString:
    """`name` prefixes ids, which keyboard navigation needs."""
    starts = [(column.cell_start, inner) for column, inner in columns]
    drawn = []
    for number, row in enumerate(rows, 1):
        with context.push(row=row):
            # CSS hides empty cells on phones.
            cells = "".join(f"{start}{inner.render(context).strip()}</td>" for start, inner in starts)
        attributes = format_html(' id="{}-{}" tabindex="-1"', name, getattr(row, "id", number)) if name else ""
        drawn.append(f"<tr{attributes}>{cells}</tr>")
    return mark_safe("\n".join(drawn))  # noqa: S308  each part is escaped by its own template


def _resolved(named: dict[str, FilterExpression], context: template.Context) -> dict[str, Any]:
    return {name: value.resolve(context) for name, value in named.items()}


def _named(bits: list[str], parser: Parser) -> dict[str, FilterExpression]:
    named = token_kwargs(bits, parser)
    if bits:
        raise template.TemplateSyntaxError("Parameters of a table have names, as in width=…")
    return named
