"""`rookery worker`: jobs, webhooks and periodic tasks in a process of their own."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import structlog
import typer
import uvloop

from rookery.cli.platform import build_prepared
from rookery.kernel import process_resources
from rookery.terminal.context import get_settings
from rookery.wiring import Rookery

_log = structlog.stdlib.get_logger("rookery.worker")


def worker(context: typer.Context) -> None:
    """Run jobs, webhooks and periodic tasks without HTTP, beside servers on the same data. Several workers may run."""
    settings = replace(get_settings(context), metrics_port=None)  # the port belongs to the server
    rookery = build_prepared(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_worker(rookery))


async def _run_worker(rookery: Rookery) -> None:
    is_ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, is_ended.set)
    try:
        await rookery.require_matching_dimension()
        await rookery.start_worker()
        process_resources.expect_requests()
        typer.echo(f"Rookery works on {rookery.settings.data_dir}; Ctrl-C stops it.")
        await is_ended.wait()
        _log.info("stopping")
    finally:
        await rookery.close()
    _log.info("stopped")
