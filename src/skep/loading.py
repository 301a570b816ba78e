"""Loading modules without work that nobody needs.

What a module defines stays for as long as the process does. The collector comes by every few hundred new objects all
the same, goes over what was loaded, and finds nothing: a tenth of the time that the first answer takes.

And the BLAS that numpy brings starts its threads as it is loaded. They look for work without a pause for some 25 ms
before they go to sleep, and do so again after every product they took part in: as much processor time as loading all of
numpy takes. So they are told to sleep sooner. They are still all there, and wake for what is large.
"""

from __future__ import annotations

import gc
import os
import sys

PATIENCE = "OPENBLAS_THREAD_TIMEOUT"
"""For how many ticks of the processor its threads look for work, as a power of two; read when it is loaded."""
TICKS = "20"
"""A third of a millisecond. 26 is what OpenBLAS has by itself."""


class undisturbed:
    """No collection inside the block; afterwards what was made there counts as old, as if it had survived some.

    Where numpy is loaded in it, threads that have nothing to do sleep. Whoever has set their patience is left alone.
    """

    __slots__ = ("_told", "_was")

    def __enter__(self) -> None:
        self._told = "numpy" not in sys.modules and PATIENCE not in os.environ
        if self._told:
            os.environ[PATIENCE] = TICKS
        self._was = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            if not gc.get_freeze_count():  # what somebody froze stays frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
        if self._told:
            os.environ.pop(PATIENCE, None)
