"""The body of a submitted form as names and values, in a bounded number."""

from __future__ import annotations

from urllib.parse import parse_qsl

from rookery.kernel.errors import ValidationFailed


def parse_form(body: bytes, *, max_fields: int) -> list[tuple[str, str]]:
    """
    Return the fields of a form in their order. Bytes that are not UTF-8 become U+FFFD.

    Raises:
        ValidationFailed: The form has more than *max_fields* fields.
    """
    try:
        return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=max_fields)
    except ValueError as error:
        raise ValidationFailed({"form": [f"has more than {max_fields:,} fields"]}) from error
