"""Defines bounded numbers and strings. Times (`_s`) are Unix seconds by the hub's clock unless a field says otherwise."""

from __future__ import annotations

from typing import Annotated

import msgspec

MOMENT_MAX_S = 253_402_300_000.0  # the year 9999
NUMBER_MAX = 2**53 - 1  # the largest integer that every JSON parser reads exactly
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Word = Annotated[str, msgspec.Meta(max_length=63, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Moment = Annotated[float, msgspec.Meta(ge=0, le=MOMENT_MAX_S)]
NodeName = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")]
