"""Plays a company at work: who asks for what, over two weeks that end now, and from now on. Everything follows from SEED."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db import connection

from accounts.models import User
from core.errors import EgsError
from egs.demo.old_readings import old_use_count
from egs.demo.past import Past, PastAct
from egs.demo.start import ADMIN, SLICES, Tenants, seed
from gpr.approvals.services import gpr_reject
from gpr.models import PROVISIONED, Gpr, GprState
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.services import gpr_submit
from gpr.requests.spec import GprSpec
from gpr.usage.services import day_of, price_set
from inventory.models import Cluster, Node
from inventory.services.maintenance import window_announce, window_draft
from inventory.services.nodes import node_cordon
from journal.notices.outbox import outbox_expand
from journal.notices.services import notices_read_all
from observability.remediation.cases import case_approve, case_give_back
from observability.remediation.models import RemediationCase
from observability.remediation.services import remediation_step
from slices.models import Role, Slice
from worker_agent.telemetry.simulated import WorkKind

SEED: Final = 20
DAYS: Final = 14
ASKED_EVERY_DAYS: Final = 4  # by each workspace
COMPANY_S: Final = 60  # so often people look whether they need something
HOUR_S: Final = 3600
WORK_HOURS: Final = (8, 10, 13, 15, 17)
TENANTS: Final[Tenants] = {
    **SLICES,
    "robotics": ("perception", ("aurora", "borealis"), {"eva": Role.OWNER, "ben": Role.VIEWER}),
    "search": ("foundation", ("aurora",), {"finn": Role.OWNER, "cleo": Role.VIEWER}),
}
PRICES: Final = {"H100-80GB": "3.20", "A100-80GB": "1.90", "L40S-48GB": "1.10", "A10-24GB": "0.60"}  # of a GPU-hour
WAITS: Final = (GprState.QUEUED, GprState.PENDING_APPROVAL)


@dataclass(frozen=True, slots=True)
class Habit:
    owner: str
    work: WorkKind
    shape: str
    nodes: tuple[int, ...]
    hours: tuple[int, ...]
    names: tuple[str, ...]


HABITS: Final[Mapping[str, Habit]] = {
    "vision": Habit("ada", WorkKind.TRAINING, "H100-80GB", (1, 2, 2, 3), (14, 22, 40), ("resnet-sweep", "detector", "video-encoder")),
    "speech": Habit("ben", WorkKind.FINE_TUNING, "H100-80GB", (1, 2, 3), (18, 30, 44), ("whisper-large", "diarization", "tts-voices")),
    "language": Habit("cleo", WorkKind.TRAINING, "A100-80GB", (2, 2, 4), (20, 36, 60), ("llm-pretrain", "sft-round", "reward-model")),
    "agents": Habit("dan", WorkKind.INFERENCE, "A100-80GB", (1, 2), (16, 24, 30), ("tool-use-eval", "browser-agent", "serving-test")),
    "robotics": Habit("eva", WorkKind.TRAINING, "A100-80GB", (1, 2, 3), (24, 36, 50), ("drive-sim", "gait-policy", "grasping")),
    "search": Habit("finn", WorkKind.FORGOTTEN, "L40S-48GB", (1, 1, 2), (12, 24, 48), ("notebook", "index-rebuild", "reranker")),
}


def company_make(*, now: datetime) -> None:
    """Makes the company in a new database, and plays its two weeks."""
    begin = now - timedelta(days=DAYS, minutes=10)
    with _in_haste():
        seed(now=begin, tenants=TENANTS)
        past = Past(begin=begin, seed=SEED, works=works_by_slice())
        past.join()
        past.play([*_two_weeks(now), *_faults(past, now), *_last_day(now)], until=now)
        past.hand_over()
        old_use_count(works=works_by_slice(), now=now)


@contextmanager
def _in_haste() -> Iterator[None]:
    """Nothing is lost if the machine stops now: the demo begins anew."""
    gc.disable()
    try:
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute("PRAGMA synchronous = OFF")
        yield
    finally:
        gc.enable()
        connection.close()


def company_is_there() -> bool:
    return Slice.objects.filter(name__in=TENANTS).count() == len(TENANTS)


def works_by_slice() -> dict[str, str]:
    """Returns the kind of work by id of workspace, as agents' records name it."""
    return {str(pk): HABITS[name].work for pk, name in Slice.objects.filter(name__in=HABITS).values_list("pk", "name")}


