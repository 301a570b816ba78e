"""The slots that a search may see, in whatever form it wants them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Admitted:
    """The slots that a search may see: live, and admitted by every condition. Made from a mask or from few slots."""

    def __init__(self, mask: Mask | None, version: int, *, slots: Ints | None = None, room: int = 0) -> None:
        self.version = version
        """The state of the table it is true of."""
        self.all = False
        """Whether it is every slot there is."""
        self.size = 0
        """Bytes it takes now; more once its slots, or its mask, were asked for."""
        if mask is not None:
            self.mask = mask
            self.count = int(np.count_nonzero(mask))
            self.all = self.count == len(mask)
            self.size = mask.nbytes
        elif slots is not None:
            self.slots = slots
            self.count = len(slots)
            self.size = slots.nbytes
        self._room = room

    @cached_property
    def slots(self) -> Ints:
        """The slots themselves, ascending."""
        slots = np.flatnonzero(self.mask)
        self.size += slots.nbytes
        return slots

    @cached_property
    def mask(self) -> Mask:
        """One flag per slot."""
        mask = np.zeros(self._room, dtype=bool)
        mask[self.slots] = True
        self.size += mask.nbytes
        return mask

    @cached_property
    def places(self) -> memoryview:
        """The slots as compiled searches take them: a view costs far less to look at than an array."""
        return self.slots.data

    @cached_property
    def flags(self) -> memoryview | None:
        """The mask as compiled searches take it; None where it is every slot there is."""
        return None if self.all else self.mask.data
