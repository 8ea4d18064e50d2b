"""The services that generations and batches use."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.content.active_calls import ActiveCalls
from rookery.content.budgets import Budgets
from rookery.content.execution import GenerationRunner
from rookery.content.requests import Generators
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationServices:
    """The parts that create, run and cancel generations."""

    db: Database
    runner: GenerationRunner
    calls: ActiveCalls
    budgets: Budgets
    generators: Generators
    jobs: JobQueue
    clock: Clock
    ids: IdFactory
