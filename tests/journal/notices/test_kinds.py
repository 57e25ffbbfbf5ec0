"""Every kind of Event in the code is either told to people or listed as not told."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from journal.notices.kinds import NOT_TOLD, TOLD

PACKAGES = ("accounts", "journal", "inventory", "slices", "gpr", "observability", "inference")
KIND_FIRST = {
    "fault_report",
    "AccountChange",
    "gpr_event",
    "gpr_event_record",
    "object_event",
}  # first argument: the kind
# Kinds that are put together from what no reader of the text can know.
BY_HAND = {
    "observability/alerts/telling.py": {
        f"{of}_{what}" if of != "alert" else f"alert.{what}"
        for of in ("alert", "gpr.alert", "slice.alert")
        for what in ("fired", "grew", "resolved")
    },
    "slices/kubeconfigs/services.py": {f"slice.kubeconfig_{state}" for state in ("failed", "revoked", "expired")},
    "inventory/services/clusters.py": {"cluster.enabled", "cluster.disabled"},
    "inventory/services/supplies.py": {"supply.order_canceled", "supply.order_failed"},
}


class Kinds(ast.NodeVisitor):
    """Collects the kinds that functions of one module give to Events, also through helpers that put a prefix before them."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: set[str] = set()
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._constants: dict[str, set[str]] = defaultdict(set)
        for name, text in self._named_constants(tree):
            self._constants[name].add(text)
        self._calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.visit(tree)

    @staticmethod
    def _named_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            value = getattr(node, "value", None)
            for target in targets:
                pairs = zip(target.elts, value.elts, strict=False) if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) else ()
                for name, constant in [(target, value), *pairs]:
                    if isinstance(name, ast.Name) and isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                        yield name.id, constant.value

    def visit_Call(self, call: ast.Call) -> None:
        self.generic_visit(call)
        callee = call.func.id if isinstance(call.func, ast.Name) else ""
        given = next((word.value for word in call.keywords if word.arg == "kind"), None)
        if callee in KIND_FIRST and given is None:
            given = call.args[0]
        if given is not None and callee in KIND_FIRST | {"Event", "event_record"}:
            self.found |= set(self._values(given))

    def _values(self, given: ast.expr, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        match given:
            case ast.Constant(value=str(text)):
                yield text
            case ast.IfExp():
                yield from self._values(given.body, seen)
                yield from self._values(given.orelse, seen)
            case ast.JoinedStr(values=[ast.Constant(value=str(prefix)), ast.FormattedValue(value=inner)]):
                yield from (prefix + text for text in self._values(inner, seen))
            case ast.Name(id=name) if name in self._constants:
                yield from self._constants[name]
            case ast.Name(id=name) if name not in seen:
                for argument in self._arguments(name):
                    yield from self._values(argument, seen | {name} if isinstance(argument, ast.Name) else seen)

    def _arguments(self, parameter: str) -> Iterator[ast.expr]:
        """Returns what calls of this module's functions give for a parameter of this name."""
        for call in self._calls:
            function = self._functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
            if function is None:
                continue
            names = [one.arg for one in function.args.args]
            if parameter in names and names.index(parameter) < len(call.args):
                yield call.args[names.index(parameter)]
            yield from (word.value for word in call.keywords if word.arg == parameter)


def kinds_of(path: Path) -> set[str]:
    name = str(path.relative_to(settings.BASE_DIR))
    text = path.read_text(encoding="utf-8")
    if not any(word in text for word in KIND_FIRST | {"Event(", "event_record"}):
        return set()
    return Kinds(ast.parse(text)).found | BY_HAND.get(name, set())


def test_people_are_told_of_each_kind_of_event_or_it_is_listed_as_not_told() -> None:
    files = [path for package in PACKAGES for path in (Path(settings.BASE_DIR) / package).rglob("*.py") if "migrations" not in path.parts]
    found = {kind for path in files for kind in kinds_of(path) if "." in kind}

    assert TOLD.keys() | NOT_TOLD == found
    assert not TOLD.keys() & NOT_TOLD
