"""The training of AI detection runs from data to a model that the package loads. Its texts are words in a random order."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from rookery.engines import detection
from rookery.engines.detection.features import FUNCTION_WORDS
from tests.deadlines import HANG_S

pytestmark = pytest.mark.embedded_store

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "training" / "bin" / "python"

COMMON = sorted(FUNCTION_WORDS)
HUMAN = "river boat quay gulls engine coat wall brother evening stone".split()
MODEL = "landscape foster crucial seamless robust pivotal journey tapestry leverage vibrant".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of two sources and two registers, whose classes differ in some of their words."""
    path = tmp_path_factory.mktemp("training") / "data.jsonl.gz"
    choice = random.Random(1)
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        for source, domain in (
            ("evobench", "xsum"),
            ("fdg", "xsum"),
            ("fdg", "writing"),
            ("evobench", "writing"),
            ("csabstruct", "abstract"),
        ):
            for number in range(90):
                for label in (0, 1):
                    words = [
                        choice.choice(COMMON if choice.random() < 0.8 else (HUMAN, MODEL)[label]) for _ in range(choice.randint(60, 240))
                    ]
                    text = " ".join(f"{word}." if choice.random() < 0.06 else word for word in words)
                    row = {"text": text, "label": label, "source": source, "domain": domain, "document": f"{source}{domain}{number}"}
                    lines.write(json.dumps({**row, "generator": "a model" if label else "human"}) + "\n")
    return path


def run(*arguments: str | Path) -> str:
    """Run the program of the training and return its output."""
    if not PYTHON.exists():
        pytest.skip("the environment of the training is not installed; `make train-scoring` installs it")
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    command = [PYTHON, "-m", "training.ai_detection", *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=HANG_S, check=True).stdout


def test_the_training_is_deterministic_and_its_model_is_usable(data: Path, tmp_path: Path) -> None:
    """Two runs write the same files, which the package loads, and the card has figures in place of every mark."""
    for name in ("one", "two"):
        run("train", data, "--out", tmp_path / name, "--card", tmp_path / f"{name}.md")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()

    card = (tmp_path / "one.md").read_text(encoding="utf-8")
    assert card == (tmp_path / "two.md").read_text(encoding="utf-8")
    assert "<!--" not in card

    detector = detection.open(tmp_path / "one")
    choice = random.Random(2)
    human, model = (
        [" ".join(choice.choice(COMMON if choice.random() < 0.8 else words) for _ in range(150)) for _ in range(10)]
        for words in (HUMAN, MODEL)
    )
    scores = [[result.score or 0.0 for result in detector.detect_many(texts)] for texts in (human, model)]
    assert max(scores[0]) < min(scores[1])

    table = run("evaluate", data, "--out", tmp_path / "one")
    assert "| all | human | 450 |" in table
