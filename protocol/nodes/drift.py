"""Changes that somebody else made to EGS objects."""

from __future__ import annotations

from typing import Annotated

import msgspec

DRIFTS_MAX = 100  # in one message
DRIFT_AGAIN_S = 60.0  # an object that is changed again and again is reported this often


class Drift(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    what: Annotated[str, msgspec.Meta(max_length=300)]  # the object, for people: "node gpu-7"
    detail: Annotated[str, msgspec.Meta(max_length=300)]  # the change, as a sentence
    node: Annotated[str, msgspec.Meta(max_length=253)] = ""  # name of the node, if the object is on one
    is_repaired: bool = False  # False: left as it is, by the hub's policy or because the agent may not write it
    is_foreign: bool = False  # the object is not of EGS, and works against one that is
    is_added: bool = False  # somebody added the object beside those of EGS
