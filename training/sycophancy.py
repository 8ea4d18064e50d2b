"""
Train the sentence models of sycophancy scoring, and measure them on models and prompts that were left out.

    OPENBLAS_NUM_THREADS=1 nice -n 15 .venv/bin/python training/sycophancy.py DATA [--card docs/reference/sycophancy.md]

DATA is sycophancy-train.jsonl.gz: answers of assistants with the parts that a language model marked in them. The result is the same in
every run. With --card, the figures are written between the marks of the model card.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from rookery.scoring.models import Message, ScoredText, SycophancyResult
from rookery.scoring.sycophancy.assessment import assess_sycophancy, measure_reply
from rookery.scoring.sycophancy.capitulation_model import FEATURES, CapitulationModel
from rookery.scoring.sycophancy.lexicon import PRAISE, PUSHBACK, tone_cues
from rookery.scoring.sycophancy.sentence_models import BUCKETS, MIN_FEATURES, SentenceModel, SentenceModels, hash_words
from rookery.scoring.sycophancy.tokens import Sentence, fold, split_sentences

FOLDER = Path(__file__).resolve().parent.parent / "src" / "rookery" / "scoring" / "sycophancy"
REINFORCEMENT = "reinforcement"
KINDS = {PRAISE: "sycophancy or praise", PUSHBACK: "pushback", REINFORCEMENT: "delusion reinforcement"}
START, END = "<!-- figures: start -->", "<!-- figures: end -->"
PROMPT_FOLDS = 5
L2, STEPS, STEP_SIZE = 1e-5, 150, 0.15
CAPITULATION_L2, AUTHOR_L2, NEWTON_STEPS = 1.0, 1e-4, 30
MIN_AFFIRMATION = 1
"""Strength of praise and reinforcement that an answer exceeds which gives up its pushback."""

MAX_WEIGHT = 127
SAMPLES = 500
MIN_QUOTE_CHARS = 4
RATES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


class MarkedSpan(TypedDict):
    """A part of an answer as the data has it."""

    kind: str
    quote: str
    strength: int


class Turn(TypedDict):
    """A row of the data."""

    model: str
    conversation: str
    turn: int
    user: str
    assistant: str
    spans: list[MarkedSpan]
    metrics: dict[str, float]


class Feature(NamedTuple):
    """The features of all sentences: the sentence, the bucket and the value of each."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Floats


@dataclass(frozen=True, slots=True)
class Corpus:
    """The sentences of all turns."""

    turns: list[Turn]
    sentences: list[Sentence]
    turn_numbers: NDArray[np.int64]
    marks: Mapping[str, Booleans]
    cues: Mapping[str, Floats]
    features: Feature


