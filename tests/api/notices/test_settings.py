"""/api/v1/me/notices/: everybody sets his own."""

from __future__ import annotations

import pytest

from journal.models import NoticeSettings
from tests.api.conftest import Caller, World, faults

pytestmark = pytest.mark.django_db

DEFAULTS: dict[str, object] = {"unwanted_kinds": [], "muted_slices": [], "zone": "UTC", "quiet_from": None, "quiet_until": None}


def test_what_is_set_stays_and_the_rest_is_kept(world: World, owner: Caller, teammate: Caller) -> None:
    assert owner.get("me/notices/").json() == DEFAULTS
    owner.patch("me/notices/", {"quiet_from": "22:00", "quiet_until": "07:00", "zone": "Europe/Berlin"})
    owner.patch("me/notices/", {"unwanted_kinds": ["mark"], "muted_slices": ["vision"]})

    assert owner.get("me/notices/").json() == {
        **{"unwanted_kinds": ["mark"], "muted_slices": [str(world.slice.pk)], "zone": "Europe/Berlin"},
        **{"quiet_from": "22:00:00", "quiet_until": "07:00:00"},
    }
    assert teammate.get("me/notices/").json() == DEFAULTS


def test_nonsense_is_refused_and_a_foreign_workspace_answers_as_one_that_is_not_there(owner: Caller) -> None:
    assert faults(owner.patch("me/notices/", {"zone": "../../etc/passwd"})) == ["zone"]
    assert faults(owner.patch("me/notices/", {"quiet_from": "22:00"})) == ["quiet_until"]
    assert faults(owner.patch("me/notices/", {"quiet_from": "25:00"})) == ["quiet_from"]
    answers = [owner.patch("me/notices/", {"muted_slices": [name]}).json() for name in ("canary-slice", "no-such-slice")]
    assert answers[0] == answers[1]
    assert not NoticeSettings.objects.exclude(zone="UTC", quiet_from=None).exists()
