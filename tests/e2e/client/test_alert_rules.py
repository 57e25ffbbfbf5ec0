"""Rules of alerts that a member makes from the terminal, by name, and as a manifest."""

from __future__ import annotations

from tests.e2e.client.hub import Egs

HOT = ("Hot in vision", "--signal", "temperature_c", "--level", "80")


def test_a_member_makes_changes_and_deletes_a_rule_of_the_workspace(egs: Egs) -> None:
    assert "There is no such rule" not in egs.run("alert-rule", "list")
    assert "There is no such rule" in egs.run("alert-rule", "list", "-n", "vision")
    assert "temperature_c" in egs.run("alert-rule", "create", *HOT, "--dry-run")
    egs.run("alert-rule", "show", HOT[0], code=5)

    assert "vision" in egs.run("alert-rule", "create", *HOT, "--hold", "2m", "--severe-level", "90")
    assert "warning" in egs.run("alert-rule", "list", "-n", "vision")
    told = egs.run("alert-rule", "edit", HOT[0], "--level", "85", "--off")
    assert "level: 80.0 -> 85.0" in told
    assert "but is off" in told
    assert egs.run("alert-rule", "show", HOT[0], "-o", "jsonpath={.hold_s}").strip() == "120"

    text = egs.run("get", "alertrules", "-n", "vision", "-o", "yaml")
    assert "enabled: false" in text
    (egs.home / "rule.yaml").write_text(text.replace("enabled: false", "enabled: true"))
    assert "changed" in egs.run("apply", "-f", "rule.yaml")
    egs.run("alert-rule", "delete", HOT[0], "--yes")
    assert "created" in egs.run("apply", "-f", "rule.yaml")
    egs.run("delete", "-f", "rule.yaml", "--yes")


def test_a_rule_that_is_not_right_is_refused_with_what_there_is(egs: Egs) -> None:
    assert "memory_temperature_c" in egs.run("alert-rule", "create", "x", "--signal", "heat", "--level", "1", code=2)
    assert "clear_level" in egs.run("alert-rule", "create", *HOT, "--clear-level", "90", code=6)
    egs.run("alert-rule", "edit", HOT[0], code=2)
