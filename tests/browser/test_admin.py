"""An administrator at work in a real browser, beside a user whose page is open: on the demo, with its simulated fleet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support.chromium import Watch, axe_violations
from tests.browser.support.demo import Demo
from tests.browser.support.people import end
from tests.e2e.processes import START_S, wait_for

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

QUEUE, INVENTORY, CLUSTERS, QUOTAS = "/admin/queue/", "/admin/inventory/", "/admin/clusters/", "/admin/quotas/"


@pytest.fixture(scope="module")
def four(demo: Demo) -> dict[str, str]:
    return demo.ask_four()


class Visitor:
    def __init__(self, page: Page, watch: Watch) -> None:
        self.page, self.watch = page, watch

    def says(self, selector: str, text: str) -> None:
        expect(self.page.locator(selector)).to_contain_text(text)

    def open_question(self, name: str, act: str) -> None:
        """Opens it by the row of the queue and its inspector."""
        self.page.goto(QUEUE)
        self.page.get_by_role("link", name=name, exact=True).first.click()
        self.says("#inspector", name)
        self.page.locator("#inspector").get_by_role("link", name=act).click()
        expect(self.page.get_by_role("dialog")).to_be_visible()

    def decide(self, verb: str) -> None:
        dialog = self.page.get_by_role("dialog")
        assert axe_violations(self.page) == []
        dialog.get_by_role("button", name=verb).click()
        expect(dialog).to_be_hidden()


@pytest.fixture
def both(demo: Demo) -> Iterator[tuple[Visitor, Visitor]]:
    """The administrator and the user each have a browser profile."""
    with demo.page(demo.admin) as admins, demo.page(demo.user) as users:
        admin, user = Visitor(*admins), Visitor(*users)
        yield admin, user
        assert admin.watch.faults + user.watch.faults == []


def test_a_raised_priority_is_previewed_and_moves_the_users_open_page(
    both: tuple[Visitor, Visitor], demo: Demo, four: dict[str, str]
) -> None:
    admin, user = both
    assert demo.gpr(four["second"])["position"] == 2
    user.page.goto(f"/gprs/{four['second']}/")
    user.says("main", "Place 2")

    admin.open_question("second", "Set priority")
    admin.page.locator("[name=priority]").fill("190")
    admin.says("#ask-effects", "It is planned as number 2. It still starts")
    assert demo.gpr(four["second"])["priority"] == 101
    admin.decide("Set priority")

    admin.says("#toasts", "second has priority 190")
    admin.says("#inspector", "priority 190")
    user.says("main", "went from 101 to 190")  # its place is that of its planned start, which the promise of the first one keeps


@pytest.mark.soak  # quickly: the priority above, and tests/pages/admin/test_acts.py
def test_an_approval_puts_it_into_the_queue(both: tuple[Visitor, Visitor], demo: Demo, four: dict[str, str]) -> None:
    admin, user = both
    user.page.goto(f"/gprs/{four['long']}/")
    user.says("main", "Needs approval")

    admin.open_question("long", "Approve")
    admin.says("#ask-effects", "It joins the queue and is promised a start by")
    admin.decide("Approve long")

    admin.says("#toasts", "long is in the queue")
    user.says("main", "Queued")


def test_an_eviction_needs_a_reason_and_the_user_sees_it(both: tuple[Visitor, Visitor], demo: Demo, four: dict[str, str]) -> None:
    admin, user = both
    user.page.goto(f"/gprs/{four['runs']}/")

    admin.open_question("runs", "Evict")
    admin.says("#ask-effects", "It waits again")
    admin.page.get_by_label("Reason").fill("  ")
    admin.page.get_by_role("dialog").get_by_role("button", name="Evict runs").click()
    admin.says("dialog[open]", "Not sent")
    admin.page.get_by_label("Reason").fill("a drill")
    admin.decide("Evict runs")

    user.says("main", "a drill")
    wait_for("its return", lambda: demo.gpr(four["runs"])["state"] != "EXITING", within_s=START_S)


@pytest.mark.soak  # quickly: the eviction above, and tests/pages/admin/test_fleet.py
def test_a_node_is_set_aside_and_used_again(both: tuple[Visitor, Visitor]) -> None:
    admin, _ = both
    admin.page.goto(f"{INVENTORY}?shape=A100-80GB")
    admin.page.locator("tr[id^=node-] a").first.click()
    main = admin.page.locator("main")  # the navigation has a page of this name
    main.get_by_role("link", name="Set aside").click()
    admin.page.get_by_label("Reason").fill("firmware")
    admin.decide("Set aside")

    admin.says("#node-body", "firmware")
    admin.says("#node-head", "Set aside")
    admin.page.get_by_role("link", name="Use again").click()
    admin.decide("Use again")
    expect(main.get_by_role("link", name="Set aside")).to_be_visible()


def test_the_page_of_a_gpr_and_the_count_of_the_queue_follow_what_happens(
    both: tuple[Visitor, Visitor], demo: Demo, four: dict[str, str]
) -> None:
    admin, _ = both
    made = demo.ask("short-lived")
    admin.page.goto(f"{QUEUE}{made}/")
    admin.says("#inspect-head", "Queued")

    end(demo.admin, made)

    admin.says("#inspect-head", "Canceled")
    admin.says("#inspect-body", "not in the queue")
    counts_what_waits(admin, demo)
    admin.page.goto(INVENTORY)
    again = demo.ask("short-lived")
    counts_what_waits(admin, demo)
    end(demo.admin, again)
    counts_what_waits(admin, demo)


def counts_what_waits(admin: Visitor, demo: Demo) -> None:
    """Both are asked anew: the planner may start others meanwhile."""

    def is_equal() -> bool:
        waiting = len(demo.admin.get("/gprs/?state=QUEUED&page_size=500")["results"])
        return admin.page.locator("#nav-queue").inner_text().split()[0] == str(waiting)

    wait_for("the count of the queue", is_equal, within_s=START_S)


def test_a_join_token_is_shown_in_a_dialog(both: tuple[Visitor, Visitor]) -> None:
    admin, _ = both
    admin.page.goto(CLUSTERS)
    admin.page.get_by_label("Name").fill("cassini")
    admin.page.get_by_role("button", name="Add cluster").click()
    admin.page.get_by_role("link", name="Join token for cassini").click()
    admin.page.get_by_role("button", name="Issue join token").click()

    admin.says("dialog[open]", "egsb_")
    assert axe_violations(admin.page) == []
    admin.page.get_by_role("button", name="Close").click()


@pytest.mark.soak  # quickly: tests/pages/shared/test_quotas.py
def test_a_quota_that_is_given_shows_as_a_bar_in_the_workspace(both: tuple[Visitor, Visitor]) -> None:
    admin, user = both
    admin.page.goto(QUOTAS)
    admin.says("#quotas", "A100-80GB")  # those that the demo begins with
    admin.page.get_by_role("link", name="Give a quota").click()
    dialog = admin.page.get_by_role("dialog")
    dialog.get_by_label("For").select_option(label="vision")
    dialog.get_by_label("Shape").select_option("H100-80GB")
    dialog.get_by_label("Guaranteed GPUs").fill("4")
    dialog.get_by_role("button", name="Give quota").click()
    admin.says("dialog[open]", "Project perception is guaranteed 0 GPUs of H100-80GB; 0 are left.")
    dialog.get_by_label("Guaranteed GPUs").fill("0")
    dialog.get_by_label("At most").fill("60")
    admin.decide("Give quota")

    admin.says("#toasts", "vision H100-80GB: 0 GPUs guaranteed, 60 at most.")
    admin.says("#quotas", "60")
    user.page.goto("/workspaces/vision/")
    user.says("#workspace-quotas", "60 at most")
    assert axe_violations(user.page) == []


def test_it_all_works_without_scripts(demo: Demo, four: dict[str, str]) -> None:
    waits = demo.ask("waits")
    with demo.page(demo.admin, scripts=False) as (page, watch):
        admin = Visitor(page, watch)
        page.goto(f"{QUEUE}?q=waits")
        page.get_by_role("link", name="waits", exact=True).click()
        page.get_by_role("link", name="Set priority").click()
        page.locator("[name=priority]").fill("42")
        page.get_by_role("button", name="Show what changes").click()
        admin.says("#ask-effects", "It is planned as number")
        page.get_by_role("button", name="Set priority").click()
        admin.says("main", "priority 42")
    end(demo.admin, waits)
