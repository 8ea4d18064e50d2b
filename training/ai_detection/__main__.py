"""
Train the AI-detection model, or evaluate it.

    python -m training.ai_detection train DATA.jsonl.gz [--share 0.1] [--out FOLDER] [--card FILE]
    python -m training.ai_detection evaluate DATA.jsonl.gz

`train` writes the weights and, from models that did not see the test texts, the model card. `evaluate` runs the shipped model on any file
of the same form: lines with `text`, `label` (0 human, 1 AI), `source`, `domain` and `generator`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported; sums in one thread have one order

import argparse
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np

from rookery.engines import detection
from rookery.engines.detection.model import SETTINGS_FILE, WEIGHTS_FILE
from training.ai_detection import calibration, card, evaluation
from training.ai_detection.fitting import Dataset, Recipe, Weights, fit
from training.ai_detection.texts import read_samples

CARD = Path(__file__).resolve().parents[2] / "docs" / "reference" / "ai-detection.md"
NAME = "rookery-ai-detection"
VERSION = "1"
FAMILIES = {"Claude": "claude", "GPT-4o": "gpt-4o", "Gemini": "gemini", "Llama 3": "llama-3"}


def main() -> None:
    """Run the command of the arguments."""
    parser = argparse.ArgumentParser(prog="python -m training.ai_detection", description=__doc__.splitlines()[1])
    parser.add_argument("command", choices=("train", "evaluate"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="share of the documents to use, for a trial")
    parser.add_argument("--out", type=Path, default=detection.MODEL_FOLDER, help="folder for the model")
    parser.add_argument("--card", type=Path, default=CARD, help="file for the model card")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        parser.error(f"{arguments.data}: no such file; give the gzipped JSON lines of the data")
    if arguments.command == "train":
        train(arguments.data, share=arguments.share, out=arguments.out, card_path=arguments.card)
    else:
        print(evaluate(arguments.data, arguments.out))


def train(path: Path, *, share: float, out: Path, card_path: Path) -> None:
    """Write the model and its card."""
    recipe = Recipe()
    data = Dataset(read_samples(path, share=share))
    print(f"{len(data)} windows of {len(np.unique(data.document))} documents", flush=True)
    by_source = evaluation.score_left_out(data, evaluation.split_sources(data), recipe, with_baselines=True)
    by_register = evaluation.score_left_out(data, evaluation.split_registers(data), recipe, with_baselines=True)
    by_document = evaluation.score_left_out(data, evaluation.split_documents(data), recipe, with_baselines=True)
    families = list(evaluation.score_families(data, FAMILIES, recipe))
    settings = calibrate(data, by_source, by_document)
    everything = np.ones(len(data), dtype=np.bool_)
    weights = write_model(fit(data, everything, recipe), settings, out)
    digest = hashlib.sha256(weights.tobytes()).hexdigest()
    results = card.Results(data, by_source, by_register, by_document, families, settings, recipe, digest)
    card_path.write_text(card.write(results), encoding="utf-8")
    print(f"wrote {out / WEIGHTS_FILE} and {card_path}")


def calibrate(data: Dataset, by_source: evaluation.LeftOut, by_document: evaluation.LeftOut) -> dict[str, object]:
    """Return the settings of the model, except for those of its weights."""
    suspect, strict = calibration.find_window_thresholds(data, by_source.model, by_document.model)
    return {
        "name": NAME,
        "version": VERSION,
        "bands": calibration.calibrate(data, by_source.model, by_document.model),
        "window_suspect": round(suspect, 5),
        "window_strict": round(strict, 5),
        "style": calibration.describe_style(data, data.words >= evaluation.MIN_SCORED_WORDS),
    }


def write_model(weights: Weights, settings: dict[str, object], out: Path) -> np.ndarray:
    """Write the weights as 8-bit integers, and the settings. Return the integers."""
    part_limit, pattern_limit = evaluation.measure_weights(weights)
    scales = {"part_scale": part_limit / 127, "pattern_scale": pattern_limit / 127, "bias": weights.bias}
    integers = np.concatenate(
        [np.rint(weights.parts / scales["part_scale"]), np.rint(weights.patterns / scales["pattern_scale"])],
    ).astype(np.int8)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / WEIGHTS_FILE, integers)
    (out / SETTINGS_FILE).write_text(json.dumps({**settings, **scales}, indent=1) + "\n", encoding="utf-8")
    return integers


def evaluate(path: Path, model_folder: Path) -> str:
    """Return tables of the shipped model on the texts of *path*, as Markdown."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    detector = detection.open(model_folder)
    results = detector.detect_many([row["text"] for row in rows])
    return card.write_evaluation(rows, results)


if __name__ == "__main__":
    main()
