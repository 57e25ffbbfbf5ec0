"""Keys on real pages: the list of keys names exactly those that work there, and each of them does something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from tests.browser.chromium import visitor
from tests.browser.demo import four_gprs, gpr_named, running_demo
from tests.browser.people import sign_in
from tests.e2e.processes import Api

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

SHELL = {"?": "Keys and help", "/": "Jump to a page or workspace", "Ctrl K": "Jump to a page or workspace", "Esc": "Close dialog"}
ADMIN = {**SHELL, "g q": "Queue", "g s": "Schedule", "g p": "Promises"}
USER = {**SHELL, "g w": "Workspaces", "g p": "Promises"}
OF_WORKSPACE = {**USER, "g r": "GPU requests", "c": "Create GPU request"}
ROWS = {"j": "Next row", "k": "Row before", "Enter": "Open the row"}
FORM = {"Ctrl Enter": "Send the form"}
ZOOM_IN, ZOOM_OUT, MOVE = {"+": "Zoom in"}, {"-": "Zoom out"}, {"[": "Earlier", "]": "Later"}

ADMIN_PAGES = {
    "/admin/queue/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/queue/{first}/": {**ADMIN, "p": "Set priority", "m": "Move", "d": "Reject"},
    "/admin/queue/{long}/": {**ADMIN, "a": "Approve", "p": "Set priority", "d": "Reject"},
    "/admin/queue/{runs}/": {**ADMIN, "e": "Evict"},
    "/admin/queue/{first}/priority/": {**ADMIN, **FORM},
    "/admin/inventory/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/clusters/": {**ADMIN, **ROWS, **FORM},
    "/admin/schedule/": {**ADMIN, **MOVE, **ZOOM_IN, **ZOOM_OUT},
    "/admin/schedule/?span=7d": {**ADMIN, **MOVE, **ZOOM_IN},
    "/admin/schedule/?span=6h": {**ADMIN, **MOVE, **ZOOM_OUT},
    "/admin/schedule/?as=table": {**ADMIN, **ROWS, **MOVE, **ZOOM_IN, **ZOOM_OUT},
}
USER_PAGES = {
    "/": {**USER, **ROWS},
    "/workspaces/vision/": {**OF_WORKSPACE, **ROWS, "f": "Filter"},
    "/workspaces/vision/create/": {**OF_WORKSPACE, **FORM},
    "/gprs/{first}/": {**OF_WORKSPACE, "e": "Edit", "d": "Cancel request"},
    "/gprs/{runs}/": {**OF_WORKSPACE, "x": "Extend", "r": "Release early"},
}
# What has to be pressed before, so that a key has something to do.
BEFORE = {"k": ["j", "j"], "Enter": ["j"], "Esc": ["/"]}

# What a person notices: another page, something that opens or closes or is busy, the focus somewhere else, another request beside the list.
STATE = """() => JSON.stringify([
    location.href, window.isMarked ?? false, document.querySelectorAll(":popover-open, dialog[open], button[aria-busy]").length,
    document.activeElement?.outerHTML.slice(0, 200) ?? null, document.querySelector("#inspector")?.innerText ?? null,
])"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_demo(tmp_path_factory.mktemp("demo")) as tokens:
        yield tokens


@pytest.fixture(scope="module")
def ids(demo: dict[str, str]) -> dict[str, str]:
    api = Api(demo["url"], demo["user_token"])
    four_gprs(api)
    found = {name: str(gpr_named(api, name)["id"]) for name in ("runs", "first", "second", "long")}
    api.close()
    return found


def press(page: Page, keys: str) -> None:
    for key in keys.split() if not keys.startswith("Ctrl") else [keys.replace("Ctrl ", "Control+")]:
        page.keyboard.press({"Esc": "Escape", "Control+K": "Control+k"}.get(key, key))


def leave_field(page: Page) -> None:
    """A page of a form begins in its first field, where letters are typed."""
    page.evaluate("document.activeElement.matches('input, textarea, select') && document.activeElement.blur()")


def listed(page: Page) -> dict[str, str]:
    leave_field(page)
    page.keyboard.press("?")
    expect(page.locator("[data-key-list] dt").first).to_be_visible()
    keys, says = (page.locator(f"[data-key-list] {tag}").all_inner_texts() for tag in ("dt", "dd"))
    page.keyboard.press("Escape")
    return dict(zip(keys, says, strict=True))


def does_something(page: Page, path: str, keys: str) -> bool:
    """On a fresh page."""
    page.goto(path)
    leave_field(page)
    for before in BEFORE.get(keys, []):
        press(page, before)
    page.evaluate("window.isMarked = true")
    was = page.evaluate(STATE)
    press(page, keys)
    try:
        page.wait_for_function(f"was => ({STATE})() !== was", arg=was, timeout=10_000)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("path", [*ADMIN_PAGES, *USER_PAGES])
def test_the_list_names_the_keys_of_the_page_and_each_of_them_works(
    path: str, browser: Browser, demo: dict[str, str], ids: dict[str, str]
) -> None:
    is_admin, expected = path in ADMIN_PAGES, {**ADMIN_PAGES, **USER_PAGES}[path]
    address = path.format(**ids)
    with visitor(browser, demo["url"]) as (page, watch):
        sign_in(page, demo["admin_token" if is_admin else "user_token"])
        page.goto(address)

        assert listed(page) == expected
        # What is sent is held back: the next key finds everything as it was.
        page.route("**/priority/", lambda route: route.fulfill(status=204) if route.request.method == "POST" else route.continue_())
        # Those of the shell are the same everywhere: they are pressed on the first page of each portal.
        of_shell = {} if path in {"/admin/queue/", "/"} else {**ADMIN, **USER}
        assert [keys for keys in expected if keys not in of_shell and not does_something(page, address, keys)] == []
        assert watch.faults == []