def company_go_on(*, now: datetime) -> None:
    """Each workspace without a waiting request files a short one, except vision, which the visitor uses."""
    rng = random.Random(int(now.timestamp()))  # noqa: S311  # a demo, not secrets
    busy = set(Gpr.objects.filter(state__in=WAITS).values_list("slice__name", flat=True))
    for name in HABITS.keys() - busy - {"vision"}:
        habit = HABITS[name]
        _ask(name, rng.choice(habit.names), minutes=rng.randrange(15, 90, 5), nodes=habit.nodes[0])(now)


def _two_weeks(now: datetime) -> Iterator[PastAct]:
    rng = random.Random(SEED)  # noqa: S311  # a demo, not secrets
    begin = now - timedelta(days=DAYS)
    yield PastAct(begin, _set_prices)
    for name, habit in HABITS.items():
        for day in range(0, DAYS - 2, ASKED_EVERY_DAYS):
            at = (begin + timedelta(days=day + rng.randrange(ASKED_EVERY_DAYS - 1))).replace(
                hour=rng.choice(WORK_HOURS), minute=20, second=0
            )
            if at <= begin:
                continue
            title, hours = f"{rng.choice(habit.names)}-{day // ASKED_EVERY_DAYS + 1}", rng.choice(habit.hours)
            yield PastAct(
                at, _ask(name, title, minutes=hours * 60, nodes=rng.choice(habit.nodes), priority=rng.choice((90, 101, 101, 150)))
            )
            if rng.random() < 0.35:
                yield PastAct(at + timedelta(hours=hours * rng.uniform(0.5, 0.9)), _release(title, name))
            elif rng.random() < 0.2:
                yield PastAct(at + timedelta(hours=hours * 0.5), _extend(title, name, hours=2))


def _faults(past: Past, now: datetime) -> Iterator[PastAct]:
    """Sets nodes aside: one was reset and passed its checks, one is for its vendor, and an administrator keeps one."""

    def at(days: float, do: Callable[[datetime], object]) -> PastAct:
        def act(at: datetime) -> None:
            _try(lambda: do(at))
            past.repair()

        return PastAct(now - timedelta(days=days), act)

    yield at(9, lambda _: past.fail_gpu("borealis", "borealis-a10-03", 48))
    yield at(8.98, _decide("borealis-a10-03", case_approve, action="reset_gpus", why="Nobody needs it now."))
    yield at(6, lambda _: past.fail_gpu("aurora", "aurora-l40s-03", 122))
    yield at(4.5, _decide("aurora-l40s-03", case_give_back, why="The vendor replaced the GPU and tested it."))
    yield PastAct(now - timedelta(days=0.8), _keep_aside("borealis-a10-04", why="Its riser is to be replaced at the maintenance."))


def _decide(node: str, decide: Callable[..., object], **given: Any) -> Callable[[datetime], object]:
    def act(now: datetime) -> None:
        case = RemediationCase.objects.get(node__name=node, closed_at=None)
        decide(case=case, actor=User.objects.get(name=ADMIN), now=now, **given)

    return act


def _keep_aside(node: str, *, why: str) -> Callable[[datetime], object]:
    def act(now: datetime) -> None:
        node_cordon(node=Node.objects.get(name=node), actor=User.objects.get(name=ADMIN), why=why, now=now)
        remediation_step(now=now)

    return act


def _last_day(now: datetime) -> Iterator[PastAct]:
    """It ends with boxes and requests at every stage, and leaves three free H100 nodes for the visitor."""

    def at(hours: float, do: Callable[[datetime], object]) -> PastAct:
        return PastAct(now - timedelta(hours=hours), do)

    yield at(30, _announce_maintenance)
    yield at(28, _end_all)
    yield at(27, _ask("speech", "whisper-large", minutes=27 * 60 + 1, nodes=3))  # it ends a minute from now
    yield at(26, _ask("robotics", "drive-sim", minutes=40 * 60, nodes=4))  # half of it is borrowed
    yield at(25, _ask("agents", "assistant", minutes=48 * 60, nodes=2, shape="A10-24GB"))
    yield from (at(25 - minutes / 60, _look) for minutes in (2, 4, 6))  # a GPU falls sick, and a spare takes its place
    yield at(22, _ask("search", "crawl-all", minutes=9 * 24 * 60, nodes=3))
    yield at(21, _reject("crawl-all"))
    yield at(20, _ask("search", "notebook", minutes=30 * 60, nodes=1))
    yield at(6, _ask("language", "llm-pretrain", minutes=30 * 60, nodes=2))  # what was lent comes back
    yield from (at(6 - minutes / 60, _look) for minutes in (1, 2, 3, 4))
    yield at(5, _ask("speech", "whisper-distill", minutes=6 * 60, nodes=2))
    yield at(4.5, _ask("language", "adapter-merge", minutes=4 * 60, nodes=2))
    yield at(4.4, _ask("language", "wrong-branch", minutes=6 * 60, nodes=2))
    yield at(4.3, _cancel("wrong-branch"))
    yield at(4, _ask("vision", "tokenizer-check", minutes=90, nodes=2))
    yield at(3.5, _ask("agents", "tool-use-eval", minutes=3 * 60, nodes=1))
    yield at(3, _ask("speech", "tts-voices", minutes=3 * 60, nodes=1, priority=90))
    yield at(2.5, _ask("vision", "video-scale-up", minutes=8 * 24 * 60, nodes=2))
    yield at(2.2, _read_notices)
    yield at(2, _ask("search", "index-rebuild", minutes=12 * 60, nodes=2, priority=250))
    yield at(
        1.5, _ask("vision", "release-eval", minutes=4 * 60, nodes=2, earliest_start_at=_hour(now) + timedelta(days=1), is_booking=True)
    )
    yield at(1.2, _ask("vision", "smoke-test", minutes=60, nodes=1))
    yield at(0.8, _release("smoke-test", "vision"))


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _look(_: datetime) -> None:
    """Moves the clock."""


