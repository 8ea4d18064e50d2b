"""Use as CSV over HTTP: written while it is read, so that a month of calls needs no more memory than a page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence

from starlette.responses import Response, StreamingResponse

from rookery.access import csv_export

_ROWS_PER_CHUNK = 2_000
_MEDIA_TYPE = "text/csv; charset=utf-8"


def csv_response(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a sheet to be saved under that name."""
    return Response(
        csv_export.csv_header(columns) + csv_export.csv_lines(rows, columns), headers=_headers(file_name), media_type=_MEDIA_TYPE
    )


def stream_csv_response(rows: AsyncIterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a sheet that is written while it is read."""

    async def pieces() -> AsyncGenerator[str]:
        yield csv_export.csv_header(columns)
        waiting: list[Mapping[str, object]] = []
        async for row in rows:
            waiting.append(row)
            if len(waiting) >= _ROWS_PER_CHUNK:
                yield csv_export.csv_lines(waiting, columns)
                waiting = []
        yield csv_export.csv_lines(waiting, columns)

    return StreamingResponse(pieces(), headers=_headers(file_name), media_type=_MEDIA_TYPE)


def _headers(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
