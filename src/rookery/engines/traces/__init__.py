"""Engines of `kernel.tracing.Tracer`, which exports spans of requests. `open` selects one by its address."""

from __future__ import annotations

import re

from rookery.kernel.errors import WrongSettings
from rookery.kernel.tracing import Tracer

NONE = "none"

_ADDRESS = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


def open(address: str) -> Tracer | None:  # noqa: A001 - each engine folder has an `open`
    """
    Return the tracer that exports to *address*. None for `none`: tracing is off and OpenTelemetry is not imported.

    Args:
        address: `none`, or the address of an OTLP receiver over HTTP, such as http://127.0.0.1:4318. It is not contacted yet.

    Raises:
        WrongSettings: The address is invalid, or the extra is not installed.
    """
    if address == NONE:
        return None
    if _ADDRESS.fullmatch(address) is None:
        raise WrongSettings(
            "ROOKERY_TRACES: invalid address; use none, or the address of an OTLP receiver over HTTP, such as http://127.0.0.1:4318"
        )
    try:
        from rookery.engines.traces.otlp import OtlpTracer
    except ImportError as error:
        raise WrongSettings("ROOKERY_TRACES is set, but OpenTelemetry is not installed: pip install 'rookery[traces]'") from error
    return OtlpTracer(address)
