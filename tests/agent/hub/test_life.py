"""The agent asks now and then for the lives of GPRs, and hands the hub's last answer to the cluster."""

from __future__ import annotations

import msgspec

from protocol.agents.listings import set_digest
from protocol.tenancy.life_marks import LifeMark
from tests.agent.stage import Stage
from worker_agent.hub.link import LIFE_EVERY_S

MARK = LifeMark(id="1", gpr_id="gpr-1", gpr_name="train", slice="red", at_s=0.0, state="QUEUED")


def test_the_list_is_wanted_now_and_then_and_not_sent_again() -> None:
    stage = Stage()
    first = stage.core.sync_request(0.0)
    assert first.request.have_life == ""
    assert stage.core.sync_request(0.0).request.have_life is None

    digest = set_digest([MARK])
    stage.core.on_reply(first, msgspec.structs.replace(stage.reply(), life=(MARK,), life_digest=digest))
    stage.advance(LIFE_EVERY_S)

    assert stage.core.sync_request(0.0).request.have_life == digest
