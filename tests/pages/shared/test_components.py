from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest
from django import forms
from django.contrib.staticfiles import finders
from django.template import TemplateSyntaxError, engines
from django.test import RequestFactory
from django.utils import timezone

from core.pages.parts import Meter
from portal_shared.styleguide import ZONE, styleguide

pytestmark = pytest.mark.urls(__name__)
urlpatterns: list[object] = []

NOW = datetime(2026, 11, 19, 12, 8, 4, tzinfo=UTC)


def render(markup: str, **context: Any) -> str:
    with timezone.override(ZONE):
        return " ".join(engines["django"].from_string(markup).render({"now": NOW, **context}).split())


@pytest.fixture
def guide() -> str:
    return styleguide(RequestFactory().get("/styleguide/")).content.decode()


class Faults(HTMLParser):
    """Ids that are there twice, and what a strict Content-Security-Policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        identity = given.get("id")
        if identity and identity in self.ids:
            self.found.append(f"twice: {identity}")
        self.ids.add(identity or "")
        self.found += [f"{tag} {name}" for name in given if name == "style" or name.startswith(("on", "hx-on"))]
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.found.append(f"inline {tag}")


def test_no_component_has_inline_styles_or_scripts_or_an_id_twice(guide: str) -> None:
    faults = Faults()
    faults.feed(guide)

    assert faults.found == []


def test_every_picture_that_a_component_shows_is_in_its_sprite(guide: str) -> None:
    for sprite, name in set(re.findall(r'href="/static/([\w/-]+\.svg)#([\w-]+)"', guide)):
        path = finders.find(sprite)
        assert isinstance(path, str), sprite
        with open(path, encoding="utf-8") as file:
            assert f'id="{name}"' in file.read(), f"{sprite}#{name}"


def test_every_drawing_refers_to_what_the_page_defines(guide: str) -> None:
    referred = set(re.findall(r'href="#([\w-]+)"', guide)) | set(re.findall(r"url\(#([\w-]+)\)", guide))

    assert {name for name in referred if f'id="{name}"' not in guide} == set()


def test_a_time_carries_both_zones_in_its_title() -> None:
    shown = render("{% when at %}", at=datetime(2026, 11, 19, 15, 21, tzinfo=UTC))

    assert shown == '<time datetime="2026-11-19T15:21:00+00:00" title="Thu 19 Nov 16:21 CET, 15:21 UTC">16:21</time>'
    assert render('{% when at missing="never" %}', at=None) == '<span class="muted">never</span>'
    assert "in 3 h 13 min" in render("{% ago at %}", at=datetime(2026, 11, 19, 15, 21, tzinfo=UTC))


def test_a_state_is_said_in_words_even_where_only_its_picture_is_seen() -> None:
    assert ">Needs approval</span>" in render('{% state "PENDING_APPROVAL" %}')
    assert '<span class="visually-hidden">Active</span>' in render('{% state "ACTIVE" alone=True %}')
    assert ">Provisioned</span>" in render('{% state "ACTIVE" word="Provisioned" %}')


def test_names_that_people_chose_cannot_bring_markup_into_a_page() -> None:
    evil = "<script>alert(1)</script>"
    mark = SimpleNamespace(name=evil, hue=1, mark=2)

    for markup in ("{% ws mark %}", "{% state evil %}", '{% part "notice" title=evil %}{{ evil }}{% endpart %}'):
        assert "<script>" not in render(markup, mark=mark, evil=evil)


class Form(forms.Form):
    nodes = forms.IntegerField(help_text="Whole nodes")


def test_a_field_tells_screen_readers_of_its_hint_and_its_error() -> None:
    shown = render('{% include "components/forms/field.html" with field=form.nodes noun="node" %}', form=Form({"nodes": "many"}))

    assert 'aria-describedby="id_nodes_hint id_nodes_error"' in shown
    assert 'aria-invalid="true"' in shown
    assert 'id="id_nodes_error"' in shown
    assert 'aria-label="One node more"' in shown


def test_a_quota_that_a_request_would_break_is_said_and_drawn_so() -> None:
    over = Meter(held_count=32, more_count=40, guaranteed_count=32, limit_count=64)

    assert (over.is_over, over.after_count, over.after_width, over.spoken) == (True, 72, "100.00%", "72 of 64 GPUs with this request")
    assert Meter(held_count=0).after_width == "0.00%"


def test_a_part_without_names_for_its_parameters_is_refused() -> None:
    with pytest.raises(TemplateSyntaxError, match="parameters have names"):
        render('{% part "notice" "Late" %}{% endpart %}')


def test_a_table_describes_each_column_once_and_says_what_to_do_where_it_has_no_rows() -> None:
    """On a phone a cell has its heading beside it, and one with nothing in it is left out."""
    source = """{% table rows=rows name="node" caption="Nodes" %}
        {% col "Node" phone="plain" %}{{ row.name }}{% endcol %}{% col "Free" width="free" is_num=True %} {{ row.free }} {% endcol %}
        {% col "Actions" phone="whole" hidden=read_only %}{% action row.url "Delete" row.name stop=True %}{% endcol %}
        {% empty %}Join a cluster.{% endtable %}"""
    rows = [SimpleNamespace(id=7, name="<a>", free=4, url="/x/"), SimpleNamespace(id=8, name="b", free="", url="")]

    # What stands around it by the name of a parameter is not taken for one.
    drawn, read_only = render(source, rows=rows, foot={"next_url": "/next/"}), render(source, rows=rows, read_only="No.")

    assert '<th scope="col" class="num">Free</th>' in drawn
    assert '<tr id="node-7" tabindex="-1"><td>&lt;a&gt;</td><td class="num" data-label="Free">4</td>' in drawn
    assert 'class="btn btn-sm btn-stop" href="/x/"' in drawn
    assert 'aria-label="Delete &lt;a&gt;"' in drawn
    assert '<td class="num" data-label="Free"></td><td class="whole"></td></tr>' in drawn
    assert "/next/" not in drawn
    assert "Actions" not in read_only
    # In less room than this it scrolls: Free has 72 pixels of its own, each of the others keeps 120.
    assert ('<table class="dense" width="312"' in drawn, '<table class="dense" width="192"' in read_only) == (True, True)
    assert render(source, rows=[]) == "Join a cluster."
