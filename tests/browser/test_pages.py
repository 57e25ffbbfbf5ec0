"""Every page of a demo is accessible and fits, logs no error, and its keys work; without scripts it promises none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.support.chromium import DESK, LOOKS, PHONE, Theme, axe_violations
from tests.browser.support.demo import Demo
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

SHELL = {"?": "Keys and help", "/": "Jump to a page or workspace", "Ctrl K": "Jump to a page or workspace", "Esc": "Close dialog"}
ADMIN = {
    **SHELL,
    "g q": "Queue",
    "g a": "Approvals",
    "g s": "Schedule",
    "g p": "Promises",
    "g l": "Workloads",
    "g h": "GPUs",
    "g u": "Usage",
}
USER = {**SHELL, "g w": "Workspaces", "g l": "Workloads", "g h": "GPUs", "g p": "Promises", "g u": "Usage"}
OF_WORKSPACE = {**USER, "g r": "GPU requests", "g j": "Jobs", "c": "Create GPU request"}
ROWS = {"j": "Next row", "k": "Row before", "Enter": "Open the row"}
FORM = {"Ctrl Enter": "Send the form"}
ZOOM_IN, ZOOM_OUT, MOVE = {"+": "Zoom in"}, {"-": "Zoom out"}, {"[": "Earlier", "]": "Later"}

# Addresses and their keys. {…} are ids of `four` and of a node.
ADMIN_PAGES = {
    "/admin/queue/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/queue/?state=late": {**ADMIN, "f": "Filter"},
    "/admin/queue/{first}/": {**ADMIN, "p": "Set priority", "m": "Move", "d": "Reject"},
    "/admin/queue/{first}/priority/?priority=290": {**ADMIN, **FORM},
    "/admin/queue/{first}/move/": {**ADMIN, **FORM},
    "/admin/inventory/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/inventory/{node}/": ADMIN,
    "/admin/inventory/{node}/cordon/": {**ADMIN, **FORM},
    "/admin/gpus/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/workloads/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/workloads/{workload}/": {**ADMIN, **ROWS},
    "/admin/pods/": {**ADMIN, **ROWS, "f": "Filter"},
    "/admin/gpus/{gpu}/": ADMIN,
    "/admin/usage/": ADMIN,
    "/admin/alerts/": {**ADMIN, "f": "Filter"},
    "/admin/alerts/{alert}/": {**ADMIN, **ROWS},
    "/admin/alert-rules/": {**ADMIN, **ROWS},
    "/admin/alert-rules/new/": {**ADMIN, **FORM},
    "/admin/remediation/": {**ADMIN, **ROWS},
    "/admin/clusters/": {**ADMIN, **ROWS, **FORM},
    "/admin/maintenance/announce/": {**ADMIN, **FORM},
    "/admin/quotas/": {**ADMIN, **ROWS},
    "/admin/quotas/create/": {**ADMIN, **FORM},
    "/admin/templates/": ADMIN,
    "/admin/templates/new/": {**ADMIN, **FORM},
    "/admin/evictions/": ADMIN,
    "/admin/promises/": ADMIN,
    "/admin/defragmentation/": ADMIN,
    "/admin/defragmentation/booking/": ADMIN,
    "/admin/schedule/": {**ADMIN, **MOVE, **ZOOM_IN, **ZOOM_OUT},
    "/admin/schedule/?as=table&span=7d": {**ADMIN, **ROWS, **MOVE, **ZOOM_IN},
}
USER_PAGES = {
    "/": {**USER, **ROWS},
    "/gpus/": {**USER, **ROWS, "f": "Filter"},
    "/workloads/": {**USER, **ROWS, "f": "Filter"},
    "/workloads/{workload}/": {**USER, **ROWS},
    "/pods/": {**USER, **ROWS, "f": "Filter"},
    "/usage/?by=gpr": USER,
    "/alerts/": {**USER, "f": "Filter"},
    "/alert-rules/new/": {**USER, **FORM},
    "/notices/": {**USER, **ROWS},
    "/account/notices/": {**USER, **FORM},
    "/workspaces/vision/": {**OF_WORKSPACE, **ROWS, "f": "Filter"},
    "/workspaces/vision/?q=nothing-like-it": {**OF_WORKSPACE, "f": "Filter"},
    "/workspaces/speech/": {**USER, "g r": "GPU requests", "g j": "Jobs", "f": "Filter"},
    "/workspaces/vision/create/": {**OF_WORKSPACE, **FORM},
    "/workspaces/vision/policy/": OF_WORKSPACE,
    "/workspaces/vision/people/": {**OF_WORKSPACE, **ROWS},
    "/workspaces/vision/service-accounts/{program}/": {**OF_WORKSPACE, **ROWS},
    "/workspaces/vision/service-accounts/{program}/tokens/new/": {**OF_WORKSPACE, **FORM},
    "/workspaces/vision/jobs/": {**OF_WORKSPACE, **ROWS},
    "/workspaces/vision/jobs/?state=failed": OF_WORKSPACE,
    "/jobs/{job}/": OF_WORKSPACE,
    "/workspaces/vision/bookings/new/": {**OF_WORKSPACE, **FORM},
    "/gprs/{runs}/": {**OF_WORKSPACE, "x": "Extend", "r": "Release early"},
    "/gprs/{first}/": {**OF_WORKSPACE, "e": "Edit", "d": "Cancel request"},
    "/gprs/{long}/": {**OF_WORKSPACE, "e": "Edit", "d": "Cancel request"},
    "/gprs/{first}/edit/": {**OF_WORKSPACE, **FORM},
    "/gprs/{first}/delete/": {**OF_WORKSPACE, **FORM},
}
PAGES = {**ADMIN_PAGES, **USER_PAGES}
# The same pages when other things can be done there.
OTHER_KEYS = {
    "/admin/queue/{long}/": {**ADMIN, "a": "Approve", "p": "Set priority", "d": "Reject"},
    "/admin/queue/{runs}/": {**ADMIN, "e": "Evict"},
    "/admin/schedule/?span=7d": {**ADMIN, **MOVE, **ZOOM_IN},
    "/admin/schedule/?span=6h": {**ADMIN, **MOVE, **ZOOM_OUT},
}
# `make test` looks at these pages on a phone: a list, a drawing, a form and an object. A soak looks at all pages.
ON_PHONE = {"/admin/alerts/{alert}/", "/admin/queue/", "/admin/schedule/?as=table&span=7d", "/workspaces/vision/create/", "/gprs/{runs}/"}


def looked_at() -> Iterator[ParameterSet]:
    for look in LOOKS:
        for path in PAGES:
            is_quick = look.id == "desk-light" or path in ON_PHONE
            yield pytest.param(path, *look.values, id=f"{look.id} {path}", marks=look.marks if is_quick else pytest.mark.soak)


# What a finger must hit: links inside a sentence and inputs whose label is the target are let off, as WCAG 2.5.8 does.
SMALL_TARGETS = """() => [...document.querySelectorAll("a, button, input, select, summary")]
    .filter((each) => each.checkVisibility() && each.closest("main, header") && !each.closest("p, li"))
    .filter((each) => !each.matches("[type=hidden], [type=radio], [type=checkbox]") && each.getBoundingClientRect().height < 24)
    .map((each) => each.outerHTML.slice(0, 120))"""
CUT_OFF = """() => [
    ...[...document.querySelectorAll("input:not([type=hidden]), select, .bar button")]
        .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth),
    ...[...document.querySelectorAll(".facts dt, .facts dd, .facts small")]
        .filter((each) => each.clientWidth && each.scrollWidth > each.clientWidth + 1),
].map((each) => each.outerHTML.slice(0, 120))"""
LAPTOP: ViewportSize = {"width": 1024, "height": 768}
# Headings of columns that have no room left.
VANISHED = """() => [...document.querySelectorAll(".dense thead th")]
    .filter((th) => th.innerText.trim() && th.offsetParent && th.clientWidth < 30)
    .map((th) => th.innerText)"""
CLIPPED = """() => [...document.querySelectorAll("main :is(td, th, dt, dd, .btn)")]
    .filter((cell) => cell.checkVisibility() && cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).overflowX !== "visible")
    .map((cell) => cell.innerText)"""
OF_FIGURES = {"/admin/queue/{first}/priority/?priority=290", "/admin/clusters/", "/admin/schedule/?as=table&span=7d"}
# A browser sends a form, and opens a popover, by itself.
DEAD = "button:visible:not([type=submit]):not([popovertarget])"


@pytest.fixture(scope="module")
def ids(demo: Demo) -> dict[str, str]:
    first = {kind: demo.admin.get(f"/{kind}s/")["results"][0]["id"] for kind in ("node", "gpu")}
    asked = demo.ask_four()
    job = {
        "name": "job",
        "slice": "vision",
        "shape": "H100-80GB",
        "nodes": 2,
        "duration_s": 3600,
        "image": "registry.example/team/train:1.0",
    }
    asked["job"] = demo.user.post("/jobs/", job)["id"]

    program = demo.user.post("/slices/vision/service-accounts/", {"name": "nightly", "role": "editor"})
    demo.user.post(f"/slices/vision/service-accounts/{program['id']}/tokens/", {"name": "pipeline", "scopes": ["gpr:write"]})
    asked["program"] = program["id"]

    def workload() -> str:
        found = demo.user.get("/workloads/?view=running")["results"]
        return str(found[0]["id"]) if found else ""

    return {**asked, **first, "workload": wait_for("a workload", workload, within_s=60), "alert": an_alert(demo)}


def an_alert(demo: Demo) -> str:
    rule = {"name": "Above freezing", "signal": "temperature_c", "kind": "threshold", "level": 1, "severity": "warning"}
    demo.admin.post("/alert-rules/", {**rule, "runbook": "Nothing: it is a test."})

    def firing() -> str:
        found = demo.admin.get("/alerts/?state=FIRING")["results"]
        return str(found[0]["id"]) if found else ""

    return wait_for("an alert", firing, within_s=60)


def press(page: Page, keys: str) -> None:
    """A page of a form begins in its first field, where letters are typed: it is left before."""
    page.evaluate("document.activeElement.matches('input, textarea, select') && document.activeElement.blur()")
    for key in [keys.replace("Ctrl ", "Control+")] if keys.startswith("Ctrl") else keys.split():
        page.keyboard.press({"Esc": "Escape", "Control+K": "Control+k"}.get(key, key))


def listed(page: Page) -> dict[str, str]:
    press(page, "?")
    expect(page.locator("[data-key-list] dt").first).to_be_visible()
    keys, says = (page.locator(f"[data-key-list] {tag}").all_inner_texts() for tag in ("dt", "dd"))
    press(page, "Esc")
    return dict(zip(keys, says, strict=True))


@pytest.mark.rotates  # each day: the other pages
@pytest.mark.parametrize(("path", "size", "theme"), list(looked_at()))
def test_a_page_is_accessible_quiet_whole_and_lists_its_keys(
    path: str, size: ViewportSize, theme: Theme, demo: Demo, ids: dict[str, str]
) -> None:
    """The filter stands whole on the screen, facts and figures are read to the end; on a phone a finger hits every target."""
    person = demo.admin if path in ADMIN_PAGES else demo.user
    with demo.page(person, size=size, theme=theme) as (page, watch):
        page.goto(path.format(**ids))
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator(".skeleton")).to_have_count(0)
        if size == DESK:
            page.set_viewport_size(LAPTOP)
            assert page.evaluate(VANISHED) == []
            page.set_viewport_size(size)
            # Where earlier tests left something to list, there are rows.
            rows = ROWS if page.locator("[data-rows] tbody tr[tabindex]").count() else {}
            assert listed(page) == {**PAGES[path], **rows}
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(CUT_OFF) == []
        if path in OF_FIGURES:
            assert page.evaluate(CLIPPED) == []
        if size == PHONE and path in USER_PAGES:
            assert page.evaluate(SMALL_TARGETS) == []
        assert watch.faults == []


def test_on_a_phone_each_figure_of_a_cluster_says_what_it_is(demo: Demo) -> None:
    with demo.page(demo.admin, size=PHONE) as (page, _):
        page.goto("/admin/clusters/")
        row = page.locator("tr[id^=cluster-]").first

        shown = row.locator("td[data-label]").evaluate_all("cells => cells.map((cell) => getComputedStyle(cell, '::before').content)")
        assert shown == ['"Heard"', '"Clock"', '"Generation"', '"Usable nodes"', '"GPUs held"']


def test_the_list_of_keys_is_of_what_can_be_done_now(demo: Demo, ids: dict[str, str]) -> None:
    with demo.page(demo.admin) as (page, _):
        for path, keys in OTHER_KEYS.items():
            page.goto(path.format(**ids))
            assert listed(page) == keys, path


def test_keys_walk_a_list_open_its_rows_and_find_its_filter(demo: Demo, ids: dict[str, str]) -> None:
    with demo.page(demo.admin) as (page, watch):
        page.goto("/admin/queue/")
        rows = page.locator("[data-rows] tbody tr[tabindex]")
        for keys, place in (("j", 0), ("j", 1), ("k", 0)):
            press(page, keys)
            expect(rows.nth(place)).to_be_focused()
        opened = page.locator("[data-rows] tbody tr:focus a").first.inner_text()  # the queue may get another order at any time
        press(page, "Enter")
        expect(page.locator("#inspector")).to_contain_text(opened)
        press(page, "j")
        rested_on = page.locator("[data-rows] tbody tr:focus a").first.inner_text()
        expect(page.locator("#inspector")).to_contain_text(rested_on)
        press(page, "f")
        expect(page.locator("[name=q]")).to_be_focused()
        assert watch.faults == []


@pytest.mark.parametrize("keys", ["/", "Ctrl K"])
def test_keys_open_the_palette_and_escape_closes_it(keys: str, demo: Demo) -> None:
    with demo.page(demo.user) as (page, _):
        page.goto("/")
        press(page, keys)
        expect(page.locator("#palette")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#palette")).to_be_hidden()


def test_keys_lead_from_page_to_page(demo: Demo, ids: dict[str, str]) -> None:
    ways = [
        (demo.admin, "/admin/queue/", {"g s": "/admin/schedule/", "g p": "/admin/promises/", "g q": "/admin/queue/"}),
        (demo.user, "/gprs/{first}/", {"e": "/gprs/{first}/edit/", "g w": "/", "g p": "/promises/"}),
        (demo.user, "/workspaces/vision/", {"c": "/workspaces/vision/create/", "g r": "/workspaces/vision/"}),
    ]
    for person, start, way in ways:
        with demo.page(person) as (page, watch):
            page.goto(start.format(**ids))
            for keys, end in way.items():
                press(page, keys)
                page.wait_for_url(demo.url + end.format(**ids))
            assert watch.faults == []


def test_keys_move_and_zoom_the_schedule(demo: Demo) -> None:
    with demo.page(demo.admin) as (page, watch):
        page.goto("/admin/schedule/")
        for keys in "+-][":
            before = page.url
            press(page, keys)
            page.wait_for_url(lambda url, before=before: url != before)
        assert watch.faults == []


def test_keys_ask_before_an_act(demo: Demo, ids: dict[str, str]) -> None:
    questions = [
        (demo.admin, "/admin/queue/{first}/", {"p": "Set priority", "m": "Move", "d": "Reject"}),
        (demo.admin, "/admin/queue/{long}/", {"a": "Approve"}),
        (demo.admin, "/admin/queue/{runs}/", {"e": "Evict"}),
        (demo.user, "/gprs/{first}/", {"d": "Cancel"}),
        (demo.user, "/gprs/{runs}/", {"x": "Extend", "r": "Release"}),
    ]
    for person, path, asked in questions:
        with demo.page(person) as (page, watch):
            page.goto(path.format(**ids))
            for keys, question in asked.items():
                press(page, keys)
                expect(page.get_by_role("dialog")).to_contain_text(question)
                page.keyboard.press("Escape")
                expect(page.get_by_role("dialog")).to_be_hidden()
            assert watch.faults == []


def test_a_key_sends_the_form(demo: Demo, ids: dict[str, str]) -> None:
    with demo.page(demo.admin) as (page, watch):
        page.route("**/priority/", lambda route: route.fulfill(status=204) if route.request.method == "POST" else route.continue_())
        page.goto(f"/admin/queue/{ids['first']}/priority/")
        with page.expect_request(lambda request: request.method == "POST"):
            press(page, "Ctrl Enter")
        assert watch.faults == []


WITHOUT_SCRIPT = {
    "user": ["/", "/workspaces/vision/", "/workspaces/vision/create/", "/gprs/{runs}/", "/gprs/{first}/", "/gprs/{first}/edit/"],
    "admin": [
        "/admin/queue/",
        "/admin/queue/{long}/",
        "/admin/queue/{first}/priority/",
        "/admin/defragmentation/",
        "/admin/defragmentation/booking/",
        "/admin/inventory/",
        "/admin/clusters/",
        "/admin/schedule/",
    ],
}


@pytest.mark.rotates  # each day: test_it_all_works_without_scripts, test_admin.py
@pytest.mark.parametrize("who", WITHOUT_SCRIPT)
def test_without_scripts_no_button_is_dead_and_no_key_is_promised(who: str, demo: Demo, ids: dict[str, str]) -> None:
    with demo.page(demo.admin if who == "admin" else demo.user, scripts=False) as (page, _):
        for path in WITHOUT_SCRIPT[who]:
            page.goto(path.format(**ids))
            for size in (PHONE, DESK):
                page.set_viewport_size(size)
                assert page.locator(DEAD).all_inner_texts() == [], path
                expect(page.locator("kbd:visible")).to_have_count(0)
                expect(page.locator("#clock")).to_be_hidden()


@pytest.mark.rotates  # each day: the join token, test_admin.py
@pytest.mark.parametrize(("scripts", "count"), [(False, 0), (True, 2)], ids=["without", "with"])
def test_a_join_token_has_copy_buttons_only_where_they_work(scripts: bool, count: int, demo: Demo) -> None:
    with demo.page(demo.admin, scripts=scripts) as (page, _):
        page.goto("/admin/clusters/")
        page.get_by_role("link", name="Join token for aurora").click()
        page.get_by_role("button", name="Issue join token").click()

        expect(page.locator("#join-token")).to_contain_text("egsb_")
        expect(page.get_by_role("button", name="Copy")).to_have_count(count)


def test_with_scripts_the_buttons_are_there(demo: Demo) -> None:
    with demo.page(demo.user) as (page, _):
        page.goto("/workspaces/vision/create/")

        for name in ("One node more", "2 h", "Copy", "Switch between light and dark", "Keys and help"):
            expect(page.get_by_role("button", name=name).first).to_be_visible()
        expect(page.get_by_role("button", name="Show wait time")).to_be_hidden()


def test_an_act_without_scripts_is_confirmed_on_the_page_it_leads_to(demo: Demo) -> None:
    with demo.page(demo.admin, scripts=False) as (page, _):
        page.goto("/admin/clusters/")
        page.get_by_label("Name").fill("huygens")
        page.get_by_role("button", name="Add cluster").click()

        expect(page.locator("#toasts")).to_contain_text("Cluster huygens is added")
        page.reload()
        expect(page.locator("#toasts")).not_to_contain_text("Cluster huygens is added")
