"""The agent reports foreign objects in workspaces' namespaces, and delays nothing else by looking for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from protocol.nodes.drift import Drift
from protocol.tenancy.workspaces import AccessRole, Account, Binding, Workspace
from worker_agent.cluster.base import Unavailable, WriteConflict
from worker_agent.kube.api.client import Api, Forbidden, Missing
from worker_agent.kube.api.paging import PAGE_COUNT, ListMeta, ObjectPage
from worker_agent.kube.tenancy import audit
from worker_agent.kube.tenancy.additions import AddedObject, AddedObjectMeta, allows_traffic, bindings_drift, is_our_binding, readable
from worker_agent.kube.tenancy.audit import BINDINGS, KEEP_GUARD, POLICIES, REMOVED_MAX, SPEC_MAX_CHARS, NamespaceAudit

ACCOUNT = Account(id="k1", role=AccessRole.USER, namespace="red", token_s=0)
RED = Workspace(id="s1", name="red", bindings=(Binding(namespace="red"),), accounts=(ACCOUNT,))
OPEN = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}


def added(
    name: str, *, namespace: str = "red", spec: Any = None, finalizers: tuple[str, ...] = (), labels: dict[str, str] | None = None
) -> AddedObject:
    meta = AddedObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", resourceVersion="7", labels=labels, finalizers=finalizers)
    return AddedObject(
        metadata=meta, spec=spec, roleRef={"kind": "ClusterRole", "name": "view"}, subjects=[{"kind": "User", "name": "eve"}]
    )


KEPT = {"egs.io/keep": "true"}


class FakeLists:
    """It lists two objects a page. `faults` says what a call raises, by verb, path or name."""

    def __init__(self, policies: list[AddedObject] | None = None, bindings: list[AddedObject] | None = None) -> None:
        self.things = {POLICIES: policies or [], BINDINGS: bindings or []}
        self.faults: dict[str, Exception] = {}
        self.calls: list[tuple[str, str]] = []

    def _call(self, verb: str, path: str) -> None:
        self.calls.append((verb, path.rpartition("/")[2]))
        if fault := self.faults.get(verb) or self.faults.get(path) or self.faults.get(path.rpartition("/")[2]):
            raise fault

    def get(self, path: str, type_: type, **params: Any) -> ObjectPage[Any]:
        self._call("get", path)
        if path == KEEP_GUARD:
            return ObjectPage()
        begin = int(params.get("continue", 0))
        assert params["limit"] == PAGE_COUNT
        is_last = begin + 2 >= len(self.things[path])
        return ObjectPage(metadata=ListMeta(next="" if is_last else str(begin + 2)), items=tuple(self.things[path][begin : begin + 2]))

    def forget_deleted(self) -> None:
        gone = {name for verb, name in self.calls if verb == "delete"}
        self.things[POLICIES] = [each for each in self.things[POLICIES] if each.metadata.name not in gone]

    def patch(self, path: str, ops: list[dict[str, Any]], type_: type) -> None:
        assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in ops
        self._call("patch", path)

    def delete(self, path: str, *, uid: str) -> None:
        assert uid == f"uid-{path.rpartition('/')[2]}"
        self._call("delete", path)


def audit_over(lists: FakeLists) -> tuple[Callable[..., tuple[Drift, ...]], list[tuple[str, dict[str, object]]]]:
    notes: list[tuple[str, dict[str, object]]] = []
    over = NamespaceAudit(cast(Api, lists), note=lambda event, fields: notes.append((event, fields)))
    return lambda *, repairs=True: over.look({"red": RED, "train": RED}, repairs=repairs), notes


@pytest.mark.parametrize("name", ["r" * 300, "a\nb\x1b[31m", "egs-" + "é" * 5000])
def test_names_of_any_length_and_kind_fit_into_what_the_hub_reads(name: str) -> None:
    (drift,) = audit_over(FakeLists(bindings=[added(name)]))[0]()

    assert msgspec.json.decode(msgspec.json.encode(drift), type=Drift) == drift
    assert drift.detail.isprintable()


def test_names_that_differ_only_where_they_are_cut_are_told_apart() -> None:
    names = ["r" * 300, "r" * 301, "a\nb", "a?b", "a\tb"]

    assert len({readable(name) for name in names}) == len(names)
    assert readable("team-ci") == "team-ci"


def test_role_bindings_by_the_hundred_are_one_drift_that_changes_with_them_alone() -> None:
    many = [added(f"ray-{n:03}") for n in range(400)]
    first, again = (bindings_drift("red", each) for each in (many, reversed(many)))
    other = bindings_drift("red", [*many[:-1], added("ray-999")])

    assert first == again
    assert first != other
    assert first.what == other.what == "role bindings in namespace red"
    assert first.detail.startswith("400 that EGS does not keep: ray-000 (ClusterRole view to User eve), ray-001")
    assert len(first.detail) <= 300


@pytest.mark.parametrize(
    ("name", "labels", "is_ours"),
    [
        ("egs-k1", {"egs.io/slice": "s1", "egs.io/account": "k1"}, True),
        ("egs-zz", {"egs.io/slice": "nobody", "egs.io/account": "zz"}, False),
        ("egs-zz", {"egs.io/slice": "s1", "egs.io/account": "zz"}, False),
        ("egs-k1", {"egs.io/slice": "s2", "egs.io/account": "k1"}, False),
        ("egs-", {"egs.io/slice": "s1"}, False),
    ],
)
def test_labels_make_no_role_binding_ours_that_is_for_no_account_of_the_workspace(name: str, labels: dict[str, str], is_ours: bool) -> None:
    assert is_our_binding(added(name, labels=labels), RED) is is_ours


@pytest.mark.parametrize(
    ("spec", "is_open"),
    [
        ({"ingress": [{}]}, True),
        ({"egress": [{}]}, True),
        ({"policyTypes": ["Egress"], "ingress": [{}]}, False),
        ({"policyTypes": ["Ingress"], "egress": [{}]}, False),
        ({"policyTypes": ["Ingress", "Egress"], "egress": [{}]}, True),
        ({"policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []}, False),
    ],
)
def test_rules_of_a_type_that_a_policy_does_not_name_open_nothing(spec: dict[str, Any], is_open: bool) -> None:
    assert allows_traffic(added("p", spec=spec)) is is_open


def test_all_pages_are_read_and_only_what_is_in_fenced_namespaces_counts() -> None:
    elsewhere = [added(f"other-{n}", namespace="else", spec=OPEN) for n in range(4)]
    look, _ = audit_over(FakeLists(policies=[*elsewhere, added("sneak", spec=OPEN), added("egs-slice", spec=OPEN)]))

    (drift,) = look()

    assert (drift.detail, drift.is_repaired) == ("1 that EGS does not keep and that let traffic through: sneak.", True)


def test_what_a_policy_said_is_kept_in_the_log_up_to_a_length() -> None:
    look, notes = audit_over(FakeLists(policies=[added("sneak", spec={**OPEN, "podSelector": {"matchLabels": {"a": "b" * 10_000}}})]))

    look()

    ((event, kept),) = notes
    assert (event, len(str(kept["spec"]))) == ("network_policy_deleted", SPEC_MAX_CHARS)


def test_a_policy_that_is_held_and_cannot_be_emptied_is_told_once_with_the_reason() -> None:
    lists = FakeLists(policies=[added("held", spec=OPEN, finalizers=("a.b/c",))])
    lists.faults["patch"] = Forbidden("403")
    look, _ = audit_over(lists)

    first, again = look(), look()

    assert first == again
    assert [(drift.is_repaired, drift.detail) for drift in first] == [
        (False, "1 that EGS does not keep and that let traffic through: held (it has a finalizer).")
    ]


def test_a_policy_that_was_written_since_it_was_read_is_not_deleted_for_what_it_said_before() -> None:
    lists = FakeLists(policies=[added("sneak", spec=OPEN)])
    lists.faults["patch"] = WriteConflict("422")
    look, _ = audit_over(lists)

    (drift,) = look()

    assert not drift.is_repaired
    assert ("delete", "sneak") not in lists.calls


def test_a_list_that_fails_is_noted_once_and_hides_neither_the_other_nor_what_was_known() -> None:
    lists = FakeLists(policies=[added("sneak", spec=OPEN)], bindings=[added("ci")])
    look, notes = audit_over(lists)
    (known,) = [drift for drift in look(repairs=False) if not drift.is_foreign]
    lists.faults[BINDINGS] = Unavailable("504")

    found = [look(repairs=False) for _ in range(3)]

    assert all(len(drifts) == 2 and known in drifts for drifts in found)
    assert [event for event, _ in notes] == ["added_unseen"]


def test_without_a_fenced_namespace_nothing_is_listed() -> None:
    lists = FakeLists()

    assert NamespaceAudit(cast(Api, lists), note=lambda *_: None).look({}, repairs=True) == ()
    assert lists.calls == []


def deleted(lists: FakeLists) -> list[str]:
    return [name for verb, name in lists.calls if verb == "delete"]


def test_of_policies_by_the_thousand_each_look_takes_some_away_and_tells_how_many_are_left() -> None:
    lists = FakeLists(policies=[added(f"sneak-{n:04}", spec=OPEN) for n in range(2 * REMOVED_MAX + 5)])
    look, _ = audit_over(lists)

    (first,) = look()

    assert len(deleted(lists)) == REMOVED_MAX
    assert first.is_repaired
    assert first.detail.startswith(f"{REMOVED_MAX} of {2 * REMOVED_MAX + 5} (the others go at the next looks) that EGS does not keep")
    lists.forget_deleted()
    look()
    lists.forget_deleted()
    (last,) = look()
    assert last.detail.startswith("5 that EGS does not keep")
    assert len(set(deleted(lists))) == 2 * REMOVED_MAX + 5


def test_a_namespace_full_of_policies_hides_none_of_another() -> None:
    """The other's is found at the first look, though the full one comes first in the list."""
    crowd = [added(f"sneak-{n:04}", spec=OPEN) for n in range(2 * REMOVED_MAX)]
    lists = FakeLists(policies=[*crowd, added("hole-1", namespace="train", spec=OPEN), added("hole-2", namespace="train", spec=OPEN)])
    look, _ = audit_over(lists)

    drifts = look()

    assert {"hole-1", "hole-2"} <= set(deleted(lists))
    assert len(deleted(lists)) == REMOVED_MAX
    (train,) = (drift for drift in drifts if "train" in drift.what)
    assert train.detail == "2 that EGS does not keep and that let traffic through: hole-1, hole-2."


