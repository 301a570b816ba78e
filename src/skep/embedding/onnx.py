"""Local models on onnxruntime: MiniLM int8, or any sentence-transformers-style ONNX model by path.

A model is a folder with `model.onnx` (or `onnx/model.onnx`), a `vocab.txt` or `tokenizer.json`, and, where
present, the usual small configuration files, which are obeyed: pooling, length limit, lower-casing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skep.embedding.embedder import Calibration, measure
from skep.embedding.wordpiece import WordPiece
from skep.errors import (
    ConfigError,
    EmbedderMismatchError,
    EmbedderUnavailableError,
    MissingExtraError,
    SkepError,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedder import Vectors


EXTRA = "quality"
BATCH = 32
MAX_TOKENS = 256
MINILM = "minilm-int8"
ADVICE = "give a model's folder, or make MiniLM with scripts/build_minilm_int8.py"
_SAMPLES, _SAMPLE_BYTES = 64, 16_384

Tokenize = Callable[[str], list[int]]
"""Ids of a text with the special tokens of the model around them, cut to its limit."""


def models_folder(platform: str = sys.platform, home: Path | None = None) -> Path:
    """The folder of local models, by the conventions of the platform."""
    home = home or Path.home()
    if platform == "darwin":
        return home / "Library" / "Application Support" / "skep" / "models"
    if platform == "win32":
        return home / "AppData" / "Local" / "skep" / "models"
    return home / ".local" / "share" / "skep" / "models"


def open_minilm(folder: Path | None = None) -> OnnxEmbedder:
    """The int8 MiniLM made by `scripts/build_minilm_int8.py`, from `folder` or the folder of models."""
    return OnnxEmbedder(folder or models_folder() / MINILM)


def digest_of(path: Path) -> str:
    """A digest of a file's size and of samples spread over it: cheap for large models, different for each."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for number in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def optional(module: str, feature: str) -> Any:
    """An optional dependency, or the error that names the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, EXTRA) from error


def open_session(file: Path, threads: int, feature: str, refused: type[SkepError]) -> Any:
    """A model, ready to run; a file that is none raises `refused`."""
    onnxruntime = optional("onnxruntime", feature)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except _errors_of(onnxruntime) as error:
        raise refused(f"{file} is not a readable ONNX model: {error}") from error


def run_session(
    session: Any, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] | None = None
) -> tuple[Any, NDArray[np.int64], list[str]]:
    """Run a model over rows of token ids, filled up to one length.

    Returns:
        Its first output, the mask of what was not filled up, and the names of inputs that nobody here can offer;
        where there are such, it was not run.
    """
    import numpy as np

    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
        if kinds is not None:
            types[number, : len(row)] = kinds[number]
    offered = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    wanted = [entry.name for entry in session.get_inputs()]
    unknown = sorted(set(wanted) - set(offered))
    if unknown:
        return None, mask, unknown
    return session.run(None, {name: offered[name] for name in wanted})[0], mask, []


def _errors_of(onnxruntime: Any) -> tuple[type[Exception], ...]:
    """The errors onnxruntime raises; they share no base of their own."""
    state = onnxruntime.capi.onnxruntime_pybind11_state
    found: list[Any] = [getattr(state, name) for name in dir(state)]
    return tuple(kind for kind in found if isinstance(kind, type) and issubclass(kind, Exception))


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a small configuration file; empty where there is no such file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        raise ConfigError(f"{path} should hold a JSON object; copy the model folder again")
    return found  # pyright: ignore[reportUnknownVariableType]


class OnnxEmbedder:
    """Sentence vectors from a local ONNX model. Slow enough that a bank embeds in the background."""

    def __init__(self, path: Path, *, batch: int = BATCH, threads: int = 1) -> None:
        self._file = model_file(path, EmbedderUnavailableError, ADVICE)
        self._folder = self._file.parent.parent if self._file.parent.name == "onnx" else self._file.parent
        self._batch = batch
        self._threads = threads
        pooling = read_json(self._folder / "1_Pooling" / "config.json")
        self._first_token_only = bool(pooling.get("pooling_mode_cls_token", False))
        about = read_json(self._folder / "sentence_bert_config.json")
        self._limit = int(about.get("max_seq_length") or MAX_TOKENS)
        self._knots = read_json(self._folder / "skep.json").get("knots")

    @property
    def fingerprint(self) -> str:
        """Names the folder, the dimension, and everything that shapes a vector."""
        pooling = "first" if self._first_token_only else "mean"
        return f"onnx-{self._folder.name}-{self.dim}-{pooling}{self._limit}-{self._digest}"

    @property
    def dim(self) -> int:
        """The length of every row."""
        return self._width

    @cached_property
    def _digest(self) -> str:
        return digest_of(self._file)

    @cached_property
    def _width(self) -> int:
        declared = read_json(self._folder / "config.json").get("hidden_size")
        return int(declared) if declared else self._run(["dimension"]).shape[1]

    @property
    def instant(self) -> bool:
        """Never: milliseconds per text."""
        return False

    @cached_property
    def calibration(self) -> Calibration:
        """From `skep.json` beside the model, else measured once on a few probes."""
        return Calibration(self._knots) if self._knots is not None else measure(self)

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this model to the common scale."""
        return self.calibration(cosine)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text; blank texts give zero rows."""
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        filled = [number for number, text in enumerate(texts) if text.strip()]
        filled.sort(key=lambda number: len(texts[number]))
        for start in range(0, len(filled), self._batch):
            chosen = filled[start : start + self._batch]
            rows = self._run([texts[number] for number in chosen])
            if rows.shape[1] != self.dim:
                raise EmbedderMismatchError(
                    f"{self._file} gives rows of {rows.shape[1]}, but config.json says hidden_size {self.dim}"
                )
            out[chosen] = rows
        return out

    @cached_property
    def _session(self) -> Any:
        return open_session(self._file, self._threads, "a local ONNX model", EmbedderUnavailableError)

    @cached_property
    def _tokenize(self) -> Tokenize:
        settings = read_json(self._folder / "tokenizer_config.json")
        vocabulary = self._folder / "vocab.txt"
        if vocabulary.exists() and settings.get("do_lower_case", True):
            return _wordpiece(vocabulary, self._limit)
        return _from_json(self._folder / "tokenizer.json", self._limit)

    def _run(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        rows = [self._tokenize(text) for text in texts]
        output, mask, unknown = run_session(self._session, rows)
        if unknown:
            raise EmbedderUnavailableError(
                f"{self._file} asks for inputs {unknown}; it is not a text encoder"
            )
        return self._pool(np.asarray(output, np.float32), mask)

    def _pool(self, output: NDArray[np.float32], mask: NDArray[np.int64]) -> Vectors:
        """Token states to one unit row; a model that pools by itself is only normalised."""
        import numpy as np

        if output.ndim == 3:
            if self._first_token_only:
                output = output[:, 0]
            else:
                output = (output * mask[:, :, None].astype(np.float32)).sum(axis=1)
        norms = np.linalg.norm(output, axis=1, keepdims=True)
        return np.divide(output, norms, out=np.zeros_like(output), where=norms > 0)


def model_file(path: Path, refused: type[SkepError], advice: str) -> Path:
    """The ONNX file a path means."""
    candidates = [path] if path.suffix == ".onnx" else [path / "model.onnx", path / "onnx" / "model.onnx"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = " or ".join(str(candidate) for candidate in candidates)
    raise refused(f"no model at {looked}; {advice}")


def _wordpiece(vocabulary: Path, limit: int) -> Tokenize:
    wordpiece = WordPiece.from_file(vocabulary)
    first, last = wordpiece.id_of("[CLS]"), wordpiece.id_of("[SEP]")
    if first is None or last is None:
        raise EmbedderUnavailableError(f"{vocabulary} lacks [CLS] or [SEP]; it is no BERT vocabulary")
    return lambda text: [first, *wordpiece.ids(text)[: limit - 2], last]


def _from_json(path: Path, limit: int) -> Tokenize:
    """Any other tokenizer, by the library that defines the file."""
    if not path.exists():
        raise EmbedderUnavailableError(f"the model folder has neither an uncased vocab.txt nor {path.name}")
    tokenizers = optional("tokenizers", "a model without an uncased WordPiece vocabulary")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    return lambda text: list(tokenizer.encode(text).ids)
