"""Bank: one memory in one file. A façade: it checks what comes in, and hands the work to the room it belongs to."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from skep.bank.bank_file import FileVerbs, refuse_database
from skep.bank.history import PastVerbs
from skep.bank.open_bank import file_errors
from skep.bank.read import ReadVerbs
from skep.bank.upkeep import UpkeepVerbs
from skep.bank.write import LinkVerbs, WriteVerbs
from skep.clock import Now, system_now
from skep.config import Settings, bank_file, bank_url
from skep.embedding.embedder import Embedder, Opener, default_spec, open_embedder, spec_of
from skep.engine.engine import Engine
from skep.errors import SkepError, WrongTypeError
from skep.model import html_table
from skep.storage.sqlite_store import SqliteStore
from skep.validation import clean_file, clean_flag, clean_line, clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from skep.bank.memory_bank import MemoryBank
    from skep.bank.told_facts import Taught
    from skep.llm.language_model import LLM


class Bank(WriteVerbs, LinkVerbs, ReadVerbs, PastVerbs, UpkeepVerbs, FileVerbs):
    """One memory. Open it with `Bank.open`, and close it or use it in a `with`."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        embedder: Embedder | str | None = None,
        opener: Opener = open_embedder,
        settings: Settings | None = None,
        now: Now = system_now,
        create: bool = True,
        read_only: bool = False,
    ) -> Self:
        """Open a bank, creating it if it is not there.

        Args:
            path: The file. By default `SKEP_BANK`, the project's `.skep` folder if one is found upward, or the
                user's data folder. `":memory:"` keeps everything in memory. The address of a hub, such as
                `"postgresql://db/team"`, opens the bank that several machines share.
            embedder: What turns text into vectors: an object, or a spec such as `"static"` or `"ollama:nomic"`.
                By default the one the bank was made with; for a new bank, and for one made before there was a bundled
                transformer, that transformer (`"minilm"`), or what the environment variable `SKEP_EMBEDDER` names.
            opener: How a spec, the one given or the bank's own, becomes an embedder: `from_environment(os.environ)`
                of `skep.embedding.remote` finds keys and addresses in environment variables.
            settings: Limits and defaults.
            now: The clock, in seconds since the epoch.
            create: Whether to create a missing file.
            read_only: Open for reading alone.
        """
        settings = Settings() if settings is None else settings
        if not isinstance(settings, Settings):  # pyright: ignore
            raise WrongTypeError(
                f"settings must be a Settings, got {type(settings).__name__}", field="settings"
            )
        _clean_clock(now)
        clean_flag("create", create)
        clean_flag("read_only", read_only)
        if not callable(opener):
            raise WrongTypeError(f"opener must be a function, got {type(opener).__name__}", field="opener")
        if embedder is not None and not isinstance(embedder, str) and not hasattr(embedder, "embed"):
            raise WrongTypeError(
                f"embedder must be an Embedder or a spec such as 'static', got {type(embedder).__name__}",
                field="embedder",
            )
        url = bank_url(path, os.environ)
        if url is not None:
            return hub_opener()(
                cls.open,
                url,
                embedder=embedder,
                opener=opener,
                settings=settings,
                now=now,
                create=create,
                read_only=read_only,
            )
        named = path if path is None or path == "" else clean_file("path", path)
        where = ":memory:" if str(path) == ":memory:" else bank_file(named, os.environ, os.getcwd())
        store = SqliteStore.open(where, settings, create=create, read_only=read_only)
        spec = embedder if isinstance(embedder, str) else getattr(embedder, "spec", None)
        adopts = True
        if embedder is None:
            embedder, spec, adopts = _own_embedder(store, opener)
        else:
            if isinstance(embedder, str):
                asked = next((space.dim for space in store.present().spaces if space.spec == spec), None)
                embedder = opener(embedder, known_dim=asked)
            if spec == OLD_DEFAULT and not (read_only or store.mark(CHOSEN)):
                store.set_mark(CHOSEN, 1)
        return cls(
            Engine(
                store,
                embedder,
                spec=spec,
                settings=settings,
                now=now,
                index_folder=store.index_folder,
                adopts=adopts,
                opener=opener,
            )
        )

    @classmethod
    def put_back(
        cls,
        backup: str | os.PathLike[str],
        path: str | os.PathLike[str] | None = None,
        *,
        now: Now = system_now,
    ) -> Path | None:
        """Put a copy that `backup` made in the place of a bank, also of a damaged one.

        Close every program that uses the bank first. The copy stays as it is.

        Args:
            backup: The copy.
            path: The bank; by default the one that `Bank.open` would open.
            now: The clock, in seconds since the epoch.

        Returns:
            Where what stood there is kept now, None if there was nothing. `forget` reaches that file too.
        """
        from pathlib import Path

        from skep.storage.backup import put_back

        _clean_clock(now)
        copy = clean_file("backup", backup)
        named = path if path is None or path == "" else clean_file("path", path)
        with file_errors(Path(copy)):
            return put_back(Path(copy), Path(bank_file(named, os.environ, os.getcwd())), now())

    @classmethod
    def salvage(cls, path: str | os.PathLike[str], target: str | os.PathLike[str]) -> tuple[int, int]:
        """Of a damaged bank, write every event that can be read to a file that `import_` takes into a new bank.

        The bank may have been cut short. Where nothing can be read, nothing is written, and that is an error.

        Args:
            path: The bank. It need not be one that can be opened.
            target: The file.

        Returns:
            How many events were written, and how many at least could not be read.
        """
        from pathlib import Path

        from skep.storage.backup import salvage

        bank, out = Path(clean_file("path", path)), Path(clean_file("target", target))
        with file_errors(out):
            refuse_database(out, bank)
            return salvage(bank, out)

    def add(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        source: str = "conversation",
        llm: LLM | None = None,
        redact: bool | str | Iterable[str] = "secrets",
    ) -> Taught:
        """Learn from a conversation: each exchange is kept as an episode, and what it states becomes facts.

        The same conversation again adds nothing. Without a model rules find the facts, and the result says so.

        Args:
            messages: A text, or messages like `{"role": "user", "content": "..."}`; `name` says who speaks.
            user_id: Whom it is for: the user of its scope.
            agent_id: Who learns it.
            run_id: The session of its scope.
            source: Where it comes from.
            llm: The model that finds facts; see `open_llm` of `skep.llm`.
            redact: What is taken out before anything is stored, as in `remember`.
        """
        from skep.bank.told_facts import teach, turns_of

        limit = self.engine.settings.label_limit
        if llm is not None and not hasattr(llm, "spent"):
            raise WrongTypeError(f"llm must be a model of `open_llm`, got {type(llm).__name__}", field="llm")
        named = {"user_id": ("user", user_id), "agent_id": ("agent", agent_id), "run_id": ("session", run_id)}
        for field, (_part, value) in named.items():
            if value is not None:
                clean_line(field, value, limit)
        scope = {part: value for part, value in named.values() if value is not None and part != "agent"}
        return teach(
            self,
            turns_of(messages),
            clean_text("source", source, 500),
            llm=llm,
            summed_up=False,
            now=self.engine.now(),
            scope=scope or None,
            agent=agent_id,
            redact=redact,
        )

    def __repr__(self) -> str:
        if self.closed:
            return "Bank(closed)"
        return f"Bank({str(self.file or ':memory:')!r}, {self.engine.size()} memories)"

    def _repr_html_(self) -> str:
        if self.closed:
            return "<p>Bank(closed)</p>"
        rows = [(m.text, m.kind, m.status, f"{m.created:%Y-%m-%d}", m.id) for m in self.find(limit=10)]
        return html_table(f"{self!r}, newest first", ("memory", "kind", "status", "learnt", "id"), rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


if TYPE_CHECKING:
    _promise: type[MemoryBank] = Bank


def _clean_clock(now: object) -> None:
    if not callable(now):
        raise WrongTypeError(
            f"now must be a function that gives seconds, got {type(now).__name__}", field="now"
        )


HUB_OPENER = "skep.hub.shared_bank:open_shared"
"""Opens the bank at a hub. Rooms above this one are not imported here, so it is looked up by name when it is needed."""


def hub_opener() -> Any:
    """The function that `HUB_OPENER` names."""
    import importlib

    module, _, name = HUB_OPENER.partition(":")
    return getattr(importlib.import_module(module), name)


OLD_DEFAULT = "static"
"""The spec of banks from before the transformer was bundled, whether anybody had chosen it or not."""
CHOSEN = "static-chosen"
"""The mark of a bank whose owner has named the old default: it stays with it."""


def _own_embedder(store: SqliteStore, opener: Opener) -> tuple[Embedder, str | None, bool]:
    """The embedder of a bank that is opened without naming one, its spec, and if it may make a space of its own.

    It is the one the bank was made with, where it can be had by name; the default for a new bank and for one whose
    embedder nobody chose. Where a model that only its owner can bring has made the vectors, or a change to another
    model is under way, opening the bank changes nothing of that.
    """
    space, building, default = store.active_space(), store.building_space(), default_spec()
    spec = default if space is None else spec_of(space.spec, space.fingerprint)
    if spec is None or space is None:
        return opener(default), default, space is None
    if spec == OLD_DEFAULT and not store.mark(CHOSEN) and (building is None or building.spec == default):
        return opener(default), default, True
    try:
        return opener(spec, known_dim=space.dim), spec, True
    except SkepError:
        return opener(default), default, False