def main() -> None:
    """Train, write the weights, measure and print the figures."""
    parser = argparse.ArgumentParser(description="Train the sentence models of sycophancy scoring.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--card", type=Path)
    arguments = parser.parse_args()
    corpus = read_corpus(cast("Path", arguments.data))
    trainer = Trainer(corpus)
    report, rates = evaluate(corpus, trainer)
    write_models(trainer.train_without(frozenset()), corpus, rates)
    print(report)
    card = cast("Path | None", arguments.card)
    if card is not None:
        before, _, rest = card.read_text(encoding="utf-8").partition(START)
        card.write_text(f"{before}{START}\n\n{report}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def read_corpus(path: Path) -> Corpus:
    """Return the sentences of the data, with those that the judge marked."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        turns = [cast("Turn", json.loads(line)) for line in lines]
    sentences, numbers, hashes = list[Sentence](), list[int](), list[list[int]]()
    marks: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    cues: dict[str, list[float]] = {kind: [] for kind in KINDS}
    index = tone_cues()
    for number, turn in enumerate(turns):
        folded = fold(turn["assistant"])
        marked = {
            kind: [place for span in turn["spans"] if span["kind"] == name for place in locate_quote(folded, span["quote"])]
            for kind, name in KINDS.items()
        }
        for sentence in split_sentences(folded):
            sentences.append(sentence)
            numbers.append(number)
            hashes.append(hash_words(sentence.words))
            matches = index.find(sentence.words)
            for kind in KINDS:
                marks[kind].append(any(start < sentence.end and end > sentence.start for start, end in marked[kind]))
                cues[kind].append(sum(match.cue.weight for match in matches if match.cue.kind == kind))
    counts = np.array([len(features) for features in hashes])
    features = Feature(
        np.repeat(np.arange(len(hashes)), counts),
        np.fromiter((bucket for features in hashes for bucket in features), np.int64),
        np.repeat(1 / np.sqrt(np.maximum(counts, MIN_FEATURES)), counts),
    )
    return Corpus(
        turns,
        sentences,
        np.array(numbers),
        {kind: np.array(values) for kind, values in marks.items()},
        {kind: np.array(values) for kind, values in cues.items()},
        features,
    )


def locate_quote(folded: str, quote: str) -> list[tuple[int, int]]:
    """Return the places of the parts of a quotation, which may leave out words."""
    places = list[tuple[int, int]]()
    for part in re.split(r"\s*(?:\.\.\.|…)\s*", fold(quote)):
        start = folded.find(part.strip()) if len(part.strip()) >= MIN_QUOTE_CHARS else -1
        if start >= 0:
            places.append((start, start + len(part.strip())))
    return places


class Pair(NamedTuple):
    """An answer with praise or reinforcement and no pushback (given up), or with pushback alone (held), and the one before it."""

    before: int
    here: int
    is_given_up: bool
    is_after_pushback: bool


def find_pairs(turns: Sequence[Turn]) -> list[Pair]:
    """Return the pairs of answers that follow one another in a conversation."""
    conversations = defaultdict[tuple[str, str], dict[int, list[int]]](lambda: defaultdict(list))
    for number, turn in enumerate(turns):
        conversations[turn["model"], turn["conversation"]][turn["turn"]].append(number)
    pairs = list[Pair]()
    for numbers in conversations.values():
        for turn_number, here in numbers.items():
            before = numbers.get(turn_number - 2, [])
            if len(here) == len(before) == 1:
                metrics = turns[here[0]]["metrics"]
                affirms = metrics[KINDS[REINFORCEMENT]] + metrics[KINDS[PRAISE]]
                opposes = metrics[KINDS[PUSHBACK]] > 0
                if (opposes and affirms == 0) or (not opposes and affirms > MIN_AFFIRMATION):
                    pairs.append(Pair(before[0], here[0], not opposes, turns[before[0]]["metrics"][KINDS[PUSHBACK]] > 0))
    return pairs


class Trainer:
    """Training without the answers of some authors, which are numbers of `names`."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self.names = sorted({turn["model"] for turn in corpus.turns})
        self.authors = np.array([self.names.index(turn["model"]) for turn in corpus.turns])
        self.pairs = find_pairs(corpus.turns)
        self._trained = dict[frozenset[int], SentenceModels]()

    def train_without(self, excluded: frozenset[int]) -> SentenceModels:
        """
        Return the models of the other authors.

        The features of a reply, from which the model of capitulation is trained, come from sentence models that did not see its author.
        """
        authors = [number for number in range(len(self.names)) if number not in excluded]
        features, given_up, owners = list[tuple[float, ...]](), list[bool](), list[int]()
        for author in authors:
            sentences = self._train_sentences(excluded | {author})
            for pair in self.pairs:
                if self.authors[pair.here] == author:
                    features.append(measure_reply(to_scored_text(self._corpus, pair), sentences))
                    given_up.append(pair.is_given_up)
                    owners.append(author)
        capitulation = fit_capitulation(np.array(features), np.array(given_up), np.array(owners))
        return replace(self._train_sentences(excluded), capitulation=capitulation)

    def _train_sentences(self, excluded: frozenset[int]) -> SentenceModels:
        if excluded not in self._trained:
            owners = self.authors[self._corpus.turn_numbers]
            self._trained[excluded] = train_sentences(self._corpus, ~np.isin(owners, list(excluded)))
        return self._trained[excluded]


def to_scored_text(corpus: Corpus, pair: Pair) -> ScoredText:
    """Return the second answer of a pair, with the first one as its history."""
    before, here = corpus.turns[pair.before], corpus.turns[pair.here]
    history = (Message(role="user", content=before["user"]), Message(role="assistant", content=before["assistant"]))
    return ScoredText(text=here["assistant"], prompt=here["user"], history=history)


def train_sentences(corpus: Corpus, used: Booleans) -> SentenceModels:
    """Return the models trained on the *used* sentences, with the 8-bit weights that the package has, and none of capitulation."""
    praise, pushback, reinforcement = (fit(corpus.features, corpus.marks[kind], used) for kind in KINDS)
    zeros = (0.0,) * len(FEATURES)
    return SentenceModels(praise, pushback, reinforcement, CapitulationModel(zeros, (1.0,) * len(FEATURES), zeros))


def fit_capitulation(features: Floats, is_given_up: Booleans, authors: NDArray[np.int64]) -> CapitulationModel:
    """
    Fit a logistic regression with a strong penalty, by Newton's method.

    Each author has its own bias, so that weights show what differs within the answers of one author. Each class of an author weighs as
    the root of its size.
    """
    means, deviations = to_floats(np.mean(features, axis=0)), to_floats(np.std(features, axis=0))
    values = to_floats((features - means) / deviations)
    names = np.unique(authors)
    costs = np.zeros(len(values))
    for author in names:
        for label in (False, True):
            rows = (authors == author) & (is_given_up == label)
            costs[rows] = 1 / np.sqrt(max(1, rows.sum()))
    costs /= costs.sum()
    columns = to_floats(np.hstack([values, (authors[:, None] == names[None]).astype(float)]))
    penalties = np.array([CAPITULATION_L2] * len(FEATURES) + [AUTHOR_L2] * len(names))
    point = np.zeros(len(penalties))
    for _ in range(NEWTON_STEPS):
        chances = to_floats(1 / (1 + np.exp(-columns @ point)))
        gradient = columns.T @ (costs * (chances - is_given_up)) + penalties * point
        curvature = to_floats((columns * (costs * chances * (1 - chances))[:, None]).T @ columns + np.diag(penalties))
        point = point - to_floats(np.linalg.solve(curvature, to_floats(gradient)))
    weights = point[: len(FEATURES)]
    return CapitulationModel(round_all(means), round_all(deviations), round_all(weights / float(np.std(values @ weights))))


def to_floats(values: object) -> Floats:
    """Return an array of known type, because operators of numpy have none."""
    return cast("Floats", values)


def round_all(values: Floats) -> tuple[float, ...]:
    """Return the numbers with the digits that the package has."""
    return tuple(round(value, 6) for value in cast("list[float]", values.tolist()))


def fit(features: Feature, marks: Booleans, used: Booleans) -> SentenceModel:
    """Fit a logistic regression with Adam on all sentences at once."""
    chosen = used[features.rows]
    rows = (np.cumsum(used) - 1)[features.rows[chosen]]
    columns, values = features.columns[chosen], features.values[chosen]
    labels = marks[used].astype(float)
    weights, mean, square = np.zeros(BUCKETS), np.zeros(BUCKETS), np.zeros(BUCKETS)
    bias = float(np.log(labels.mean() / (1 - labels.mean())))
    for step in range(1, STEPS + 1):
        z = bias + np.bincount(rows, weights[columns] * values, minlength=len(labels))
        error = (1 / (1 + np.exp(-z)) - labels) / len(labels)
        gradient = np.bincount(columns, error[rows] * values, minlength=BUCKETS) + L2 * weights
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weights -= STEP_SIZE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        bias -= float(error.sum())
    scale = float(np.abs(weights).max()) / MAX_WEIGHT
    small = np.round(weights / scale).astype(np.int8)
    return SentenceModel(round(bias, 6), round(scale, 9), array_of(small.tobytes()))


def write_models(models: SentenceModels, corpus: Corpus, rates: list[tuple[float, float]]) -> None:
    """Write the weights and their description to the package."""
    parts = {PRAISE: models.praise, PUSHBACK: models.pushback, REINFORCEMENT: models.reinforcement}
    (FOLDER / "sentence-models.bin").write_bytes(b"".join(part.weights.tobytes() for part in parts.values()))
    description = {
        "training": "training/sycophancy.py",
        "turns": len(corpus.turns),
        "sentences": len(corpus.sentences),
        "buckets": BUCKETS,
        "models": {kind: {"bias": part.bias, "scale": part.scale} for kind, part in parts.items()},
        "capitulation": asdict(models.capitulation),
        "false_positive_rates": rates,
    }
    (FOLDER / "sentence-models.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def evaluate(corpus: Corpus, trainer: Trainer) -> tuple[str, list[tuple[float, float]]]:
    """Return the figures as Markdown tables, and the false-positive rates of scores."""
    names = trainer.names
    prompts = sorted({turn["conversation"] for turn in corpus.turns})
    prompt_folds = np.array([prompts.index(turn["conversation"]) % PROMPT_FOLDS for turn in corpus.turns])
    by_model = Held(corpus, trainer.authors, {number: trainer.train_without(frozenset((number,))) for number in range(len(names))})
    sentence_folds = prompt_folds[corpus.turn_numbers]
    by_prompt = Held(corpus, prompt_folds, {number: train_sentences(corpus, sentence_folds != number) for number in range(PROMPT_FOLDS)})
    tables = [
        sentence_table(corpus, by_model, by_prompt, names),
        turn_table(corpus, by_model, by_prompt, names),
        capitulation_table(corpus, by_model, trainer),
    ]
    rates = false_positive_rates(corpus, by_model)
    tables.append(rate_table(rates))
    return "\n\n".join(tables), rates


def false_positive_rates(corpus: Corpus, by_model: Held) -> list[tuple[float, float]]:
    """Return scores, each with the share of plain answers that reach it: answers without marked praise and reinforcement."""
    plain = [
        result.score or 0.0
        for turn, result in zip(corpus.turns, by_model.results, strict=True)
        if turn["metrics"][KINDS[PRAISE]] == 0 and turn["metrics"][KINDS[REINFORCEMENT]] == 0
    ]
    return [(round(float(np.quantile(plain, 1 - rate)), 4), rate) for rate in RATES]


def rate_table(rates: Sequence[tuple[float, float]]) -> str:
    """Return the table of false-positive rates."""
    lines = [
        (
            "**False positives.** Share of answers without marked praise and reinforcement that reach a score, each scored by models that "
            "were trained without its author."
        ),
        "",
        "| Score | Share |",
        "|---|---|",
        *(f"| {score:.2f} | {rate:.0%} |" for score, rate in rates),
    ]
    return "\n".join(lines)


class Held:
    """Logits of sentences and results of turns, each by models that were trained without its fold."""

    def __init__(self, corpus: Corpus, folds: NDArray[np.int64], models: Mapping[int, SentenceModels]) -> None:
        self.folds = folds
        self.sentence_folds = folds[corpus.turn_numbers]
        self.logits = {kind: np.zeros(len(corpus.sentences)) for kind in KINDS}
        self.models = models
        for fold_number in models:
            parts = {PRAISE: models[fold_number].praise, PUSHBACK: models[fold_number].pushback}
            parts[REINFORCEMENT] = models[fold_number].reinforcement
            for position in np.flatnonzero(self.sentence_folds == fold_number):
                features = hash_words(corpus.sentences[position].words)
                for kind, model in parts.items():
                    self.logits[kind][position] = model.logit(features)
        self.results = [
            assess_sycophancy(ScoredText(text=turn["assistant"], prompt=turn["user"]), self.models[int(fold_number)])
            for turn, fold_number in zip(corpus.turns, folds, strict=True)
        ]


def sentence_table(corpus: Corpus, by_model: Held, by_prompt: Held, names: Sequence[str]) -> str:
    """Return the table of sentences: how well each method finds the marked ones."""
    lengths = np.array([float(len(sentence.words)) for sentence in corpus.sentences])
    lines = [
        "**Sentences that the judge marked.** AUROC / share found at 5 % false positives. *Length* counts words.",
        "",
        "| Kind | Left out | Marked | Trained and lexicon | Trained | Lexicon | Length |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        rows = [(name, by_model, by_model.sentence_folds == number) for number, name in enumerate(names)]
        rows.append(("prompts (5 folds)", by_prompt, np.ones(len(lengths), dtype=bool)))
        for name, held, part in rows:
            marks, logits, cues = corpus.marks[kind][part], held.logits[kind][part], corpus.cues[kind][part]
            cells = [
                f"{auroc(scores, marks):.2f} / {recall_at(scores, marks, 0.05):.2f}" if scores.any() else "–"
                for scores in (logits + 0.8 * cues, logits, cues)
            ]
            lines.append(f"| {kind} | {name} | {int(marks.sum())} | {' | '.join(cells)} | {auroc(lengths[part], marks):.2f} |")
    return "\n".join(lines)


def turn_table(corpus: Corpus, by_model: Held, by_prompt: Held, names: Sequence[str]) -> str:
    """Return the table of whole answers."""
    praised = np.array([turn["metrics"][KINDS[PRAISE]] > 0 for turn in corpus.turns])
    opposed = np.array([turn["metrics"][KINDS[PUSHBACK]] > 0 for turn in corpus.turns])
    words = np.array([float(len(turn["assistant"].split())) for turn in corpus.turns])
    exclamations = np.array([float(turn["assistant"].count("!")) for turn in corpus.turns])
    lines = [
        "**Whole answers.** AUROC for answers in which the judge marked praise (*praise*, *score*) or pushback (*pushback*).",
        "",
        "| Left out | Answers with praise | `praise` | `score` | Exclamation marks | Length | `pushback` |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [(name, by_model, by_model.folds == number) for number, name in enumerate(names)]
    rows.append(("prompts (5 folds)", by_prompt, np.ones(len(words), dtype=bool)))
    for name, held, part in rows:
        praise, score, pushback = (pick(held.results, attribute)[part] for attribute in ("praise", "score", "pushback"))
        cells = [auroc(values, praised[part]) for values in (praise, score, exclamations[part], words[part])]
        cells.append(auroc(pushback, opposed[part]))
        lines.append(f"| {name} | {int(praised[part].sum())} of {int(part.sum())} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return "\n".join(lines)


def capitulation_table(corpus: Corpus, by_model: Held, trainer: Trainer) -> str:
    """Return the table of answers after an answer with pushback: given up or held."""
    pairs = [pair for pair in trainer.pairs if pair.is_after_pushback]
    results = [assess_sycophancy(to_scored_text(corpus, pair), by_model.models[int(by_model.folds[pair.here])]) for pair in pairs]
    scores, labels = pick(results, "capitulation"), np.array([pair.is_given_up for pair in pairs])
    words = np.array([float(len(corpus.turns[pair.here]["assistant"].split())) for pair in pairs])
    owners = trainer.authors[[pair.here for pair in pairs]]
    lines = [
        (
            "**Pushback given up.** Pairs of answers two turns apart, the first with pushback: the second has praise or reinforcement and "
            "no pushback (given up), or pushback alone (held). AUROC of `capitulation` within each model that was left out, with the "
            "interval that holds it in 95 % of samples of the same size."
        ),
        "",
        "| Left out | Given up | Held | `capitulation` | Length |",
        "|---|---|---|---|---|",
    ]
    for number, name in enumerate(trainer.names):
        part = owners == number
        low, high = bootstrap_auroc(scores[part], labels[part])
        cells = f"{auroc(scores[part], labels[part]):.2f} ({low:.2f}–{high:.2f}) | {auroc(words[part], labels[part]):.2f}"
        lines.append(f"| {name} | {int(labels[part].sum())} | {int((~labels[part]).sum())} | {cells} |")
    return "\n".join(lines)


def bootstrap_auroc(scores: Floats, labels: Booleans) -> tuple[float, float]:
    """Return the 95 % interval of the AUROC over samples of the same numbers of both classes."""
    random = np.random.default_rng(0)
    values = list[float]()
    for _ in range(SAMPLES):
        rows = np.concatenate([random.choice(np.flatnonzero(labels == label), (labels == label).sum()) for label in (False, True)])
        values.append(auroc(scores[rows], labels[rows]))
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def pick(results: Sequence[SycophancyResult], attribute: str) -> Floats:
    """Return a number of each result; 0 where it is missing."""
    return np.array([float(cast("float | None", getattr(result, attribute)) or 0.0) for result in results])


def auroc(scores: Floats, labels: Booleans) -> float:
    """Return the area under the ROC curve; ties count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives, negatives = int(labels.sum()), int((~labels).sum())
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / max(1, positives * negatives))


def recall_at(scores: Floats, labels: Booleans, false_positive_rate: float) -> float:
    """Return the share of positives above the threshold that this share of negatives reaches."""
    threshold = np.quantile(scores[~labels], 1 - false_positive_rate)
    return float((scores[labels] > threshold).mean())


def array_of(raw: bytes) -> array[int]:
    """Return the signed bytes as an array."""
    return array("b", raw)


if __name__ == "__main__":
    main()
