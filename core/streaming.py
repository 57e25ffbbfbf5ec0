from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


class StreamedText(StreamingHttpResponse):
    """Sends a file piece by piece. Django itself would gather all pieces in memory, since they come from synchronous code."""

    def __init__(self, pieces: Iterator[str], *, content_type: str, filename: str) -> None:
        headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
        super().__init__(pieces, content_type=content_type, headers=headers)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: Iterator[bytes] = iter(self.streaming_content)  # type: ignore[arg-type]  # ours are synchronous
        while (piece := await sync_to_async(partial(next, pieces, None))()) is not None:
            yield piece
