"""Writes the sync half of the SDK from the async one, token by token."""

from __future__ import annotations

import io
import tokenize

WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Generator",
    "AsyncExitStack": "ExitStack",
    "StopAsyncIteration": "StopIteration",
    "aclose": "close",
    "aiter_lines": "iter_lines",
    "asyncio": "time",
    "asynccontextmanager": "contextmanager",
    "aio": "sync",
    "async_gpus": "gpus",
}
GONE = {"async", "await"}


def sync_of(text: str) -> str:
    """`async` and `await` go, names that begin with Async lose it, and others are as in WORDS."""
    lines = text.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type != tokenize.NAME:
            continue
        row, begin, end = token.start[0] - 1, token.start[1], token.end[1]
        line = lines[row]
        if token.string in GONE:
            lines[row] = line[:begin] + line[end:].removeprefix(" ")
        else:
            word = WORDS.get(token.string, token.string.removeprefix("Async"))
            lines[row] = line[:begin] + word + line[end:]
    return "".join(lines)
