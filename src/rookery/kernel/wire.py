"""The base of everything on the wire: what all bodies, queries and answers have in common (D-10, D-13, D-16)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from rookery.kernel.clock import iso, parse_iso


def _moment(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        msg = "must be an ISO 8601 time such as 2026-11-21T09:30:00Z"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns ValueError alone into a field's error
    try:
        return parse_iso(value)
    except ValueError as error:
        msg = "must be an ISO 8601 time such as 2026-11-21T09:30:00Z"
        raise ValueError(msg) from error


Moment = Annotated[datetime, BeforeValidator(_moment), PlainSerializer(iso, return_type=str, when_used="json")]
"""ISO 8601 in, a missing zone being UTC; ISO 8601 with Z and six decimals out."""


class Body(BaseModel):
    """A JSON body: no unknown field, no silent conversion, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Query(BaseModel):
    """The query of an address: texts are read as what is asked for; no unknown name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Answer(BaseModel):
    """What we send; built from our own values, so nothing is checked twice."""

    model_config = ConfigDict(frozen=True)