def test_more_namespaces_than_one_look_serves_take_turns_over_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "REMOVED_MAX", 1)
    lists = FakeLists(policies=[added("sneak", spec=OPEN), added("hole", namespace="train", spec=OPEN)])
    look, _ = audit_over(lists)

    look(), look()  # nothing goes away in between: it is made again at once

    assert set(deleted(lists)) == {"sneak", "hole"}


def test_policies_that_cannot_be_taken_away_keep_no_others_of_their_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "REMOVED_MAX", 2)
    lists = FakeLists(policies=[added(name, spec=OPEN) for name in ("busy-1", "busy-2", "sneak")])
    lists.faults |= {f"busy-{n}": WriteConflict("422") for n in (1, 2)}
    look, _ = audit_over(lists)

    (first,) = look()
    gone, _ = look()

    assert (first.is_repaired, "busy-1, busy-2" in first.detail) == (False, True)
    assert (gone.is_repaired, "sneak" in gone.detail) == (True, True)


def test_a_look_that_left_some_says_so_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look then comes soon."""
    monkeypatch.setattr(audit, "REMOVED_MAX", 2)
    lists = FakeLists(policies=[added(f"sneak-{n}", spec=OPEN) for n in range(3)])
    over = NamespaceAudit(cast(Api, lists), note=lambda *_: None)

    over.look({"red": RED}, repairs=True)
    assert over.is_unfinished

    lists.forget_deleted()
    over.look({"red": RED}, repairs=True)
    assert not over.is_unfinished


def test_a_slow_api_server_ends_the_taking_away_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent does everything else for workspaces after the look."""
    monkeypatch.setattr(audit, "REMOVING_MAX_S", 0.0)
    lists = FakeLists(policies=[added(f"sneak-{n}", spec=OPEN) for n in range(5)])
    look, _ = audit_over(lists)

    look()

    assert len(deleted(lists)) == 1