def _ask(slice_: str, name: str, *, minutes: int, nodes: int, shape: str = "", **changes: Any) -> Callable[[datetime], object]:
    def act(now: datetime) -> None:
        habit, whose = HABITS[slice_], Slice.objects.get(name=slice_)
        spec = GprSpec(name=name, slice=whose, nodes=nodes, duration_s=minutes * 60, shape=shape or habit.shape, **changes)
        _try(lambda: gpr_submit(actor=User.objects.get(name=habit.owner), spec=spec, now=now))

    return act


def _release(name: str, slice_: str) -> Callable[[datetime], object]:
    return lambda now: _with_active(name, slice_, lambda gpr, owner: gpr_release(gpr=gpr, actor=owner, now=now))


def _reject(name: str) -> Callable[[datetime], object]:
    def act(now: datetime) -> None:
        why = "Nine days are more than the L40S can spare. Ask for two, and extend them."
        gpr_reject(gpr=Gpr.objects.get(name=name), actor=User.objects.get(name=ADMIN), why=why, now=now)

    return act


def _cancel(name: str) -> Callable[[datetime], object]:
    def act(now: datetime) -> None:
        gpr = Gpr.objects.select_related("slice", "owner").get(name=name)
        gpr_cancel(gpr=gpr, actor=gpr.owner, now=now)

    return act


def _extend(name: str, slice_: str, *, hours: int) -> Callable[[datetime], object]:
    return lambda now: _with_active(name, slice_, lambda gpr, owner: gpr_extend(gpr=gpr, extra_s=hours * HOUR_S, actor=owner, now=now))


def _with_active(name: str, slice_: str, do: Callable[[Gpr, User], object]) -> None:
    gpr = Gpr.objects.select_related("slice", "owner").filter(name=name, slice__name=slice_, state=GprState.ACTIVE).first()
    if gpr is not None and gpr.owner is not None:
        owner = gpr.owner
        _try(lambda: do(gpr, owner))


def _set_prices(now: datetime) -> None:
    for shape, price in PRICES.items():
        price_set(shape=shape, price=Decimal(price), from_day=day_of(now), actor=User.objects.get(name=ADMIN), now=now)


def _announce_maintenance(now: datetime) -> None:
    starts_at = _hour(now) + timedelta(days=5)
    cluster = Cluster.objects.get(name="borealis")
    window = window_draft(
        cluster=cluster, node=None, starts_at=starts_at, ends_at=starts_at + timedelta(hours=4), reason="New switches in row 3.", now=now
    )
    window_announce(window=window, actor=User.objects.get(name=ADMIN), now=now)


def _read_notices(now: datetime) -> None:
    """All people have read what they were told until then."""
    while outbox_expand(now=now):
        continue
    for user in User.objects.all():
        notices_read_all(user=user, now=now)


def _end_all(now: datetime) -> None:
    """Ends the requests of the two weeks, so that the last day has room."""
    for gpr in Gpr.objects.select_related("slice", "owner").filter(state__in=(*WAITS, *PROVISIONED)):
        end = gpr_cancel if gpr.state in WAITS else gpr_release
        if gpr.owner is not None:
            _try(lambda gpr=gpr, end=end: end(gpr=gpr, actor=gpr.owner, now=now))  # type: ignore[misc]


def _try(do: Callable[[], object]) -> None:
    """A refusal changes nothing, and the company goes on, as a person would."""
    try:
        do()
    except EgsError:
        return
