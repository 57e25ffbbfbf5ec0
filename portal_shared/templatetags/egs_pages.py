"""Has builtin tags and filters; see templates/components/README.md."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from django import template
from django.forms import BoundField, Select
from django.template.base import token_kwargs
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from core.pages import words

register = template.Library()

# An advance booking has no glyph of its own.
BOOKED_ICON = "calendar-event"
STEP_GLYPHS = {
    "waiting": "step-waiting",
    "running": "provisioning",
    "passed": "step-passed",
    "warned": "step-warned",
    "failed": "failed",
    "skipped": "step-skipped",
}
# Glyph and style of an event by severity.
SEVERITY_GLYPHS = {"info": ("queued", "queued"), "warning": ("step-warned", "evicted"), "error": ("failed", "failed")}


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """`{% icon "plus" %}` draws an icon of Tabler. The sprite's build searches templates for literal names."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', static("vendor/icons.svg"), name)


@register.simple_tag
@cache
def glyph(name: str, css: str = "") -> SafeString:
    """Draws a picture from static/state-icons.svg."""
    return format_html(
        '<svg class="icon{}" aria-hidden="true"><use href="{}#{}"/></svg>', f" {css}" if css else "", static("state-icons.svg"), name
    )


@register.simple_tag
def state(value: str, *, pill: bool = False, alone: bool = False, word: str = "") -> SafeString:
    """`{% state gpr.state pill=True %}` shows a state. With `alone` the word is for screen readers and the title."""
    name = slug(value)
    said = word or words.STATE_WORDS.get(str(value), str(value))
    picture = icon(BOOKED_ICON) if value == "BOOKED" else glyph(name)
    css = f"state state-{name}{' state-pill' if pill else ''}"
    if alone:
        return format_html('<span class="{}" title="{}">{}<span class="visually-hidden">{}</span></span>', css, said, picture, said)
    return format_html('<span class="{}">{}{}</span>', css, picture, said)


@register.simple_tag
def node_state(value: str, *, alone: bool = False) -> SafeString:
    said, picture = words.NODE_WORDS[value], glyph(f"node-{value}")
    if alone:
        return format_html(
            '<span class="node-state node-{}" title="{}">{}<span class="visually-hidden">{}</span></span>', value, said, picture, said
        )
    return format_html('<span class="node-state node-{}">{}{}</span>', value, picture, said)


@register.simple_tag
def step_state(value: str) -> SafeString:
    return format_html('{}<span class="visually-hidden">{}</span>', glyph(STEP_GLYPHS[value], f"step-{value}"), words.STEP_WORDS[value])


@register.simple_tag
def severity(value: str) -> SafeString:
    picture, css = SEVERITY_GLYPHS.get(str(value).lower(), SEVERITY_GLYPHS["info"])
    return format_html('<span class="state-{}">{}</span>', css, glyph(picture))


@register.simple_tag
def ws(mark: Any) -> SafeString:
    """Takes any object with name, hue and mark."""
    return format_html('<span class="ws ws-h{}">{}<span class="clip">{}</span></span>', mark.hue, ws_shape(mark.mark), mark.name)


@register.simple_tag
@cache
def ws_shape(mark: int, css: str = "") -> SafeString:
    return format_html(
        '<svg class="icon{}" viewBox="0 0 10 10" aria-hidden="true"><use href="#ws-shape-{}"/></svg>', f" {css}" if css else "", mark
    )


@register.simple_tag(takes_context=True)
def when(context: template.Context, at: datetime | None, missing: str = "none") -> SafeString:
    """`{% when gpr.ends_at %}`: 16:21 or Fri 03:40."""
    if at is None:
        return format_html('<span class="muted">{}</span>', missing)
    return _time(at, words.moment(at, now=_now(context), zone=timezone.get_current_timezone()))


@register.simple_tag(takes_context=True)
def ago(context: template.Context, at: datetime | None, missing: str = "none") -> SafeString:
    """`{% ago gpr.created_at %}` writes 4 min ago, in 1 h 12 min, now."""
    if at is None:
        return format_html('<span class="muted">{}</span>', missing)
    return _time(at, words.relative(at, now=_now(context)), tick="ago")


