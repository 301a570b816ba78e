"""Loading modules without looking for garbage.

What a module defines stays for as long as the process does. The collector comes by every few hundred new objects all
the same, goes over what was loaded, and finds nothing: a tenth of the time that the first answer takes.
"""

from __future__ import annotations

import gc


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
