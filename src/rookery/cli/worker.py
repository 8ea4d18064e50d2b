"""`rookery worker`: jobs, webhooks and periodic tasks in a process of their own (D-04)."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import structlog
import typer
import uvloop

from rookery.access.commands.terminal import settings_of
from rookery.cli.platform import prepare
from rookery.kernel import garbage
from rookery.wiring import Rookery

_log = structlog.stdlib.get_logger("rookery.worker")


def worker(context: typer.Context) -> None:
    """Run jobs, webhooks and periodic tasks without serving HTTP, beside servers on the same data; several may run."""
    settings = replace(settings_of(context), metrics_port=None)  # which is the server's
    rookery = prepare(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(rookery))


async def _work(rookery: Rookery) -> None:
    is_ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, is_ended.set)
    try:
        await rookery.must_fit()
        await rookery.start_worker()
        garbage.expect_requests()
        typer.echo(f"Rookery works on {rookery.settings.data_dir}; Ctrl-C stops it.")
        await is_ended.wait()
        _log.info("stopping")
    finally:
        await rookery.close()
    _log.info("stopped")
