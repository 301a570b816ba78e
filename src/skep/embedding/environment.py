"""Keys and addresses of remote services, from the environment variables their own tools use.

Only entry points read the environment; they pass it in. What is found is used and never stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from skep.embedding import Opener, open_embedder
from skep.embedding.base import Embedder

KEYS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""Per service, the variables that may hold its key; the first that is set counts."""
ADDRESSES: Mapping[str, str] = {"openai": "OPENAI_BASE_URL", "ollama": "OLLAMA_HOST"}
OLLAMA_PORT = 11434


def from_environment(environ: Mapping[str, str]) -> Opener:
    """An `open_embedder` that looks up keys and addresses."""

    def opened(spec: str, *, known_dim: int | None = None) -> Embedder:
        name = spec.partition(":")[0]
        key = next((environ[each] for each in KEYS.get(name, ()) if environ.get(each)), None)
        address = environ.get(ADDRESSES.get(name, "")) or None
        if address is not None and name == "ollama":
            address = ollama_address(address)
        return open_embedder(spec, known_dim=known_dim, api_key=key, base_url=address)

    return opened


def ollama_address(host: str) -> str:
    """The address that OLLAMA_HOST means: a host, a host and a port, or an address in full.

    >>> ollama_address("gpu.lan"), ollama_address("0.0.0.0:8000")
    ('http://gpu.lan:11434', 'http://127.0.0.1:8000')
    """
    host = host.strip()
    if "://" in host:
        return host
    name, _, port = host.rpartition(":") if ":" in host.rpartition("]")[2] else (host, "", "")
    if name in ("", "0.0.0.0", "[::]"):
        name = "127.0.0.1"
    return f"http://{name}:{port or OLLAMA_PORT}"
