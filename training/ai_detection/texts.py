"""The texts of the training: their registers, and windows of them of equal length for both classes."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from rookery.scoring.plain_text import extract_plain_text

BASE_GENERATORS = frozenset(
    """
    gpt2-xl opt-2.7b gpt-neo-2.7B gpt-j-6B gpt-neox-20b davinci Codellama-7b GBLM-llama2-7b Llemma-7b Sheared-llama1.3b
    Sheared-llama1.3b-pruned Sheared-llama2.7b Sheared-llama2.7b-pruned Sparse-llama2-7b Wanda-llama2-7b llama-2-7b-hf
    llama-2-finance-7b Sheared-llama1.3b-sharegpt Sheared-llama2.7b-sharegpt fusellm-7b Wizardmath-7b
    """.split()
)
"""Models without instruction training, or small ones that were pruned or merged. Their texts count less: few of them are in use."""

MIXED_DOMAINS = ("HewlettStudentEssay_GPTsimplify_88",)
"""Domains that are left out: these essays were written by people, and simplified by a model."""

_MIN_WORDS = 50
_WINDOW_WORDS = (60, 250)
_WORDS_PER_WINDOW = 150
_MAX_WINDOWS = {0: 3, 1: 2}
_MAX_PER_SOURCE = {("abstracts", "csabstruct", 0): 700}
_MAX_AI_PER_SOURCE = 1_300
_MAX_BASE_PER_SOURCE = 400


@dataclass(frozen=True, slots=True)
class Sample:
    """
    A window of a text.

    Attributes:
        group: Source, and register for human texts; the humans of each group get the same mean score.
        is_base: Whether its generator is one of `BASE_GENERATORS`.
    """

    text: str
    words: int
    label: int
    source: str
    register: str
    group: str
    generator: str
    is_base: bool
    document: str


def read_samples(path: Path, *, seed: int = 5, share: float = 1.0) -> list[Sample]:
    """Return the windows of the texts in *path*, in an order that depends on *seed* only."""
    samples = list(_iter_samples(path, share))
    random.Random(seed).shuffle(samples)
    counts = Counter[tuple[str, str, int, bool]]()
    chosen = list[Sample]()
    for sample in samples:
        key = (sample.register, sample.source, sample.label, sample.is_base)
        limit = _MAX_PER_SOURCE.get(key[:3], 10**9)
        if sample.label:
            limit = _MAX_BASE_PER_SOURCE if sample.is_base else _MAX_AI_PER_SOURCE
        if counts[key] < limit:
            counts[key] += 1
            chosen.append(sample)
    return chosen


def find_register(source: str, domain: str) -> str:
    """Return the register of a text: the kind of text, over all sources."""
    if domain == "xsum":
        return "news"
    if domain == "writing":
        return "stories"
    if domain == "squad":
        return "encyclopedia"
    if source == "csabstruct" or domain.startswith("CS224N"):
        return "abstracts"
    if source == "outfox" or domain.startswith(("College", "Hewlett")):
        return "essays"
    return {"rex": "exam answers", "zippy": "mixed (zippy)"}.get(source, domain)


def _iter_samples(path: Path, share: float) -> Iterator[Sample]:
    starts = set[tuple[int, int]]()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            if row["domain"] in MIXED_DOMAINS or crc32(row["document"].encode()) % 1000 >= 1000 * share:
                continue
            words = extract_plain_text(_remove_title(row["text"])).text.split()
            start = crc32(" ".join(words[:40]).encode())
            if len(words) < _MIN_WORDS or (start, row["label"]) in starts:
                continue  # the same text stands under several generators
            starts.add((start, row["label"]))
            yield from _cut_windows(row, number, words)


def _cut_windows(row: dict[str, object], number: int, words: list[str]) -> Iterator[Sample]:
    source, domain, generator, document = (str(row[key]) for key in ("source", "domain", "generator", "document"))
    label = 1 if row["label"] else 0
    choice = random.Random(crc32(f"{source}{document}{generator}{number}".encode()))
    register = find_register(source, domain)
    for _ in range(max(1, min(_MAX_WINDOWS[label], len(words) // _WORDS_PER_WINDOW))):
        length = min(len(words), choice.randint(*_WINDOW_WORDS))
        first = choice.randint(0, len(words) - length)
        yield Sample(
            text=" ".join(words[first : first + length]),
            words=length,
            label=label,
            source=source,
            register=register,
            group=f"{source} {domain.split('_')[0]}" if source in ("liang", "csabstruct") else register,
            generator=generator,
            is_base=generator in BASE_GENERATORS,
            document=document,
        )


def _remove_title(text: str) -> str:
    """Remove the form of one source: "Title: … Abstract: …"."""
    if text.startswith("Title:") and "Abstract:" in text[:400]:
        return text[text.index("Abstract:") + len("Abstract:") :]
    return text
