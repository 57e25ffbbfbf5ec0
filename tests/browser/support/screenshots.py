"""`make screenshots`: every page of a real demo with people at work in it, in both themes, wide and narrow, into var/screenshots."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from playwright.sync_api import Browser, Page, ViewportSize

from tests.browser.support.chromium import DESK, PHONE, ROOT, Theme, chromium, visitor
from tests.e2e.processes import START_S, Api, Running, demo_tokens, free_port, wait_for

OUT = ROOT / "var/screenshots"
SIZES = {"1440": DESK, "390": PHONE}
THEMES: tuple[Theme, ...] = ("light", "dark")
HOUR = 3600

# name of the picture -> address; {…} are ids of what `_work` makes.
USER_PAGES = {
    "gpus": "/gpus/",
    "usage": "/usage/",
    "workspaces": "/",
    "promises": "/promises/",
    "notices": "/notices/",
    "notice-settings": "/account/notices/",
    "requests": "/workspaces/vision/",
    "requests-ended": "/workspaces/vision/?state=ended",
    "create": "/workspaces/vision/create/",
    "create-clone": "/workspaces/vision/create/?from={waiting}",
    "gpr-active": "/gprs/{active}/",
    "gpr-queued": "/gprs/{waiting}/",
    "gpr-approval": "/gprs/{asking}/",
    "gpr-ended": "/gprs/{ended}/",
    "gpr-edit": "/gprs/{waiting}/edit/",
    "gpr-release": "/gprs/{active}/release/",
    "gpr-booked": "/gprs/{booked}/",
    "bookings": "/workspaces/vision/bookings/",
    "book": "/workspaces/vision/bookings/new/",
    "create-template": "/workspaces/vision/create/?template={template}",
    "jobs": "/workspaces/vision/jobs/",
    "job-create": "/workspaces/vision/jobs/new/",
    "job-in-box": "/gprs/{active}/run/",
    "templates": "/workspaces/vision/templates/",
    "template": "/workspaces/vision/templates/{template}/",
    "access": "/workspaces/vision/access/",
    "kubeconfig-ask": "/workspaces/vision/access/new/",
    "not-found": "/gprs/00000000-0000-0000-0000-000000000000/",
}
ADMIN_PAGES = {
    "queue": "/admin/queue/",
    "usage": "/admin/usage/",
    "inspect": "/admin/queue/{waiting}/",
    "priority": "/admin/queue/{waiting}/priority/",
    "inventory": "/admin/inventory/",
    "node": "/admin/inventory/{node}/",
    "clusters": "/admin/clusters/",
    "maintenance": "/admin/maintenance/",
    "maintenance-announce": "/admin/maintenance/announce/",
    "gpus-admin": "/admin/gpus/",
    "checks": "/admin/checks/",
    "check-add": "/admin/checks/create/",
    "supplies": "/admin/supplies/",
    "supply-add": "/admin/supplies/create/",
    "supply-order-cancel": "/admin/supplies/orders/{order}/cancel/",
    "gpr-ordered": "/gprs/{ordered}/",
    "create-ordered": "/workspaces/robots/create/?from={ordered}",
    "quotas": "/admin/quotas/",
    "quota-give": "/admin/quotas/create/",
    "evictions": "/admin/evictions/",
    "gpr-evicted": "/gprs/{evicted}/",
    "defragmentation": "/admin/defragmentation/",
    "defragmentation-booking": "/admin/defragmentation/booking/?{wanted}",
    "promises-admin": "/admin/promises/",
    "schedule": "/admin/schedule/",
    "schedule-table": "/admin/schedule/?as=table",
}


def main(out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    with _demo() as tokens, chromium() as browser:
        ids = _work(Api(tokens["url"], tokens["admin_token"]))
        for theme in THEMES:
            for size, width_height in SIZES.items():
                shoot = _Camera(browser, tokens["url"], theme, width_height, out, f"{size}-{theme}")
                shoot.stranger()
                shoot.round(tokens["user_token"], {name: path.format(**ids) for name, path in USER_PAGES.items()})
                shoot.round(tokens["admin_token"], {name: path.format(**ids) for name, path in ADMIN_PAGES.items()})
    sys.stdout.write(f"{len(list(out.glob('*.png')))} pictures in {out}\n")
    return 0


class _Camera:
    def __init__(self, browser: Browser, url: str, theme: Theme, size: ViewportSize, out: Path, suffix: str) -> None:
        self._browser, self._url, self._theme, self._size, self._out, self._suffix = browser, url, theme, size, out, suffix

    def stranger(self) -> None:
        with visitor(self._browser, self._url, size=self._size, theme=self._theme) as (page, _):
            page.goto("/login/")
            self._take(page, "login")

    def round(self, token: str, pages: dict[str, str]) -> None:
        with visitor(self._browser, self._url, size=self._size, theme=self._theme) as (page, _):
            page.goto("/login/")
            page.fill("[name=token]", token)
            page.click("main button[type=submit], form button[type=submit]")
            for name, path in pages.items():
                page.goto(path)
                page.wait_for_timeout(400)  # what loads itself, as offers do
                self._take(page, name)

    def _take(self, page: Page, name: str) -> None:
        page.screenshot(path=self._out / f"{name}-{self._suffix}.png", full_page=True)


@contextmanager
def _demo() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "EGS_VAR_DIR": folder}
        process = Running(
            [sys.executable, "manage.py", "demo", "--empty", "--port", str(free_port())], env=env, log=Path(folder) / "demo.log"
        )
        process.start()
        try:
            yield wait_for("demo.json", lambda: demo_tokens(Path(folder)), within_s=START_S)
        finally:
            process.stop()


def _work(api: Api) -> dict[str, str]:
    """GPRs in every state that a page can show, and the ids that the addresses need."""

    def ask(name: str, slice_: str, **changes: object) -> str:
        body = {"name": name, "slice": slice_, "shape": "H100-80GB", "nodes": 1, "duration_s": HOUR, **changes}
        return str(api.post("/gprs/", body)["id"])

    def state(gpr: str, *wanted: str) -> bool:
        return api.get(f"/gprs/{gpr}/")["state"] in wanted

    for owner in ({"project": "perception", "guaranteed_gpus": 16}, {"project": "foundation", "guaranteed_gpus": 8, "most_gpus": 24}):
        api.post("/quotas/", {"shape": "H100-80GB", **owner})
    for owner in ({"slice": "vision", "guaranteed_gpus": 8, "most_gpus": 32}, {"slice": "language", "guaranteed_gpus": 4}):
        api.post("/quotas/", {"shape": "H100-80GB", **owner})

    ended = ask("tokenizer-check", "vision")
    wait_for("ACTIVE", lambda: state(ended, "ACTIVE"), within_s=START_S)
    api.post(f"/gprs/{ended}/release/")
    wait_for("RELEASED", lambda: state(ended, "RELEASED"), within_s=START_S)
    active = ask("resnet-sweep", "vision", nodes=2, duration_s=2 * HOUR)
    ask("whisper-large", "speech", nodes=2, duration_s=6 * HOUR)
    ask("llm-pretrain", "language", nodes=2, duration_s=9 * HOUR, priority=180)
    ask("tool-use-eval", "agents", nodes=1, duration_s=3 * HOUR)
    waiting = ask("detector-finetune", "vision", nodes=2, duration_s=4 * HOUR, priority=150)
    for number in range(4):
        ask(f"ablation-{number}", "vision", duration_s=HOUR * (number + 1))
        ask(f"adapter-{number}", "language", duration_s=HOUR * (number + 2), priority=90 + number)
    asking = ask("video-scale-up", "vision", nodes=2, priority=260)
    wait_for("ACTIVE", lambda: state(active, "ACTIVE"), within_s=START_S)
    node = api.get("/nodes/")["results"][0]["id"]
    ids = {"ended": ended, "active": active, "waiting": waiting, "asking": asking, "node": str(node)}
    return {**ids, **_ahead(api, ask), **_orders(api, ask), "template": _templates(api), "evicted": _evictions(api, ask, state)}


def _templates(api: Api) -> str:
    """One that counts for pods that wait, and one for people."""
    half = {"name": "half-node", "shape": "H100-80GB", "nodes": 1, "gpus_per_node": 4, "duration_s": 8 * HOUR}
    api.post("/templates/", {"slice": "vision", "is_default": True, "auto": True, **half})
    gang = {"name": "gang", "shape": "H100-80GB", "nodes": 2, "duration_s": "2d", "priority": 150, "auto": True, "evictable": False}
    return str(api.post("/templates/", {"slice": "vision", **gang})["id"])


def _evictions(api: Api, ask: Callable[..., str], state: Callable[..., bool]) -> str:
    """One that holds what is guaranteed to two projects, and is to make way for the other."""
    clusters = [cluster["name"] for cluster in api.get("/clusters/")["results"]]
    for slice_, project in (("simulation", "perception"), ("evaluation", "foundation")):
        api.post("/slices/", {"name": slice_, "project": project, "clusters": clusters})
    borrower = ask("drive-sim", "simulation", shape="A100-80GB", nodes=4, duration_s=6 * HOUR)
    wait_for("ACTIVE", lambda: state(borrower, "ACTIVE"), within_s=START_S)
    ask("math-eval", "evaluation", shape="A100-80GB", nodes=2)
    return borrower


def _ahead(api: Api, ask: Callable[..., str]) -> dict[str, str]:
    """Bookings, one of which takes the time of a series, and maintenance."""
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=2)
    cluster = api.get("/clusters/")["results"][0]["name"]
    ask("board-demo", "speech", nodes=api.get("/shapes/")["results"][0]["clusters"][0]["nodes"], **_booked(begin + timedelta(days=1)))
    booked = ask("release-eval", "vision", nodes=2, **_booked(begin))
    series = {"name": "nightly-eval", "slice": "vision", "shape": "H100-80GB", "nodes": 2, "duration_s": 2 * HOUR, "zone": "Europe/Berlin"}
    api.post("/booking-series/", {**series, "first_start_at": (begin + timedelta(hours=8)).isoformat(), "rule": "daily", "count": 30})
    times = {"starts_at": begin.isoformat(), "ends_at": (begin + timedelta(hours=4)).isoformat()}
    api.post("/maintenance/", {"cluster": cluster, **times, "reason": "New switches in row 3."})
    soon = datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(minutes=30)  # as the visitor's clock has it
    wanted = {"shape": "H100-80GB", "nodes": 2, "starts_at": f"{soon:%Y-%m-%dT%H:%M}", "duration": "4 h", "priority": 101}
    return {"booked": booked, "wanted": urlencode(wanted)}


def _orders(api: Api, ask: Callable[..., str]) -> dict[str, str]:
    """Supplies, and a request that waits for nodes of one."""
    clusters = [cluster["name"] for cluster in api.get("/clusters/")["results"]]
    nodes = {"shape": "H100-80GB", "gpus_per_node": 8, "gpu_memory_gib": 80, "node_count": 4, "lead_time_s": "20m", "gain_s": "10m"}
    api.post("/supplies/", {"cluster": clusters[0], "name": "reserve-pool", "kind": "NODE_POOL", **nodes})
    off = {"lead_time_s": "2m", "node_count": 1, "is_enabled": False}
    api.post("/supplies/", {"cluster": clusters[-1], "name": "cdi-chassis", "kind": "ATTACH", **nodes, **off})
    api.post("/slices/", {"name": "robots", "project": "perception", "clusters": clusters})
    api.raw("PATCH", "/slices/robots/", {"may_order": True})
    ordered = ask("grasp-policy", "robots", nodes=2, duration_s=2 * HOUR)
    return {"ordered": ordered, "order": api.get("/supply-orders/")["results"][0]["id"]}


def _booked(at: datetime) -> dict[str, object]:
    return {"earliest_start_at": at.isoformat(), "is_booking": True}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT))
