"""Judges one node of a box by what the box's pods measured between each other. All functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from protocol.cluster_names import CHECK_SERVICE
from protocol.nodes.check_limits import TEXT_MAX_CHARS, expect, judge, measured_against, skipped
from protocol.nodes.checks import CheckResult, Verdict
from worker_agent.cluster.base import StepCall
from worker_agent.kube.checks import readings
from worker_agent.kube.checks.gang_logs import PodOutput
from worker_agent.kube.checks.verdicts import ProbeOutput, Reach, Results, Unreadable, document

PAIR = "gang_latency"
BADNESS = {Verdict.PASS: 0, Verdict.SKIP: 1, Verdict.WARN: 2, Verdict.FAIL: 3}
SILENT = Reach(error="its pod said nothing")
NOBODY_SPOKE = skipped(PAIR, "no other node's pod said anything")


@dataclass(frozen=True, slots=True)
class NodePair:
    asking: str  # a node name, as is the next
    asked: str
    reach: Reach

    def has(self, node: str) -> bool:
        return node in (self.asking, self.asked)

    def other(self, node: str) -> str:
        return self.asked if node == self.asking else self.asking


def gang_network(call: StepCall, outputs: Sequence[PodOutput], *, fan_out: int) -> Results:
    """Raises Unreadable where the output tells nothing of any node, because something common to all pods is wrong."""
    documents = dict(_documents(outputs))
    pairs = _pairs(_placed(call.gang, outputs), documents, fan_out=fan_out)
    if not documents:
        raise Unreadable("no pod of the box said anything")
    own = call.node.view.name
    by_node = {each.node: documents[each.index] for each in outputs if each.index in documents}
    # A pod that never started has no DNS name, which says nothing of the DNS.
    met = [pair.reach for pair in pairs if pair.asking in by_node and pair.asked in by_node]
    if met and all(reach.error and not reach.is_found for reach in met):
        raise Unreadable(f"its pods do not find each other by name: is the Service {CHECK_SERVICE} there, does the cluster's DNS know it?")
    # A silent pod on a node at work tells nothing of that node: there may have been no room for the pod.
    silent = [node for node in call.at_work if node not in by_node]
    pairs = [pair for pair in pairs if not any(pair.has(node) for node in silent)]
    rdma = _rdma(own, by_node, is_spare=bool(call.at_work))
    if call.at_work:
        return [*_of_spare(call, pairs, by_node), *rdma, _met(call, pairs, silent)]
    fault = {node: _fault(node, by_node, pairs) for node in call.gang}
    return [*([_reached(call, pair, fault) for pair in pairs if pair.has(own)] or [NOBODY_SPOKE]), *rdma]


def in_one(results: Results) -> Results:
    """The hub keeps one result per name, so the pairs become their worst, which lists all that are as bad."""
    pairs = sorted((each for each in results if each.check == PAIR), key=lambda each: (BADNESS[each.verdict], each.value or 0.0))
    if not pairs:
        return results
    worst = pairs[-1]
    if worst.verdict is not Verdict.PASS:
        as_bad = [each.text for each in pairs if each.verdict is worst.verdict]
        worst = msgspec.structs.replace(worst, text="; ".join(as_bad)[:TEXT_MAX_CHARS])
    return [worst, *(each for each in results if each.check != PAIR)]


def ring(index: int, count: int, fan_out: int) -> list[int]:
    """Returns the pods that this one asks, as in probes/probe.py."""
    return [(index + step) % count for step in range(1, min(fan_out, count - 1) + 1)]


def _documents(outputs: Sequence[PodOutput]) -> Iterator[tuple[int, ProbeOutput]]:
    """Yields the complete outputs with the index of their pod."""
    for each in outputs:
        with suppress(Unreadable):
            found = document(each.text)
            if found.gang is not None and found.gang.index == each.index:
                yield each.index, found


def _placed(nodes: Sequence[str], outputs: Sequence[PodOutput]) -> dict[int, str]:
    """Returns the node of each pod by index."""
    placed = {each.index: each.node for each in outputs if each.node in nodes}
    left = sorted(set(nodes) - set(placed.values()))
    # Pods without a node printed nothing, so it does not matter which of them was for which node.
    missing = [index for index in range(len(nodes)) if index not in placed]
    return placed | dict(zip(missing, left, strict=False))


def _pairs(node_of: Mapping[int, str], documents: Mapping[int, ProbeOutput], *, fan_out: int) -> list[NodePair]:
    return [
        NodePair(asking=node_of[index], asked=node_of[peer], reach=_reach(documents.get(index), peer))
        for index in sorted(node_of)
        for peer in ring(index, len(node_of), fan_out)
    ]


def _reach(found: ProbeOutput | None, peer: int) -> Reach:
    return found.gang.peers.get(peer, SILENT) if found and found.gang else SILENT


def _fault(node: str, spoke: Collection[str], pairs: Sequence[NodePair]) -> int:
    """Weighs evidence against the node: 2 when its pod printed nothing, 1 when no pair with it works in either direction."""
    if node not in spoke:
        return 2
    return int(all(pair.reach.error for pair in pairs if pair.has(node)))


def _reached(call: StepCall, pair: NodePair, fault: Mapping[str, int]) -> CheckResult:
    own, found = call.node.view.name, _judged(call, pair)
    if not pair.reach.error:
        return found
    # In a failed pair, the node with more evidence against it fails and the other is warned. With equal evidence both fail.
    return msgspec.structs.replace(found, verdict=Verdict.WARN if fault[pair.other(own)] > fault[own] else Verdict.FAIL)


def _judged(call: StepCall, pair: NodePair) -> CheckResult:
    text = f"{pair.asking} to {pair.asked}" + (f": {pair.reach.error}" if pair.reach.error else "")
    return judge(PAIR, pair.reach.ms, shape=call.node.view.shape, policy=call.assignment.checks, text=text)


# -- a spare -----------------------------------------------------------------------------------------------------------


def _of_spare(call: StepCall, pairs: Sequence[NodePair], spoke: Collection[str]) -> Results:
    own = call.node.view.name
    # The spare fails only where it alone can be at fault. High latency is only a warning, since it includes a tenant's load.
    tie = _tie(own, pairs) if own in spoke else ""
    failed = [_judged(call, pair) for pair in pairs if pair.has(own) and pair.reach.error]
    failed = [msgspec.structs.replace(each, verdict=Verdict.WARN if tie else Verdict.FAIL) for each in failed]
    if tie and failed:
        failed[0] = msgspec.structs.replace(failed[0], text=f"{tie}: {failed[0].text}"[:TEXT_MAX_CHARS])
    whole = [_judged(call, pair) for pair in pairs if pair.has(own) and not pair.reach.error]
    whole = [msgspec.structs.replace(each, verdict=Verdict.WARN) if each.verdict is Verdict.FAIL else each for each in whole]
    return [*failed, *whole] or [NOBODY_SPOKE]


def _tie(own: str, pairs: Sequence[NodePair]) -> str:
    """Says why a failure does not count against the spare, or returns ""."""
    between = [pair for pair in pairs if not pair.has(own)]
    if not between:
        return "it may be either node's fault, as one other alone answered"
    if any(pair.reach.error for pair in between):
        return "it says nothing against this node, as the others do not reach each other either"
    reaches = any(pair.asking == own and not pair.reach.error for pair in pairs)
    is_reached = any(pair.asked == own and not pair.reach.error for pair in pairs)
    return "it may be either node's fault, as it reaches others and they reach it" if reaches and is_reached else ""


def _met(call: StepCall, pairs: Sequence[NodePair], silent: Sequence[str]) -> CheckResult:
    own = call.node.view.name
    failed = {pair.other(own) for pair in pairs if pair.has(own) and pair.reach.error}
    spoke = [node for node in call.at_work if node not in silent]
    return measured_against([node for node in spoke if node not in failed], [node for node in spoke if node in failed], silent)


# -- RDMA --------------------------------------------------------------------------------------------------------------


def _rdma(own: str, documents: Mapping[str, ProbeOutput], *, is_spare: bool) -> Results:
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
    subnets = expect("gang_rdma_subnet", len(odd), 0, text=", ".join(f"{name} in {'+'.join(up[own][name]) or 'none'}" for name in odd))
    if is_spare and odd and not any(_do_others_agree(name, own, up) for name in odd):
        text = f"not one that most others have, so it may be their fault: {subnets.text}"[:TEXT_MAX_CHARS]
        subnets = msgspec.structs.replace(subnets, verdict=Verdict.WARN, text=text)
    return [expect("gang_rdma_links", len(down), 0, text=", ".join(down)), subnets]


def _do_others_agree(name: str, own: str, up: Mapping[str, Mapping[str, tuple[str, ...]]]) -> bool:
    """Tells whether at least two others have this port up, all in one subnet."""
    others = [of_node[name] for node, of_node in up.items() if node != own and name in of_node]
    return len(others) > 1 and len(set(others)) == 1


def _is_most(subnets: tuple[str, ...], all_: Sequence[tuple[str, ...] | None]) -> bool:
    counts = Counter(each for each in all_ if each is not None)  # of nodes that have the port up
    return 2 * counts[subnets] > counts.total()
