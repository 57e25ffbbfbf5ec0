"""What the pods of one box said of each other, as the results of one of its nodes: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from worker_agent.cluster.base import StepCall
from worker_agent.kube import readings
from worker_agent.kube.gang_logs import Said
from worker_agent.kube.names import CHECK_SERVICE
from worker_agent.kube.verdicts import Document, Reach, Results, Unreadable, document
from worker_agent.limits import TEXT_MAX_CHARS, expect, judge, measured_against, skipped
from worker_agent.protocol import CheckResult, Verdict

PAIR = "gang_latency"
BADNESS = {Verdict.PASS: 0, Verdict.SKIP: 1, Verdict.WARN: 2, Verdict.FAIL: 3}
SILENT = Reach(error="its pod said nothing")


@dataclass(frozen=True, slots=True)
class Pair:
    """Nodes by name: the one asked the other."""

    asking: str
    asked: str
    reach: Reach

    def has(self, node: str) -> bool:
        return node in (self.asking, self.asked)

    def other(self, node: str) -> str:
        return self.asked if node == self.asking else self.asking


def gang_network(call: StepCall, said: Sequence[Said], *, fan_out: int) -> Results:
    """Raises Unreadable where it tells nothing of any node: then what the pods have in common is wrong.

    Of a node at work whose pod said nothing nothing is known: it may have had no room.
    """
    documents = dict(_documents(said))
    pairs = _pairs(_placed(call.gang, said), documents, fan_out=fan_out)
    if not documents:
        raise Unreadable("no pod of the box said anything")
    own = call.node.view.name
    by_node = {each.node: documents[each.index] for each in said if each.index in documents}
    # A pod that never came has no name either: that is its own fault.
    met = [pair.reach for pair in pairs if pair.asking in by_node and pair.asked in by_node]
    if met and all(reach.error and not reach.is_found for reach in met):
        raise Unreadable(f"its pods do not find each other by name: is the Service {CHECK_SERVICE} there, does the cluster's DNS know it?")
    silent = [node for node in call.at_work if node not in by_node]
    pairs = [pair for pair in pairs if not any(pair.has(node) for node in silent)]
    fault = {node: _fault(node, by_node, pairs) for node in call.gang}
    reached = [_reached(call, pair, fault) for pair in pairs if pair.has(own)] or [skipped(PAIR, "no other node's pod said anything")]
    spoke = [node for node in call.at_work if node in by_node]
    return [*reached, *_rdma(own, by_node), *([measured_against(spoke, silent)] if call.at_work else [])]


def in_one(results: Results) -> Results:
    """The hub keeps one result of a name: the worst of all pairs, with all that are as bad; the log has each."""
    pairs = sorted((each for each in results if each.check == PAIR), key=lambda each: (BADNESS[each.verdict], each.value or 0.0))
    if not pairs:
        return results
    worst = pairs[-1]
    if worst.verdict is not Verdict.PASS:
        as_bad = [each.text for each in pairs if each.verdict is worst.verdict]
        worst = msgspec.structs.replace(worst, text="; ".join(as_bad)[:TEXT_MAX_CHARS])
    return [worst, *(each for each in results if each.check != PAIR)]


def ring(index: int, count: int, fan_out: int) -> list[int]:
    """Those that the pod of this index asks, as probes/probe.py has it."""
    return [(index + step) % count for step in range(1, min(fan_out, count - 1) + 1)]


def _documents(said: Sequence[Said]) -> Iterator[tuple[int, Document]]:
    """By index; without those that broke off."""
    for each in said:
        with suppress(Unreadable):
            found = document(each.text)
            if found.gang is not None and found.gang.index == each.index:
                yield each.index, found


def _placed(nodes: Sequence[str], said: Sequence[Said]) -> dict[int, str]:
    """By index the node of its pod. Pods that came to no node have said nothing: which of them was for which is all the same."""
    placed = {each.index: each.node for each in said if each.node in nodes}
    left = sorted(set(nodes) - set(placed.values()))
    missing = [index for index in range(len(nodes)) if index not in placed]
    return placed | dict(zip(missing, left, strict=False))


def _pairs(node_of: Mapping[int, str], documents: Mapping[int, Document], *, fan_out: int) -> list[Pair]:
    return [
        Pair(asking=node_of[index], asked=node_of[peer], reach=_reach(documents.get(index), peer))
        for index in sorted(node_of)
        for peer in ring(index, len(node_of), fan_out)
    ]


def _reach(found: Document | None, peer: int) -> Reach:
    return found.gang.peers.get(peer, SILENT) if found and found.gang else SILENT


def _fault(node: str, spoke: Collection[str], pairs: Sequence[Pair]) -> int:
    """How much speaks against it: most that its pod said nothing, then that it reaches nobody and nobody reaches it."""
    if node not in spoke:
        return 2
    return int(all(pair.reach.error for pair in pairs if pair.has(node)))


def _reached(call: StepCall, pair: Pair, fault: Mapping[str, int]) -> CheckResult:
    """Of a pair that failed the one that more speaks against is at fault, and the other is warned; where it is as much, both are."""
    own = call.node.view.name
    text = f"{pair.asking} to {pair.asked}" + (f": {pair.reach.error}" if pair.reach.error else "")
    found = judge(PAIR, pair.reach.ms, shape=call.node.view.shape, policy=call.assignment.checks, text=text)
    if not pair.reach.error:
        # The load of a node at work is in it.
        is_excused = found.verdict is Verdict.FAIL and bool(call.at_work)
        return msgspec.structs.replace(found, verdict=Verdict.WARN) if is_excused else found
    return msgspec.structs.replace(found, verdict=Verdict.WARN if fault[pair.other(own)] > fault[own] else Verdict.FAIL)


def _rdma(own: str, documents: Mapping[str, Document]) -> Results:
    """Port by port, since each rail of a fabric may be a subnet of its own."""
    ports = {node: {port.name: port for port in readings.ports(found.files)} for node, found in documents.items()}
    up = {node: {name: port.subnets for name, port in of_node.items() if port.is_up} for node, of_node in ports.items()}
    if not any(up.values()):
        return [skipped("gang_rdma_links", "no node of the box has an RDMA port that is up")]
    if own not in up:
        return [skipped("gang_rdma_links", SILENT.error)]
    if len(up) < 2:
        return [skipped("gang_rdma_links", "no other node's pod said anything")]
    names = sorted({name for of_node in up.values() for name in of_node})
    down = [name for name in names if name not in up[own]]
    odd = [name for name in names if name in up[own] and not _is_most(up[own][name], [of_node.get(name) for of_node in up.values()])]
    found = [f"{name} in {'+'.join(up[own][name]) or 'none'}" for name in odd]
    return [
        expect("gang_rdma_links", len(down), 0, text=", ".join(down)),
        expect("gang_rdma_subnet", len(odd), 0, text=", ".join(found)),
    ]


def _is_most(subnets: tuple[str, ...], all_: Sequence[tuple[str, ...] | None]) -> bool:
    """More than half of those that have the port up have it there."""
    counts = Counter(each for each in all_ if each is not None)
    return 2 * counts[subnets] > counts.total()
