"""Loading modules without looking for garbage.

What a module defines stays for as long as the process does. The collector comes by every few hundred new objects all
the same, goes over everything loaded so far, and finds nothing: an eighth of the time it takes to import numpy.
"""

from __future__ import annotations

import gc


class undisturbed:
    """No collection inside the block; afterwards it is as it was."""

    __slots__ = ("_was",)

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            gc.enable()
