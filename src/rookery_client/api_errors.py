"""The error of a response."""

from __future__ import annotations

from collections.abc import Mapping

from rookery_client.client_errors import ApiError, get_status_class
from rookery_client.generated.errors import CLASSES


def build_error(status: int, body: Mapping[str, object], *, request_id: str | None, retry_after_s: float | None) -> ApiError:
    """Return the error of a response: of the class of its code, or that of its status if the code is new."""
    code = str(body["error"])
    error_class = CLASSES.get(code) or get_status_class(status)
    detail = {name: value for name, value in body.items() if name not in {"error", "message"}}
    message = str(body.get("message") or code)
    return error_class(message, status=status, code=code, detail=detail, request_id=request_id, retry_after_s=retry_after_s)
