"""Anchors: files, commands, symbols, flags, commits, URLs and packages that a text names. Pure.

`integrations.before_action` compares the anchors of a memory with those of what an agent is about to do;
`integrations.verify` looks whether they are still there. A text is cut at blanks and marks, so it takes linear time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from skep.runtime import lazy

AnchorKind = Literal["file", "command", "symbol", "flag", "commit", "url", "package"]


class Anchor(NamedTuple):
    """One thing that a text names."""

    kind: AnchorKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


_CUT: Final = lazy(r"[\s`'\"<>()\[\]{},;|=]+")
_MARKED: Final = lazy(r"`([^`\n]{2,300})`")
_CALLED: Final = lazy(r"(?<![\w.])([A-Za-z_]\w*(?:\.\w+)*)\(\)")
_VERSION: Final = lazy(r"([A-Za-z][\w.-]*)(?:==|~=|>=|@)v?(\d+(?:\.\w+)+)")
_HEX: Final = lazy(r"[0-9a-f]{7,40}")
_NAME: Final = lazy(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_$][\w$]*)*")
_SNAKE: Final = lazy(r"[A-Za-z]\w*_\w*[A-Za-z0-9]")
_HUMPS: Final = lazy(r"[a-z0-9][A-Z]")
_WORD: Final = lazy(r"[a-z][\w./:@-]*")
_ENDINGS = """
py pyi js jsx mjs cjs ts tsx mts vue svelte go rs c h cc cpp hpp cs java kt kts rb php swift scala sh bash zsh fish ps1
sql html css scss less json jsonl jsonc yaml yml toml ini cfg conf env lock md mdx rst txt csv tsv xml proto graphql tf
tfvars gradle ipynb ex exs erl hs lua r jl dart zig nix tex log service dockerfile mk cmake
"""
ENDINGS: Final = frozenset(_ENDINGS.split())
NAMED: Final = frozenset(("Makefile", "Dockerfile", "Justfile", "Procfile", "Jenkinsfile", "Vagrantfile"))
_PROGRAMS = """
git npm npx pnpm yarn bun deno pip uv poetry pytest ruff mypy pyright cargo rustup docker podman kubectl helm terraform
ansible gradle mvn alembic gh aws gcloud az psql mysql redis-cli brew apt systemctl rsync scp ssh docker-compose celery
flask uvicorn gunicorn eslint prettier jest vitest playwright tsc webpack vite
"""
PROGRAMS: Final = frozenset(_PROGRAMS.split())
"""Programs that are no English words; any other is known by the marks around a command."""
_AFTER = """
is was are be has have and or to the a an on in at for with from of by not no does did will can must should may needs
need uses use fails failed runs ran before after when then that which it its as but so because
"""
AFTER: Final = frozenset(_AFTER.split())
"""English words that follow the name of a program and are no argument of it."""
NESTED: Final = frozenset(
    ("compose", "run", "migrate", "release", "pr", "s3", "stash", "remote", "image", "volume")
)
"""Subcommands that have subcommands of their own."""
_PRODUCTS: Final = frozenset(("node.js", "vue.js", "next.js", "nuxt.js", "three.js", "d3.js", "express.js"))


def anchors_of(text: str) -> tuple[Anchor, ...]:
    """The anchors of a text, each once, in order of appearance.

    >>> [str(a) for a in anchors_of("`git push --force` broke src/api/auth.py at 3f2a91c; pin numpy==1.26.4")]
    ['command git push --force', 'flag --force', 'file src/api/auth.py', 'commit 3f2a91c', 'package numpy==1.26.4']
    """
    return tuple(dict.fromkeys(_found(text)))


def _found(text: str) -> Iterator[Anchor]:
    marked = {match[1].strip() for match in _MARKED.finditer(text)}
    for code in sorted(marked, key=text.find):
        if " " in code and _WORD.match(code):
            yield Anchor("command", " ".join(code.split()))
    called = {match[1] for match in _CALLED.finditer(text)}
    packages = {
        match[0]: Anchor("package", f"{match[1]}=={match[2].rstrip('.')}")
        for match in _VERSION.finditer(text)
    }
    words = _CUT.split(text)
    for at, raw in enumerate(words):
        word = raw.rstrip(".:!?…*_").lstrip("*")
        if not word:
            continue
        if word.startswith(("https://", "http://")):
            yield Anchor("url", word.rstrip("/"))
        elif word.startswith("--") and len(word) > 3 and word[2].isalpha():
            yield Anchor("flag", word)
        elif is_file(word):
            yield Anchor("file", _place(word))
        elif _HEX.fullmatch(word) and not word.isdigit() and not word.isalpha():
            yield Anchor("commit", word)
        elif word in called or _is_symbol(word, marked=word in marked):
            yield Anchor("symbol", word)
        elif word in PROGRAMS and not any(word in code for code in marked):
            rest = _arguments(words[at + 1 : at + 4])
            if rest:
                yield Anchor("command", " ".join((word, *rest)))
    yield from packages.values()


def is_file(word: str) -> bool:
    """True for the name of a file, with its folder or without.

    >>> [is_file(word) for word in ("src/a.py", "a.py:12", "Makefile", "and/or", "e.g", "Node.js", "3.5")]
    [True, True, True, False, False, False, False]
    """
    place = _place(word)
    if "://" in word or place.lower() in _PRODUCTS:
        return False
    name = place.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    if name in NAMED or name.startswith(".env"):
        return True
    if "/" in place and place[0] in "./~" and len(place) > 3 and not place.endswith("/"):
        return bool(name)
    return bool(dot and (stem or "/" in place) and ending.lower() in ENDINGS and not stem.isdigit())


def _place(word: str) -> str:
    """The path of a place in a file, without the line."""
    path, colon, line = word.partition(":")
    return path if colon and line[:1].isdigit() else word


def _is_symbol(word: str, *, marked: bool) -> bool:
    if len(word) < 5 or not _NAME.fullmatch(word):
        return False
    if _SNAKE.fullmatch(word):
        return True
    return marked and (bool(_HUMPS.search(word)) or "." in word or "::" in word)


def _arguments(words: list[str]) -> list[str]:
    """The arguments that follow the name of a program in a sentence: one word, and options."""
    found: list[str] = []
    for raw in words:
        word = raw.rstrip(".:!?")
        option = word.startswith("-") and len(word) > 1
        first = not found or found[-1] in NESTED
        if not option and not (first and _WORD.fullmatch(word) and word not in AFTER):
            break
        found.append(word)
        if word != raw:
            break
    return found if found and not found[0].startswith("-") else []
