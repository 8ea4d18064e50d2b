"""The vector index in Qdrant: the contract on Qdrant's engine behind its REST interface, large workspaces, and failures."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from pathlib import Path

import pytest

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py has no wheel for this platform")

from rookery.engines.vectors.qdrant import QdrantIndex
from rookery.engines.vectors.qdrant_connection import parse_address
from rookery.memory.ports import VectorIndex
from tests.deadlines import HANG_S
from tests.engines.engine_contracts import HowTested
from tests.engines.vector_contract import VectorContract
from tests.qdrant_stand_in import QdrantStandIn, run_qdrant_stand_in

pytestmark = pytest.mark.external_service


@pytest.fixture(scope="module")
def server() -> Generator[QdrantStandIn]:
    """Run the stand-in."""
    with run_qdrant_stand_in() as stand_in:
        yield stand_in


class TestQdrant(VectorContract):
    """The contract. Each folder has collections of its own."""

    engine = "`qdrant:`"
    lacks = QdrantIndex.lacks
    tested_on = HowTested.STAND_IN
    tested_with = "Qdrant's engine as a library (qdrant-edge 0.9) behind its REST interface"

    server: QdrantStandIn

    @pytest.fixture(autouse=True)
    def use_server(self, server: QdrantStandIn) -> None:
        """Use the server of the module."""
        type(self).server = server

    def open_engine(self, folder: Path, *, model: str, dimension: int) -> VectorIndex:
        """Open the collections of *folder*."""
        address = self.server.address(f"test_{zlib.crc32(bytes(folder)):x}")
        return QdrantIndex(parse_address(address), model=model, dimension=dimension, query_timeout_s=HANG_S, write_timeout_s=HANG_S)
