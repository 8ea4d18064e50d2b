"""The command group `brain`: maintenance of the shared memory."""

from __future__ import annotations

import typer

from rookery.memory.commands import maintenance, recall_log, training

app = typer.Typer(no_args_is_help=True)

app.command("reindex")(maintenance.reindex)
app.command("elastic-setup")(maintenance.elastic_setup)
app.command("clean")(maintenance.clean)
app.command("prune")(maintenance.prune)
app.command("consolidate")(maintenance.consolidate)
app.command("backfill-org")(maintenance.backfill_org)
app.command("forget")(maintenance.forget)
app.command("recalls")(recall_log.recalls)
app.command("recall-log")(recall_log.recall_log)
app.command("training")(training.training)
app.command("export-training")(training.export_training)