@register.simple_tag(takes_context=True)
def when_and_ago(context: template.Context, at: datetime | None, missing: str = "none") -> SafeString:
    """Returns e.g. `in 1 h 12 min (14:20)`."""
    if at is None:
        return format_html('<span class="muted">{}</span>', missing)
    return format_html("{} <small>({})</small>", ago(context, at), when(context, at))


@register.simple_tag(takes_context=True)
def left(context: template.Context, at: datetime) -> SafeString:
    """Returns e.g. `3 h 13 min left`."""
    return _time(at, words.left(at, now=_now(context)), tick="left")


@register.simple_tag(takes_context=True)
def starts(context: template.Context, at: datetime) -> SafeString:
    """Returns e.g. `Starts in 12 min`."""
    return _time(at, words.starts(at, now=_now(context)), tick="starts")


@register.simple_tag(takes_context=True)
def told(context: template.Context, sentence: str) -> SafeString:
    """Renders moments in a stored sentence as `when` does."""
    parts = (when(context, part) if isinstance(part, datetime) else part for part in words.moments_in(sentence))
    return format_html_join("", "{}", ((part,) for part in parts))


@register.simple_tag
def widget(field: BoundField, css: str = "", **attrs: Any) -> SafeString:
    """Draws a field's input with ARIA references to hint and error."""
    invalid = bool(field.errors)
    told_by = [f"{field.auto_id}_{what}" for what, is_there in (("hint", field.help_text), ("error", invalid)) if is_there]
    kind = "form-select" if isinstance(field.field.widget, Select) else "form-control"
    given = {name.replace("_", "-"): value for name, value in attrs.items()}
    given["class"] = " ".join(part for part in (kind, css, "is-invalid" if invalid else "") if part)
    if invalid:
        given["aria-invalid"] = "true"
    if told_by:
        given["aria-describedby"] = " ".join([*told_by, *given.get("aria-describedby", "").split()])
    return field.as_widget(attrs=given)


@register.simple_tag(takes_context=True)
def zone_and_day(context: template.Context) -> str:
    """Returns e.g. `CET, Thu 19 Nov`."""
    now, zone = _now(context), timezone.get_current_timezone()
    local = now.astimezone(zone)
    return f"{words.zone_name(now, zone=zone)}, {local:%a} {local.day} {local:%b}"


@register.filter
def slug(value: str) -> str:
    return str(value).lower().replace("_", "-")


register.filter("duration", words.duration)
register.filter("duration_exact", words.duration_exact)
register.filter("duration_narrow", words.duration_narrow)
register.filter("number", words.number)
register.filter("late", words.late)


@register.filter
def plural(count: int, noun: str) -> str:
    return words.plural(count, noun)


@register.filter
def end_reason(value: str) -> str:
    return words.END_REASON_WORDS.get(str(value), "")


@register.tag
def part(parser: template.base.Parser, token: template.base.Token) -> template.Node:
    """`{% part "dialog" id="ask" title=… %}…{% endpart %}`: the component gets the content as `inner`."""
    name, *bits = token.split_contents()[1:]
    named = token_kwargs(bits, parser)
    if bits:
        raise template.TemplateSyntaxError(f"part {name}: parameters have names, as in title=…")
    inner = parser.parse(("endpart",))
    parser.delete_first_token()
    return PartNode(name.strip("\"'"), named, inner)


class PartNode(template.Node):
    child_nodelists = ("inner",)

    def __init__(self, name: str, named: dict[str, Any], inner: template.NodeList) -> None:
        self.name, self.named, self.inner = name, named, inner

    def render(self, context: template.Context) -> SafeString:
        inner = self.inner.render(context)
        values = {name: value.resolve(context) for name, value in self.named.items()}
        component = context.template.engine.get_template(f"components/parts/{self.name}.html")  # type: ignore[union-attr]
        with context.push(**values, inner=inner):
            return component.render(context)


def _now(context: template.Context) -> datetime:
    shell = context.get("shell")
    now: datetime = shell.now if shell else context.get("now") or timezone.now()
    return now


def _time(at: datetime, text: str, *, tick: str = "") -> SafeString:
    """`tick` is the format in which static/clock.js updates the text."""
    title = words.moment_title(at, zone=timezone.get_current_timezone())
    goes_on = format_html(' data-tick="{}"', tick) if tick else ""
    return format_html('<time datetime="{}" title="{}"{}>{}</time>', at.astimezone(UTC).isoformat(), title, goes_on, text)
