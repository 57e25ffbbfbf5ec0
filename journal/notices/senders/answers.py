from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from core.outbound import NotSent

OK: Final = range(200, 300)
REDIRECTS: Final = range(300, 400)
TOO_MANY: Final = 429
RETRY_AFTER_MAX_S: Final = 6 * 3600


class TooMany(NotSent):
    """The receiver says when to try again."""

    def __init__(self, after_s: int) -> None:
        super().__init__("The receiver had too many messages.")
        self.after_s = after_s


def check_status(status: int, headers: Mapping[str, str]) -> None:
    """Raises NotSent for anything but success. Nothing of the answer but its number is told."""
    if status in OK:
        return
    after = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    if status == TOO_MANY and after.isascii() and after.isdigit():
        raise TooMany(min(int(after[:9]), RETRY_AFTER_MAX_S))
    if status in REDIRECTS:
        raise NotSent(f"The receiver answered {status}. EGS follows no redirects.")
    raise NotSent(f"The receiver answered {status}.")
