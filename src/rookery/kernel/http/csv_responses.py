"""Responses that are a CSV file for download."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rookery.kernel.csv_lines import csv_header, csv_lines
from rookery.kernel.http.accept_header import prefers
from rookery.kernel.http.responses import JSON_MEDIA_TYPE

CSV_MEDIA_TYPE = "text/csv"

_ROWS_PER_CHUNK = 2_000
_CONTENT_TYPE = f"{CSV_MEDIA_TYPE}; charset=utf-8"


def wants_csv(request: Request, parameter: str | None) -> bool:
    """Return whether a request asks for CSV: by its parameter `format`, which is *parameter*, or else by its Accept header."""
    if parameter is not None:
        return parameter == "csv"
    return prefers(request.headers.get("accept"), CSV_MEDIA_TYPE, over=JSON_MEDIA_TYPE.decode())


def csv_response(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a CSV file for download."""
    return Response(csv_header(columns) + csv_lines(rows, columns), headers=_build_headers(file_name), media_type=_CONTENT_TYPE)


def stream_csv_response(rows: AsyncIterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a CSV file for download, written while its rows are read, so that memory stays bounded."""

    async def chunks() -> AsyncGenerator[str]:
        yield csv_header(columns)
        buffered: list[Mapping[str, object]] = []
        async for row in rows:
            buffered.append(row)
            if len(buffered) >= _ROWS_PER_CHUNK:
                yield csv_lines(buffered, columns)
                buffered = []
        yield csv_lines(buffered, columns)

    return StreamingResponse(chunks(), headers=_build_headers(file_name), media_type=_CONTENT_TYPE)


def _build_headers(file_name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{file_name}"'}
