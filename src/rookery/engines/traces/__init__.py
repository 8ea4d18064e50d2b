"""The port `kernel.tracing.Tracer`: where the spans of requests go. `open` picks the engine by its address."""

from __future__ import annotations

import re

from rookery.kernel.errors import WrongSettings
from rookery.kernel.tracing import Tracer

NONE = "none"

_ADDRESS = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


def open(address: str) -> Tracer | None:  # noqa: A001 - what every folder of engines calls it
    """
    Return the tracer that sends to *address*; None for `none`: then nothing is traced, and OpenTelemetry not loaded.

    Args:
        address: `none`, or that of an OTLP receiver over HTTP, such as http://127.0.0.1:4318. Nothing is sent to it yet.

    Raises:
        WrongSettings: It is no such address, or the extra is not installed.
    """
    if address == NONE:
        return None
    if _ADDRESS.fullmatch(address) is None:
        raise WrongSettings("ROOKERY_TRACES: use none, or the address of an OTLP receiver over HTTP, such as http://127.0.0.1:4318")
    try:
        from rookery.engines.traces.otlp import OtlpTracer
    except ImportError as error:
        raise WrongSettings("ROOKERY_TRACES is set, but OpenTelemetry is not installed: pip install 'rookery[traces]'") from error
    return OtlpTracer(address)
