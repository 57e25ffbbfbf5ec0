"""A demo with its simulated fleet for tests of pages: people who have signed in, workspaces, and GPRs that run, wait and need approval."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize

from tests.browser.support.chromium import DESK, Theme, Watch, new_page, new_profile
from tests.browser.support.people import sign_in
from tests.e2e.processes import START_S, Api, Running, demo_tokens, free_port, wait_for
from tests.migrated import copy_to_file

# It asks the demo for nothing more, however long it is open, and keeps the renderer process, which `about:blank` would not.
EMPTY_PAGE = "/healthz"
# The demo evicts without the minutes of patience.
AT_ONCE = {"EGS_EVICTION_LEAST_RUN_S": "0", "EGS_EVICTION_NOTICE_S": "3", "EGS_EVICTION_GAIN_S": "1"}


@contextmanager
def running_demo(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Its address and tokens, once its fleet is there."""
    copy_to_file(folder / "egs.sqlite3")
    env = {**os.environ, "EGS_VAR_DIR": str(folder), **AT_ONCE}
    command = [sys.executable, "manage.py", "demo", *options, "--port", str(free_port())]
    process = Running(command, env=env, log=folder / "demo.log")
    process.start()
    try:
        tokens = wait_for("demo.json", lambda: demo_tokens(folder), within_s=START_S)
        yield tokens | {"folder": str(folder)}
    finally:
        process.stop()


class Demo:
    """`admin` is root, an administrator; `user` is ada, owner of workspace vision and viewer of speech."""

    def __init__(self, browser: Browser, tokens: dict[str, str]) -> None:
        self.url, self.folder = tokens["url"], Path(tokens["folder"])
        self.admin, self.user = (Api(self.url, tokens[name]) for name in ("admin_token", "user_token"))
        self.browser = browser
        self._pages: dict[tuple[Api, bool], tuple[Page, Watch]] = {}

    @contextmanager
    def page(self, person: Api, *, size: ViewportSize = DESK, theme: Theme = "light", scripts: bool = True) -> Iterator[tuple[Page, Watch]]:
        """The page of `admin` or `user`, who has signed in: one for all tests, since making a page takes longer than going to one."""
        page, watch = self._page(person, scripts)
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=theme)
        try:
            yield page, watch
        finally:
            page.unroute_all()
            page.goto(EMPTY_PAGE)
            watch.faults.clear()

    def ask(self, name: str, **changes: Any) -> str:
        """The id of a GPR that the user makes: two nodes for an hour, if nothing else is said."""
        body = {"name": name, "slice": "vision", "shape": "H100-80GB", "nodes": 2, "duration_s": 3600, **changes}
        return str(self.user.post("/gprs/", body)["id"])

    def gpr(self, gpr_id: str) -> Any:
        return self.user.get(f"/gprs/{gpr_id}/")

    def ask_four(self) -> dict[str, str]:
        """Ids by name. A workspace runs one at a time: `runs` runs, `first` and `second` wait, `long` needs approval."""
        ids = {name: self.ask(name) for name in ("runs", "first", "second")}
        ids["long"] = self.ask("long", duration_s=8 * 86_400)
        wait_for("ACTIVE", lambda: self.gpr(ids["runs"])["state"] == "ACTIVE", within_s=START_S)
        return ids

    def close(self) -> None:
        self.admin.close()
        self.user.close()

    def _page(self, person: Api, scripts: bool) -> tuple[Page, Watch]:
        key = (person, scripts)
        if key not in self._pages:
            self._pages[key] = page, _ = new_page(new_profile(self.browser, self.url, scripts=scripts), self.url)
            sign_in(page, person.token)
        return self._pages[key]
