"""Shows proposals to move GPRs in order to free whole nodes. Nothing moves before an administrator agrees."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from core.pages import words
from gpr.defragmentation.selectors import Moving, RoomAnswer, Suggestion, suggestions
from gpr.models import Gpr
from portal_admin.forms import BookingQuestionForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.evictions import Party, gpu_hours
from portal_admin.pages.plan.question import Effects, Reaching
from portal_shared.access import PageRequest, moment_formatter, why_not_write
from portal_shared.shell import Shell

NODES_NAMED = 6


@dataclass(frozen=True, slots=True)
class MoveLine:
    party: Party
    from_nodes: str
    to_nodes: str
    ends_at: datetime
    restarts_at: datetime
    waits_s: float  # from the return of its nodes to its start elsewhere

    @classmethod
    def of(cls, moving: Moving) -> MoveLine:
        return cls(
            party=Party.of(moving.gpr),
            from_nodes=_named(moving.from_nodes),
            to_nodes=_named(moving.to_nodes),
            ends_at=moving.ends_at,
            restarts_at=moving.restarts_at,
            waits_s=(moving.restarts_at - moving.frees_at).total_seconds(),
        )


@dataclass(frozen=True, slots=True)
class SuggestionLine:
    """`cost` and `value` are GPU-hours. `party` is None for a hypothetical booking."""

    party: Party | None
    start_at: datetime
    won_s: float
    freed: str
    place: str
    moves: tuple[MoveLine, ...]
    cost: str
    value: str
    apply_url: str

    @classmethod
    def of(cls, made: Suggestion) -> SuggestionLine:
        return cls(
            party=Party.of(made.gpr) if made.gpr else None,
            start_at=made.start_at,
            won_s=(made.instead_at - made.start_at).total_seconds(),
            freed=_named(made.freed),
            place=f"{made.shape} in {made.cluster}",
            moves=tuple(MoveLine.of(each) for each in made.moves),
            cost=gpu_hours(made.cost_gpu_s),
            value=gpu_hours(made.value_gpu_s),
            apply_url=reverse("admin-defragmentation-apply", args=[made.gpr.pk]) if made.gpr else "",
        )


@dataclass(frozen=True, slots=True)
class DefragmentationPage:
    shell: Shell
    rows: tuple[SuggestionLine, ...]
    read_only: str  # why there are no buttons

    @classmethod
    def build(cls, request: PageRequest) -> DefragmentationPage:
        rows = tuple(SuggestionLine.of(made) for made in suggestions(now=request.now))
        return cls(admin_shell(request, page="queue"), rows, why_not_write(request))


@dataclass(frozen=True, slots=True)
class BookingQuestionPage:
    """Holds as `answer` a bold and a plain sentence; empty before the question. `rows`: the moves, if any are worth it."""

    shell: Shell
    form: BookingQuestionForm
    answer: tuple[str, str]
    rows: tuple[SuggestionLine, ...]
    refused: str

    @classmethod
    def build(cls, request: PageRequest, form: BookingQuestionForm, told: RoomAnswer | None, refused: str = "") -> BookingQuestionPage:
        rows = (SuggestionLine.of(told.suggestion),) if told and told.suggestion else ()
        shell = admin_shell(request, page="queue")
        return cls(shell, form, _answer(told, request) if told else ("", ""), rows, refused)


def effects_of(gpr: Gpr, made: Suggestion, request: PageRequest) -> Effects:
    say, won_s = moment_formatter(request), (made.instead_at - made.start_at).total_seconds()
    back = [f"{each.gpr.name} runs again about {say(each.restarts_at)} on {_named(each.to_nodes)}" for each in made.moves]
    return Effects(
        own=f"{gpr.name} starts {say(made.start_at)} instead of {say(made.instead_at)}, {words.duration(won_s)} earlier.",
        shown=(),
        summary=f"{'; '.join(back)}, unless another request comes first. "
        f"It costs {gpu_hours(made.cost_gpu_s)} GPU h, and saves {gpu_hours(made.value_gpu_s)} GPU h of waiting.",
        boxes=tuple(_leaving(each) for each in made.moves),
    )


def _leaving(each: Moving) -> Reaching:
    party = Party.of(each.gpr)
    return Reaching(party.name, party.url, party.mark, _named(each.from_nodes), each.ends_at)


def _answer(told: RoomAnswer, request: PageRequest) -> tuple[str, str]:
    if told.fits:
        return "It fits at that time as it is.", "No request has to move: book it."
    when = f"the next time is {moment_formatter(request)(told.instead_at)}" if told.instead_at else "there is no later time either"
    does_not = f"It does not fit at that time as it is; {when}."
    if told.suggestion is None:
        return does_not, "No moves are worth their cost, or the boxes in its way may not be moved."
    return does_not, "These moves would make room. Create a request that starts not before then; its proposal then appears in the list."


def _named(nodes: tuple[str, ...]) -> str:
    more = [f"{len(nodes) - NODES_NAMED} more"] if len(nodes) > NODES_NAMED else []
    return ", ".join([*nodes[:NODES_NAMED], *more])
