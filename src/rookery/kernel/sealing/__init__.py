"""
Sealing at rest: what must be read again, but not by whoever gets hold of the record store alone (D-07).

A sealed text names the key that opens it and is bound to its place: moved to another row, or to another workspace, it does
not open. Which key seals is told by the record store itself, so that all processes change keys at the same moment.
"""

from rookery.kernel.sealing.columns import SealedColumn
from rookery.kernel.sealing.keys import Place, SecretKey, Unreadable
from rookery.kernel.sealing.rotation import Inspection, Rotated, Rotation
from rookery.kernel.sealing.sealer import Sealer
from rookery.kernel.sealing.source import KeySource

__all__ = ["Inspection", "KeySource", "Place", "Rotated", "Rotation", "SealedColumn", "Sealer", "SecretKey", "Unreadable"]
