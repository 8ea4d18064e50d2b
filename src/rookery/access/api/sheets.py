"""Use as CSV over HTTP: written while it is read, so that a month of calls needs no more memory than a page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence

from starlette.responses import Response, StreamingResponse

from rookery.access import sheets

_BATCH = 2_000
_TYPE = "text/csv; charset=utf-8"


def answer(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, name: str) -> Response:
    """Return a sheet to be saved under that name."""
    return Response(sheets.head(columns) + sheets.lines(rows, columns), headers=_headers(name), media_type=_TYPE)


def stream(rows: AsyncIterable[Mapping[str, object]], columns: Sequence[str], *, name: str) -> Response:
    """Return a sheet that is written while it is read."""

    async def pieces() -> AsyncGenerator[str]:
        yield sheets.head(columns)
        waiting: list[Mapping[str, object]] = []
        async for row in rows:
            waiting.append(row)
            if len(waiting) >= _BATCH:
                yield sheets.lines(waiting, columns)
                waiting = []
        yield sheets.lines(waiting, columns)

    return StreamingResponse(pieces(), headers=_headers(name), media_type=_TYPE)


def _headers(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
