"""
Count the windows of human texts of this machine that the shipped AI-detection model labels `ai`.

    python -m training.ai_detection.registers [--windows 400] [--packages FOLDER]

The texts are those of Debian packages: licences, manuals, changelogs, and the READMEs and news in /usr/share/doc. The training has none of
these registers. Which texts there are depends on the packages that are installed. None is stored or printed.

FOLDER has further packages of Debian, each extracted into a folder of its name: `apt-get download NAME`, `dpkg-deb -x FILE FOLDER/NAME`.
"""

from __future__ import annotations

import argparse
import gzip
import html
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rookery.engines import detection
from rookery.scoring.detection import DetectionResult

REGISTERS = {
    "licences": ("/usr/share/common-licenses", re.compile(r"."), 40),
    "copyright files": ("/usr/share/doc", re.compile(r"^copyright$"), 2),
    "manuals of Perl": ("/usr/share/perl", re.compile(r"\.(?:pod|pm)$"), 4),
    "manuals of GNU": ("/usr/share/info", re.compile(r"\.gz$"), 20),
    "READMEs and news": ("/usr/share/doc", re.compile(r"^(?:README|NEWS|FAQ)|\.txt(?:\.gz)?$"), 4),
    "changelogs": ("/usr/share/doc", re.compile(r"^changelog"), 3),
}
"""The folder of each register, the names of its files, and the maximum windows of a file."""

PACKAGE_REGISTERS = {
    "political essays": ("anarchism", re.compile(r"^(?:sec|append).*\.html$"), 12),
    "policies": ("debian-policy", re.compile(r"\.html$"), 30),
    "constitutions and charters": ("doc-debian", re.compile(r"\.(?:txt|html)(?:\.gz)?$"), 30),
    "questions and answers": ("debian-faq", re.compile(r"en\.html$"), 10),
    "slang of hackers": ("dict-jargon", re.compile(r"\.dict\.dz$"), 400),
    "satirical dictionary": ("dict-devil", re.compile(r"\.dict\.dz$"), 400),
    "dictionary of 1913": ("dict-gcide", re.compile(r"\.dict\.dz$"), 400),
    "songs and poems": ("fortunes", re.compile(r"^songs-poems$"), 200),
    "help of a desktop": ("gnome-user-docs/usr/share/help/C", re.compile(r"\.page$"), 4),
    "manual of a mail server": ("exim4-doc-html", re.compile(r"\.html$"), 12),
    "manuals of statistics": ("r-doc-html", re.compile(r"\.html$"), 20),
    "manual of a database": ("postgresql-doc-15", re.compile(r"\.html$"), 3),
    "manual of Python": ("python3.11-doc", re.compile(r"\.html$"), 4),
    "documents of a kernel": ("linux-doc-6.1", re.compile(r"\.rst\.gz$"), 3),
}
"""The same of packages, relative to the folder of `--packages`."""

PARAGRAPH_ELEMENT = re.compile(r"<p\b[^>]*>(.*?)</p>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
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
    parser.add_argument("--packages", type=Path, help="folder with further packages")
    arguments = parser.parse_args()
    windows, packages = int(arguments.windows), cast("Path | None", arguments.packages)
    registers = {name: (Path(folder), pattern, most) for name, (folder, pattern, most) in REGISTERS.items()}
    if packages is not None:
        registers |= {name: (packages / folder, pattern, most) for name, (folder, pattern, most) in PACKAGE_REGISTERS.items()}
    detector = detection.open()
    print("| Register | Windows with a score | Labelled `ai` | Above the 1 % threshold | Labelled `human` |\n|---|---|---|---|---|")
    for name, (folder, pattern, most) in registers.items():
        texts = list(iter_windows(folder, pattern, most))
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
    for paragraph in split_paragraphs(text):
        words = paragraph.split()
        letters = sum(char.isalpha() or char.isspace() for char in paragraph)
        if len(words) >= MIN_PARAGRAPH_WORDS and words[0][0].isalpha() and letters > MIN_LETTER_SHARE * len(paragraph):
            yield words


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of HTML, of a file of quotations, or of plain text with lists."""
    elements = PARAGRAPH_ELEMENT.findall(text)
    if elements:
        return [html.unescape(TAG.sub("", element)) for element in elements]
    return re.split(r"\n%\n" if "\n%\n" in text else r"\n\s*\n|\n\s*[*+-] ", text)


def read(path: Path) -> str:
    """Return the start of a file; nothing if it is no UTF-8 text."""
    try:
        with gzip.open(path) if path.suffix in {".gz", ".dz"} else path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError, EOFError):
        return ""


if __name__ == "__main__":
    main()
