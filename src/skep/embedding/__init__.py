"""Texts to vectors: the bundled default, local models, remote services, and the queue for the slow ones.

`default_embedder()` needs nothing but numpy. `open_embedder(spec)` opens any of them by name.
Importing this package imports neither numpy nor any optional dependency.
"""

from __future__ import annotations

from collections.abc import Callable

from skep.embedding.base import Embedder
from skep.errors import ConfigError

__all__ = ["Embedder", "default_embedder", "open_embedder"]


def default_embedder() -> Embedder:
    """The embedder a bank uses unless told otherwise: the bundled table, offline and instant."""
    from skep.embedding.static import StaticEmbedder

    return StaticEmbedder()


def _static(rest: str, **_: str | None) -> Embedder:
    from skep.embedding.static import DATA, StaticEmbedder

    return StaticEmbedder(rest or DATA)


def _hash(rest: str, **_: str | None) -> Embedder:
    from skep.embedding.hashing import HashingEmbedder

    if rest and not rest.isdigit():
        raise ConfigError(f"'hash:{rest}' is not a dimension; write for example 'hash:256'")
    return HashingEmbedder(int(rest)) if rest else HashingEmbedder()


def _minilm(rest: str, **_: str | None) -> Embedder:
    from pathlib import Path

    from skep.embedding.onnx import open_minilm

    return open_minilm(Path(rest).expanduser() if rest else None)


def _onnx(rest: str, **_: str | None) -> Embedder:
    from pathlib import Path

    from skep.embedding.onnx import OnnxEmbedder

    if not rest:
        raise ConfigError("'onnx' needs the folder of a model; write for example 'onnx:models/bge-small'")
    return OnnxEmbedder(Path(rest).expanduser())


def _remote(rest: str, *, name: str, api_key: str | None, base_url: str | None) -> Embedder:
    from skep.embedding.remote import SERVICES, RemoteEmbedder

    model, _, dim = rest.partition("@")
    if dim and not dim.isdigit():
        raise ConfigError(f"'@{dim}' is not a dimension; write for example '{name}:{model}@512'")
    return RemoteEmbedder(
        SERVICES[name], model, dim=int(dim) if dim else None, api_key=api_key, base_url=base_url
    )


_OPENERS: dict[str, Callable[..., Embedder]] = {
    "static": _static,
    "hash": _hash,
    "minilm": _minilm,
    "onnx": _onnx,
    "openai": _remote,
    "gemini": _remote,
    "ollama": _remote,
}


def open_embedder(spec: str, *, api_key: str | None = None, base_url: str | None = None) -> Embedder:
    """Open an embedder by name.

    | spec | what |
    |---|---|
    | `static` | the bundled table (the default) |
    | `hash:256` | feature hashing, for tests |
    | `minilm`, `minilm:FOLDER` | MiniLM int8 on onnxruntime, extra `quality` |
    | `onnx:FOLDER` | any local sentence-transformers-style ONNX model, extra `quality` |
    | `openai:MODEL`, `gemini:MODEL`, `ollama:MODEL` | a remote service; `MODEL@512` names the dimension |

    Args:
        spec: A name, or a name, a colon and what it needs.
        api_key: For remote services. Environment variables are the caller's business.
        base_url: For remote services, if not the usual address.
    """
    name, _, rest = spec.partition(":")
    opener = _OPENERS.get(name)
    if opener is None:
        raise ConfigError(f"unknown embedder {spec!r}; choose one of {', '.join(_OPENERS)}")
    return opener(rest, name=name, api_key=api_key, base_url=base_url)
