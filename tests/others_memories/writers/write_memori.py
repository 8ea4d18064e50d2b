"""Memori's storage driver stores the facts, as its cloud or a model would give them. It has no deletion of one fact."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

folder = Path(sys.argv[1])
os.environ["HOME"] = str(folder)

from facts import FACTS, NEW  # noqa: E402
from memori import Memori  # noqa: E402

storage = Memori(conn=lambda: sqlite3.connect(folder / "memori.db")).config.storage
storage.build()
driver = storage.driver
for user, text in [*((user, text) for user, _, text, _ in FACTS), ("kim", NEW), ("kim", NEW)]:
    driver.entity_fact.create(driver.entity.create(user), [text], [[0.5] * 8])
    driver.entity_fact.conn.commit()
