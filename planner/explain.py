"""Writes an explanation as one sentence. About other workspaces it says only that they exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planner.plan import Blocker, Explanation, Reason

NOTHING_PROMISED: Final = ", and nothing is promised to it"
STRANGER: Final = "another workspace's request"

NameOf = Callable[[str], str | None]
SayAt = Callable[[int], str]


def sentence(explanation: Explanation, *, now_s: int | None, name_of: NameOf, say_at: SayAt) -> str:
    """`name_of` returns the name of a GPR that the reader may see, else None. `now_s` is None for a stored sentence, which names no time
    left.
    """
    match explanation.reason:
        case Reason.STARTS_NOW:
            return "It starts now."
        case Reason.WAITS_FOR_START_TIME:
            return "It waits for the start time that was asked for."
        case Reason.WAITS_FOR_PREDECESSOR:
            return _of_predecessor(explanation.blockers, now_s, name_of, say_at)
        case Reason.PREDECESSOR_HAS_NO_PLACE:
            names = [name for blocker in explanation.blockers if (name := name_of(blocker.id)) is not None]
            return f"It starts after {_list(names or [STRANGER])}, which has no place in the plan yet{NOTHING_PROMISED}."
        case Reason.WAITS_FOR_SLICE:
            return _of_slice(_known(explanation.blockers, now_s, name_of, say_at))
        case Reason.WAITS_FOR_QUOTA:
            return _of_quota(_known(explanation.blockers, now_s, name_of, say_at))
        case Reason.WAITS_FOR_NODES:
            return (
                "It waits for nodes on which nothing can start now: set aside, not ready, or in a cluster that is disabled or not heard. "
                "EGS does not know when they come back and assumes a time."
            )
        case Reason.WAITS_FOR_CONTACT:
            return (
                "Its nodes are in a cluster that is not heard at present, and nothing can start there meanwhile. Its place and "
                "promise are kept, and no other gets its nodes. It starts once the cluster is heard, or sooner in another if it fits."
            )
        case Reason.WAITS_FOR_MAINTENANCE:
            return "It waits for the end of an announced maintenance: it would not finish before the nodes close."
        case Reason.WAITS_FOR_ORDER:
            return "It waits for nodes that have been ordered; it starts when they have come."
        case Reason.NODES_NOT_BACK:
            return "Its time is over, but its nodes are not back yet. If its agent is gone, an administrator can free them by force."
        case Reason.WAITS_FOR_GPUS:
            return _of_gpus(explanation, _known(explanation.blockers, now_s, name_of, say_at))
        case Reason.DOES_NOT_FIT_THEN:
            return f"It has no place at the time that it was booked for{NOTHING_PROMISED}. Change the time, or let it start later."
        case Reason.NEVER_FITS:
            return _of_never(explanation)


def _of_predecessor(blockers: tuple[Blocker, ...], now_s: int | None, name_of: NameOf, say_at: SayAt) -> str:
    named = [(name, blocker) for blocker in blockers if (name := name_of(blocker.id)) is not None]
    if not named:
        return f"It starts after {STRANGER}, which has to end first."
    name, blocker = named[0]
    if blocker.is_overdue:
        return f"It starts after {name}, whose time is over, but its nodes are not back yet."
    return f"It starts after {name}, which ends {_at(blocker, now_s, say_at)}."


def _of_slice(known: list[str]) -> str:
    if not known:
        return "It waits for an earlier request of its own workspace, which runs one at a time."
    return f"It waits for {_list(known)}: its workspace runs one request at a time."


def _of_quota(known: list[str]) -> str:
    most = "its workspace or project may hold no more GPUs of this kind at once"
    return f"It waits for {_list(known)}: {most}." if known else f"It waits for others of its project: {most}."


def _of_gpus(explanation: Explanation, holders: list[str]) -> str:
    if len(holders) < len(explanation.blockers):
        holders = [*holders, STRANGER]
    if not holders:
        return "It waits for GPUs to come free."
    return f"It waits for the GPUs of {_list(holders)}."


def _of_never(explanation: Explanation) -> str:
    nodes, gpus = explanation.most_node_count, explanation.most_gpus_per_node
    if not nodes:
        return f"It can never start{NOTHING_PROMISED}: there are no GPU nodes that it may use, or its workspace or project may hold none."
    return (
        f"It can never start{NOTHING_PROMISED}: by the nodes that there are, how near each other they are to be, and what its workspace "
        f"and project may hold, it could have at most {_count(nodes, 'node')} with {_count(gpus, 'GPU')}{' each' if nodes > 1 else ''}."
    )


def _known(blockers: tuple[Blocker, ...], now_s: int | None, name_of: NameOf, say_at: SayAt) -> list[str]:
    named = ((blocker, name_of(blocker.id)) for blocker in blockers)
    return [f"{name} ({_when(blocker, now_s, say_at)})" for blocker, name in named if name is not None]


def _when(blocker: Blocker, now_s: int | None, say_at: SayAt) -> str:
    if blocker.is_overdue:
        return "its time is over, but its nodes are not back yet"
    until = _at(blocker, now_s, say_at)
    if blocker.is_running:
        return f"its {_free(blocker)} free {until}"
    size = f", {_size(blocker)}" if blocker.node_count else ""
    return f"ahead of it{size}, ends {until}"


def _at(blocker: Blocker, now_s: int | None, say_at: SayAt) -> str:
    left = "" if now_s is None else f"in {_duration(max(blocker.until_s - now_s, 0))}, "
    return f"{left}at {say_at(blocker.until_s)}"


def _free(blocker: Blocker) -> str:
    nodes, gpus = blocker.node_count, blocker.gpus_per_node
    if nodes == 0:
        return "nodes come"
    if nodes == 1 and gpus == 0:
        return "node comes"
    return f"{_size(blocker)} {'comes' if nodes == gpus == 1 else 'come'}"


def _size(blocker: Blocker) -> str:
    nodes, gpus = blocker.node_count, blocker.gpus_per_node
    if gpus == 0:
        return _count(nodes, "node")
    return _count(gpus, "GPU") if nodes == 1 else f"{nodes} × {_count(gpus, 'GPU')}"


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((i for i, (number, _) in enumerate(units) if number), len(units) - 1)
    return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2] if number) or "0 s"
