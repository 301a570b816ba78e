"""Small matrix products on one thread.

A BLAS wakes its threads for products far smaller than it is worth: on a busy machine one of 50 by 256 by 50 cost
several milliseconds of spinning instead of a tenth of one. Pieces below its threshold are computed where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALONE = 1 << 18
"""Multiplications up to which OpenBLAS uses one thread."""
MANY = 1 << 26
"""Multiplications from which threads are worth waking."""


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """`a @ b` of two matrices.

    >>> import numpy as np
    >>> a, b = np.ones((60, 256), np.float32), np.ones((256, 60), np.float32)
    >>> bool((product(a, b) == a @ b).all())
    True
    """
    (rows, inner), columns = a.shape, b.shape[1]
    if rows * inner * columns <= ALONE or rows * inner * columns >= MANY:
        return a @ b
    if rows >= columns:
        return alone(a, b)
    import numpy as np

    out = np.empty((rows, columns), dtype=np.result_type(a, b))
    step = max(1, ALONE // (inner * rows))
    for start in range(0, columns, step):
        out[:, start : start + step] = a @ b[:, start : start + step]
    return out


def alone(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """`a @ b` of however many rows on one thread, a few rows at a time; fastest where `b` is contiguous.

    >>> import numpy as np
    >>> a, b = np.ones((1001, 256), np.float32), np.ones((256, 60), np.float32)
    >>> bool((alone(a, b) == a @ b).all())
    True
    """
    import numpy as np

    (rows, inner), columns = a.shape, b.shape[1]
    step = max(1, ALONE // max(1, inner * columns))
    stacks = rows // step
    whole = stacks * step
    out = np.empty((rows, columns), dtype=np.result_type(a, b))
    np.matmul(a[:whole].reshape(stacks, step, inner), b, out=out[:whole].reshape(stacks, step, columns))
    np.matmul(a[whole:], b, out=out[whole:])
    return out
