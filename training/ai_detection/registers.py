"""
Count the windows of human texts of this machine that the shipped AI-detection model labels `ai`.

    python -m training.ai_detection.registers [--windows 400]

The texts are those of Debian packages: licences, manuals of Perl, and the READMEs and news in /usr/share/doc. The training has none of
these registers. Which texts there are depends on the packages that are installed. None is stored or printed.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rookery.engines import detection
from rookery.scoring.detection import DetectionResult

REGISTERS = {
    "licences": ("/usr/share/common-licenses", re.compile(r"."), 40),
    "manuals of Perl": ("/usr/share/perl", re.compile(r"\.(?:pod|pm)$"), 4),
    "READMEs and news": ("/usr/share/doc", re.compile(r"^(?:README|NEWS|FAQ)|\.txt(?:\.gz)?$"), 4),
}
"""The folder of each register, the names of its files, and the maximum windows of a file."""

MAX_FILES = 2_000
MAX_FILE_BYTES = 400_000
MIN_PARAGRAPH_WORDS = 25
MIN_LETTER_SHARE = 0.9
WINDOW_WORDS = (80, 220)
KEY_WORDS = 12
RATE = 0.01


def main() -> None:
    """Print a table with one row per register."""
    parser = argparse.ArgumentParser(prog="python -m training.ai_detection.registers", description=__doc__)
    parser.add_argument("--windows", type=int, default=400, help="maximum windows of a register")
    windows = int(parser.parse_args().windows)
    detector = detection.open()
    print("| Register | Windows with a score | Labelled `ai` | Above the 1 % threshold | Labelled `human` |\n|---|---|---|---|---|")
    for name, (folder, pattern, most) in REGISTERS.items():
        texts = list(iter_windows(Path(folder), pattern, most))
        random.Random(0).shuffle(texts)
        results = [result for result in detector.detect_many(texts[:windows]) if result.score is not None]
        if results:
            print(f"| {name} | {len(results)} | {' | '.join(describe(results))} |")


def describe(results: list[DetectionResult]) -> Iterator[str]:
    """Yield the shares of the table."""
    labels = Counter(result.label for result in results)
    above = sum((result.expected_false_positive_rate or 0) <= RATE for result in results)
    for count in (labels["ai"], above, labels["human"]):
        yield f"{100 * count / len(results):.1f} %"


def iter_windows(folder: Path, pattern: re.Pattern[str], most: int) -> Iterator[str]:
    """Yield windows of the paragraphs of each file, at most *most* of one file, and none twice."""
    files = sorted({path.resolve() for path in folder.rglob("*") if path.is_file() and pattern.search(path.name)})
    seen = set[str]()
    lengths = random.Random(0)
    for path in files[:MAX_FILES]:
        words, length, found = list[str](), lengths.randint(*WINDOW_WORDS), 0
        for paragraph in iter_paragraphs(read(path)):
            words += paragraph
            if len(words) >= length and found < most:
                key = " ".join(words[:KEY_WORDS])
                if key not in seen:
                    seen.add(key)
                    found += 1
                    yield " ".join(words[:length])
                words, length = list[str](), lengths.randint(*WINDOW_WORDS)


def iter_paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the words of paragraphs of prose."""
    for paragraph in re.split(r"\n\s*\n", text):
        words = paragraph.split()
        letters = sum(char.isalpha() or char.isspace() for char in paragraph)
        if len(words) >= MIN_PARAGRAPH_WORDS and words[0][0].isalpha() and letters > MIN_LETTER_SHARE * len(paragraph):
            yield words


def read(path: Path) -> str:
    """Return the start of a file; nothing if it is no UTF-8 text."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError, EOFError):
        return ""


if __name__ == "__main__":
    main()
