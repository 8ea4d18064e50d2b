"""Validate a CycloneDX document against its schema. Runs in the environment of distribution/sbom.lock, not in Rookery's."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text(encoding="utf-8"))
if problem is not None:
    sys.exit(f"{sys.argv[1]} is not valid CycloneDX 1.6: {problem}")
