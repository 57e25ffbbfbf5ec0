"""Shows all components with example data. It works only with settings.DEBUG."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from core.pages import words
from core.pages.axis import Axis
from core.pages.node_strip import NodeBox, node_strip
from core.pages.parts import EventRow, Fact, GpuTile, ListFoot, Meter, NodeRow, OfferRow, Pair, StepRow, SwapRow, Tab
from core.pages.strip import Strip, StripBox, hero_of, strip_of
from core.pages.table import RowGroup
from portal_shared.shell import NavCount, NavItem, Shell, WorkspaceMark

ZONE = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 19, 13, 8, 4, tzinfo=ZONE).astimezone(UTC)
SPEECH = WorkspaceMark("speech-asr", "#", 2, 0, is_current=True)
TTS = WorkspaceMark("edge-tts", "#", 6, 1)


def at(clock: str, days: int = 0) -> datetime:
    """Returns a moment near NOW in ZONE."""
    hour, minute = clock.split(":")
    return NOW.astimezone(ZONE).replace(hour=int(hour), minute=int(minute), second=0) + timedelta(days=days)


AXIS = Axis(at("9:00"), at("20:00"), NOW, ZONE)
OFFER_AXIS = Axis(at("12:00"), at("12:00", 1), NOW, ZONE, width_px=330, name="offers")
HERO_AXIS = Axis(at("6:45"), at("17:15"), NOW, ZONE, width_px=1080, name="hero")


@dataclass(frozen=True, slots=True)
class StateRow:
    state: str
    strip: Strip
    means: str


def _state_rows() -> list[StateRow]:
    queued: dict[str, Any] = {"filed_at": at("11:08"), "asks": "4 × 8 GPUs", "hue": 2}
    held: dict[str, Any] = {"asks": "4 × 8 GPUs", "hue": 2}
    boxes = [
        (StripBox("PENDING_APPROVAL", **queued), "Breaks a policy or quota; an admin decides. Not in the plan."),
        (
            StripBox("QUEUED", planned_start_at=at("14:25"), ends_at=at("18:25"), p90_at=at("15:05"), promised_at=at("15:10"), **queued),
            "Has a planned start, a range (hatched to p90) and a promise (flag).",
        ),
        (
            StripBox("QUEUED", planned_start_at=at("15:20"), ends_at=at("18:20"), p90_at=at("15:50"), promised_at=at("14:10"), **queued),
            "Late: planned after the promise; orange from the flag to the start.",
        ),
        (
            StripBox("QUEUED", planned_start_at=at("18:02", 1), ends_at=at("22:02", 1), promised_at=at("18:40", 1), **queued),
            "Starts after the end of the axis.",
        ),
        (
            StripBox("PROVISIONING", started_at=at("12:58"), ends_at=at("17:58"), promised_at=at("13:10"), **held),
            "Nodes are reserved; entry steps run. The clock has not started.",
        ),
        (
            StripBox("ACTIVE", started_at=at("10:14"), active_at=at("10:21"), ends_at=at("16:21"), promised_at=at("10:25"), **held),
            "The clock runs; marks at 25, 50 and 75 %. Page word may be Provisioned.",
        ),
        (
            StripBox("EXITING", started_at=at("9:59"), active_at=at("10:00"), ends_at=at("13:00"), promised_at=at("10:10"), **held),
            "Window over; nodes drain and are checked. Violet until released.",
        ),
        (StripBox("COMPLETED", active_at=at("9:30"), ends_at=at("12:30"), ended_at=at("12:30"), **held), "Ran its window to the end."),
        (
            StripBox("RELEASED", active_at=at("9:40"), ends_at=at("13:40"), ended_at=at("11:30"), **held),
            "Given back early or idle; the dashed rest went back to the pool.",
        ),
        (
            StripBox("EVICTED", active_at=at("9:40"), ends_at=at("13:40"), ended_at=at("12:10"), **held),
            "Had to leave for another; the cut is orange.",
        ),
        (
            StripBox("FAILED", active_at=at("9:50"), ends_at=at("11:50"), ended_at=at("10:40"), **held),
            "A check or a node failed. The reason names check, node and figure.",
        ),
        (StripBox("CANCELED", ended_at=at("10:22"), **held), "Withdrawn before it started."),
        (StripBox("REJECTED", ended_at=at("10:05"), **held), "An admin said no; the reason is shown."),
        (
            StripBox("BOOKED", planned_start_at=at("17:00"), ends_at=at("19:00"), **held),
            "Advance booking; the nodes are kept for it.",
        ),
    ]
    return [StateRow(box.state, strip_of(box, AXIS), means) for box, means in boxes]


class ExampleForm(forms.Form):
    duration = forms.CharField(help_text="Runs 14:20 to 17:20 and ends on time. At most 3 d (policy edge-default).")
    gpus_per_node = forms.IntegerField(label="GPUs per node", max_value=8, error_messages={"max_value": "A node of fra1-h100 has 8."})
    nodes = forms.IntegerField()
    workspace = forms.ChoiceField(choices=[("speech-asr", "speech-asr"), ("edge-tts", "edge-tts")])

    def clean_duration(self) -> str:
        text = str(self.cleaned_data["duration"])
        try:
            words.duration_parse(text)
        except ValueError:
            raise forms.ValidationError("Write 90 min, 1h30m or PT90M.") from None
        return text


def _offers() -> list[OfferRow]:
    drawn: dict[str, Any] = {"filed_at": NOW, "hue": 6, "mark": 1}

    def offer(value: str, shape: str, start_at: datetime, p90_at: datetime, promised_at: datetime, why: str, **more: Any) -> OfferRow:
        box = StripBox(
            "OFFER", planned_start_at=start_at, ends_at=start_at + timedelta(hours=3), p90_at=p90_at, promised_at=promised_at, **drawn
        )
        return OfferRow(value, "fra1-h100", shape, start_at, strip_of(box, OFFER_AXIS, height=26), why, promised_at=promised_at, **more)

    return [
        offer(
            "1", "H100-80GB", at("14:20"), at("14:29"), at("14:30"), "2 nodes lent to others come back after 60 min notice.",
            supply="Reclaim", supply_icon="arrow-back-up", is_checked=True,
        ),
        offer(
            "2", "A100-80GB", at("3:40", 1), at("5:35", 1), at("5:35", 1), "Waits for 2 nodes of another workspace that end at Fri 03:35.",
            supply="Planned end", supply_icon="clock",
        ),
    ]  # fmt: skip


def _swap() -> SwapRow:
    box = StripBox("OFFER", filed_at=NOW, planned_start_at=at("13:12"), ends_at=at("15:12"), p90_at=at("13:19"), hue=6)
    why = "Fits before the next start on these nodes at 15:35. 1 h 08 min sooner."
    return SwapRow("2 h", "3 h", at("13:12"), strip_of(box, OFFER_AXIS, height=26), why, "id_duration", "2 h")


def _steps() -> list[StepRow]:
    failed_log = "13:06:51 fra1-h100-12 dcgmi diag -r 2: fail (pcie)\n13:06:51 replaced by fra1-h100-10, 1 of 2 replacements used"
    return [
        StepRow("step-1", "passed", "Fence and label", "epoch 41", "4 of 4", "2 s", "13:04:02 4 nodes patched"),
        StepRow(
            "step-2", "warned", "InfiniBand write", "391 Gb/s, one port flapped", "3 of 4, 1 warned", "38 s", "13:05:51 mlx5_3 391 Gb/s"
        ),
        StepRow("step-3", "running", "NCCL all-reduce", "at least 460 GB/s", "2 of 4", "1 min 20 s"),
        StepRow(
            "step-4",
            "failed",
            "DCGM diagnostics",
            "fra1-h100-12: PCIe replay 41 a minute",
            "3 of 4, 1 failed",
            "22 s",
            failed_log,
            is_open=True,
        ),
        StepRow("step-5", "skipped", "CDI attach", "no fabric here"),
        StepRow("step-6", "waiting", "Open to workspace"),
    ]


def _node_boxes() -> list[NodeBox]:
    return [
        NodeBox("held", at("8:00"), at("16:21"), "conformer-xl-8k", "speech-asr", "#", 2, 0),
        NodeBox("planned", at("16:30"), at("19:00"), "ranker-v7", "search-ranking", "#", 0, 1),
        NodeBox("aside", at("19:10"), at("23:00"), "Set aside: Xid 79"),
    ]


def _nodes() -> list[NodeRow]:
    heats = ("0", "2", "3", "4", "5", "6", "7", "8")
    tiles = tuple(GpuTile(index, f"{10 * index + 17} %", f"{60 + 4 * index}°", heat, "busy") for index, heat in enumerate(heats))
    bare = tuple(GpuTile(index, "none") for index in range(4))
    return [
        NodeRow("fra1-h100-05", "held", tiles, "rack B4", "5.4 kW, trainer-0", "#"),
        NodeRow("ams1-l40s-03", "silent", bare, note="silent for 4 min"),
    ]


def _shell() -> Shell:
    nav = (
        NavItem("Workspaces", "#", "home", False, key="g w"),
        NavItem("GPU requests", "#", "list-details", True, NavCount(6, "waiting"), key="g r"),
        NavItem("Create GPU request", "#", "plus", False, key="c"),
        NavItem("Inventory", "#", "server", False, NavCount(3, "nodes need attention", is_alert=True), "Fleet"),
    )
    return Shell("user", nav, (SPEECH, TTS), SPEECH, "Nadia Brandt", "NB", True, "Administrator", NOW, str(ZONE), live_url="")


@require_GET
def styleguide(request: HttpRequest) -> HttpResponse:
    form = ExampleForm({"duration": "90 parsecs", "gpus_per_node": "12", "nodes": "12", "workspace": "edge-tts"})
    hero = StripBox(
        "ACTIVE", filed_at=at("7:02"), started_at=at("10:14"), active_at=at("10:21"), promised_at=at("10:25"), ends_at=at("16:21"),
        asks="4 × 8 H100-80GB", hue=2,
    )  # fmt: skip
    page = {
        "shell": _shell(),
        "axis": AXIS,
        "offer_axis": OFFER_AXIS,
        "hero_axis": HERO_AXIS,
        "hero": hero_of(hero, HERO_AXIS),
        "state_groups": [RowGroup("states-all", "All states", rows := _state_rows(), len(rows))],
        "node_words": tuple(words.NODE_WORDS),
        "step_words": tuple(words.STEP_WORDS),
        "marks": [WorkspaceMark(f"ws-{number}", "#", number % 8, number // 8) for number in range(40)],
        "speech": SPEECH,
        "steps": _steps(),
        "boxes": node_strip(_node_boxes(), AXIS),
        "facts": [
            Fact("Held now", "32 GPUs", "4 nodes until 16:21", is_wide=True),
            Fact("Next start", "Fri 00:35", "whisper-lora-nl, in 11 h 27 min", url="#", is_wide=True),
            Fact("H100-80GB quota", "32 of 64", "guaranteed 32"),
            Fact("Promise", "kept", "4 min early", tone="good"),
            Fact("Late", "+45 min", "2 requests", tone="late"),
        ],
        "tabs": [Tab("Queued", "#", True, 26), Tab("Held", "#", count=11)],
        "pairs": [
            Pair("Id", "gpr-7f3a91c2", is_code=True),
            Pair("Asks for", "4 × 8 H100-80GB, 6 h"),
            Pair("Ends", "16:21", "in 3 h 13 min"),
            Pair("Not set", ""),
        ],
        "meters": [Meter(0, 16, 16, 32), Meter(32, 40, 32, 64)],
        "form": form,
        "offers": _offers(),
        "swap": _swap(),
        "nodes": _nodes(),
        "events": [
            EventRow(at("12:58"), "GPU 3 on fra1-h100-06 at 84 °C for 4 min", "warning"),
            EventRow(at("10:21"), "Active; the clock runs until 16:21", state="ACTIVE"),
            EventRow(at("7:02"), "Filed by Nadia Brandt, promised by 10:15"),
        ],
        "foot": ListFoot(101, 150, 10_000, "#", "#", "#", 12, "#"),
    }
    with timezone.override(ZONE):
        return render(request, "styleguide.html", page)
