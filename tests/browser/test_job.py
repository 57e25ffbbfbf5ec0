"""A person files a job by its form in a real browser: sees the start, the objects and the command, mends a manifest, and files once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.support.chromium import axe_violations
from tests.browser.support.demo import Demo
from tests.browser.support.people import end_all

pytestmark = pytest.mark.sqlite_only  # the demo is the embedded profile

MANIFEST = "apiVersion: v1\nkind: Service\nmetadata: {name: own}\nspec:\n  type: NodePort\n"


def test_a_job_is_filed_once_by_its_form(demo: Demo, tmp_path: Path) -> None:
    with demo.page(demo.user) as (page, watch):
        page.goto("/workspaces/vision/jobs/")
        page.get_by_role("link", name="Run a job").click()
        expect(page.locator("#offers")).to_contain_text("soonest now")
        file = tmp_path / "job.yaml"
        file.write_text(MANIFEST)
        page.get_by_label("Own manifest").check()
        page.get_by_label("Or a file instead").set_input_files(file)
        expect(page.locator("#id_manifest_error")).to_contain_text("Line 5, spec.type")
        expect(page.get_by_label("Image", exact=True)).to_be_hidden()

        page.get_by_label("Job", exact=True).check()
        page.get_by_label("Name", exact=True).fill("by-form")
        page.get_by_label("Image", exact=True).fill("registry.example/train:1")
        page.get_by_label("Command", exact=True).fill("torchrun 'my train.py'")
        expect(page.locator("#as-command")).to_contain_text("-- torchrun 'my train.py'")
        page.get_by_text("What EGS makes").click()
        expect(page.locator("#as-objects")).to_contain_text("image: registry.example/train:1")
        assert axe_violations(page) == []
        page.get_by_role("button", name=re.compile("Run on 8 GPUs")).click()

        page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}/"))
        expect(page.locator("#toasts")).to_contain_text("by-form is filed")
        made = page.url
        page.go_back()
        page.get_by_role("button", name=re.compile("Run on")).click()
        expect(page.get_by_role("alert").first).to_contain_text("You have sent this form already")
        page.goto("/workspaces/vision/jobs/")
        expect(page.get_by_role("link", name="by-form")).to_have_count(1)
        assert made.endswith(str(page.get_by_role("link", name="by-form").get_attribute("href")))
        assert [fault for fault in watch.faults if "409" not in fault] == []
    end_all(demo.admin)
