"""Loading modules without looking for garbage, and no more of them than are needed.

What a module defines stays for as long as the process does. The collector comes by every few hundred new objects all
the same, goes over what was loaded, and finds nothing: a tenth of the time that the first answer takes.
"""

from __future__ import annotations

import gc
import sys
import threading


def load_msgspec() -> None:
    """Import msgspec without `typing_extensions`, of which it wants only what `typing` has had since Python 3.11.

    Where that package is installed it brings `inspect`, `ast` and `tokenize` along, and takes longer to load than the
    rest of msgspec. An entry of None makes an import fail as if there were no such package, which msgspec is ready for.
    Threads that run already may be importing it in earnest, so with any about nothing is hidden.
    """
    hidden = "typing_extensions"
    if "msgspec" in sys.modules or hidden in sys.modules or threading.active_count() > 1:
        return
    sys.modules[hidden] = None  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
    try:
        import msgspec  # noqa: F401  # pyright: ignore[reportUnusedImport]
    finally:
        del sys.modules[hidden]


class undisturbed:
    """No collection inside the block; afterwards what was made there counts as old, as if it had survived some."""

    __slots__ = ("_was",)

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            if not gc.get_freeze_count():  # what somebody froze stays frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
