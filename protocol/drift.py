"""Drift: changes that somebody else made to objects of ours in a cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec

DRIFTS_MAX = 100  # in one message
DRIFT_AGAIN_S = 60.0  # what is changed again and again is told so often


class Drift(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something of ours in the cluster that somebody else changed. `what`: the object, for people, as "node gpu-7". `detail`: a
    sentence: what was found. `node`: its name, where it is about one. Not `is_repaired`: it is left as it is, by the hub's policy or for
    lack of the right. `is_foreign`: it is not of ours, and works against what is. `is_added`: somebody put it beside what is ours.
    """

    what: Annotated[str, msgspec.Meta(max_length=300)]
    detail: Annotated[str, msgspec.Meta(max_length=300)]
    node: Annotated[str, msgspec.Meta(max_length=253)] = ""
    is_repaired: bool = False
    is_foreign: bool = False
    is_added: bool = False
