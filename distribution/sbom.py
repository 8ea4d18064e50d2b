"""
Add components to a bill of materials that no package manager lists: the model in the wheel, and the viewers of the API documentation.

`make sbom` calls it with the CycloneDX document that cyclonedx-py wrote of an environment with exactly the locked packages.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import cast

from rookery.engines.embedders import minilm, model_files

ROOT = Path(__file__).resolve().parent.parent
VIEWERS = ROOT / "src" / "rookery" / "reference" / "static" / "vendored" / "vendored.json"

Component = dict[str, object]


def describe_model() -> Component:
    """Return the component of the embedding model."""
    return {
        "type": "machine-learning-model",
        "bom-ref": "model:all-MiniLM-L6-v2",
        "name": "sentence-transformers/all-MiniLM-L6-v2",
        "description": f"Embedding model with {minilm.DIMENSION} dimensions; the wheel carries it with weights of 8-bit integers.",
        "licenses": [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}],
        "hashes": [{"alg": "SHA-256", "content": model_files.WEIGHTS_SHA256}],
        "properties": [{"name": "rookery:carried-by", "value": f"{model_files.DISTRIBUTION}=={model_files.VERSION}"}],
    }


def describe_viewers() -> list[Component]:
    """Return a component for each JavaScript package inside rookery/reference/static/vendored."""
    packages = cast("list[dict[str, object]]", json.loads(VIEWERS.read_text(encoding="utf-8"))["packages"])
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{package['package']}@{package['version']}".replace("/@", "/%40"),
            "purl": f"pkg:npm/{package['package']}@{package['version']}".replace("/@", "/%40"),
            "name": package["package"],
            "version": package["version"],
            "licenses": [{"license": {"id": package["licence"], "acknowledgement": "declared"}}],
        }
        for package in packages
    ]


def main() -> None:
    """Read the document, add the components, write it in place and print a summary."""
    parser = argparse.ArgumentParser(description="Add the model and the viewers to a CycloneDX document.")
    parser.add_argument("document", type=Path)
    path = cast("Path", parser.parse_args().document)
    document = cast("dict[str, list[Component]]", json.loads(path.read_text(encoding="utf-8")))
    components = [*document["components"], describe_model(), *describe_viewers()]
    document["components"] = sorted(components, key=lambda component: str(component["bom-ref"]))
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    without = sorted(str(component["name"]) for component in document["components"] if not component.get("licenses"))
    print(f"{path.name}: {len(document['components'])} components; without a declared licence: {', '.join(without) or 'none'}")


if __name__ == "__main__":
    main()