def test_names_by_the_ten_thousand_are_told_without_long_thought() -> None:
    began_s = time.process_time()

    drift = bindings_drift("red", [added(f"b{n:05}") for n in range(20_000)])

    assert drift.detail.startswith("20000 that EGS does not keep: b00000 (")
    assert time.process_time() - began_s < 2


@pytest.mark.parametrize("repairs", [True, False])
def test_a_policy_that_an_administrator_marked_stays_without_a_word(repairs: bool) -> None:
    look, notes = audit_over(lists := FakeLists(policies=[added("store", spec=OPEN, labels=KEPT)]))

    assert (look(repairs=repairs), notes) == ((), [])
    assert "delete" not in {verb for verb, _ in lists.calls}


@pytest.mark.parametrize("value", ["", "false", "yes"])
def test_another_value_of_the_mark_is_none(value: str) -> None:
    (drift,) = audit_over(FakeLists(policies=[added("store", spec=OPEN, labels={"egs.io/keep": value})]))[0]()

    assert drift.is_repaired


def test_where_anybody_may_write_the_mark_it_spares_nothing() -> None:
    """This happens after an upgrade of the agent before the install script has run again."""
    lists = FakeLists(policies=[added("sneak", spec=OPEN, labels=KEPT)])
    lists.faults[KEEP_GUARD] = Missing("404")

    (drift,) = audit_over(lists)[0]()

    assert drift.is_repaired


def test_while_it_cannot_be_seen_who_may_write_the_mark_what_has_it_is_told_and_left() -> None:
    lists = FakeLists(policies=[added("store", spec=OPEN, labels=KEPT), added("sneak", spec=OPEN)])
    lists.faults[KEEP_GUARD] = Unavailable("504")

    gone, left = audit_over(lists)[0]()

    assert (gone.is_repaired, "sneak" in gone.detail) == (True, True)
    assert (left.is_repaired, "store" in left.detail) == (False, True)
