"""YAML is read as people, editors and attackers write it. These tests need no hub and no database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.manifests.kinds import KINDS, span_parse, span_text
from protocol.manifests.text import documents_read, documents_write


@pytest.mark.parametrize(
    ("text", "line", "field", "code"),
    [
        ("a: 1\nb:\n\tc: 2\n", 3, "", "tab"),
        ("a: &x [1]\nb: *x\n", 1, "a", "alias"),
        ("a:\n  <<: {b: 1}\n", 2, "a", "alias"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", 2, "b", "tag"),
        ("a: !!int '5'\n", 1, "a", "tag"),
        ("a: 1\n---\n%YAML 1.1\n---\nb: 1\n", 3, "", "malformed_yaml"),
        ("%YAML 1.1\n", 1, "", "malformed_yaml"),
        ("a: 1\nb: 2\na: 3\n", 3, "a", "duplicate_key"),
        ("a: {b: 1, b: 2}\n", 1, "a.b", "duplicate_key"),
        ("a: [1, no]\n", 1, "a[1]", "ambiguous"),
        ("a: ON\n", 1, "a", "ambiguous"),
        ("a: 010\n", 1, "a", "ambiguous"),
        ("a: 0x1F\n", 1, "a", "ambiguous"),
        ("a: 12:30\n", 1, "a", "ambiguous"),
        ("a: 1_000\n", 1, "a", "ambiguous"),
        ("a: .inf\n", 1, "a", "ambiguous"),
        (f"a: {'9' * 5000}\n", 1, "a", "ambiguous"),
        ("a: b: c\n", 1, "", "malformed_yaml"),
        ("a: 'x\n", 1, "", "malformed_yaml"),
        ("a: 1\nb: \x01\n", 2, "", "malformed_yaml"),
        ("? [a]\n: 1\n", 1, "", "malformed_yaml"),
        ("a: " + "[" * 200_000, 1, "a" + "[0]" * 7, "too_deep"),
        ("a: " + "{a: " * 100_000, 1, "a" + ".a" * 7, "too_deep"),
        ("---\na: 1\n" * 1001, 2001, "", "too_many"),
    ],
)
def test_what_is_no_plain_yaml_is_told_with_its_line(text: str, line: int, field: str, code: str) -> None:
    _, (fault, *_) = documents_read("f.yaml", text)

    assert (fault.file, fault.line, fault.field, fault.code) == ("f.yaml", line, field, code)
    assert fault.detail.endswith(".")


def test_windows_line_ends_a_byte_order_mark_comments_and_empty_documents_do_no_harm() -> None:
    text = "\ufeff# head\r\na: 1\r\n---\r\n# nothing\r\n---\r\nb:\r\n- 'no'\r\n- 2026-11-22T18:00:00Z\r\n--- {c: true, d: ~}\r\n"

    documents, faults = documents_read("f.yaml", text)

    assert not faults
    assert [(each.line, each.data) for each in documents] == [
        (2, {"a": 1}),
        (6, {"b": ["no", "2026-11-22T18:00:00Z"]}),
        (9, {"c": True, "d": None}),
    ]
    assert documents[1].line_of(("b", 1)) == documents[1].line_of(("b", 1, "beyond")) == 8


def test_a_mistake_hides_no_other_document() -> None:
    documents, faults = documents_read("f.yaml", "a: [\n---\nb: 1\n---\nc: *x\n---\nd: 1\n")

    assert [each.data for each in documents] == [{"b": 1}, {"d": 1}]
    assert [(fault.line, fault.code) for fault in faults] == [(1, "malformed_yaml"), (5, "alias")]


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
values = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(1e-9, 1e12) | texts, st.lists, max_leaves=6)


@given(st.lists(st.dictionaries(texts, values, min_size=1, max_size=3), min_size=1, max_size=3))
def test_what_is_written_is_read_as_it_was(data: list[dict[str, object]]) -> None:
    documents, faults = documents_read("f.yaml", documents_write(data))

    assert not faults
    assert [each.data for each in documents] == data


@given(st.integers(0, 10**9))
def test_a_duration_is_read_as_it_was_written(span_s: int) -> None:
    assert span_parse(span_text(span_s)) == span_s


def test_kinds_and_fields_have_one_name_each() -> None:
    words = [word for kind in KINDS for word in kind.words]

    assert len(set(words)) == len(words)
    for kind in KINDS:
        assert len(kind.named) == len(kind.fields)
