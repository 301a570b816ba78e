"""Files of arrays are read as numpy reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from skep.semantics.arrays import read_arrays
from skep.semantics.scorer import MODEL_FILE


def test_the_shipped_model_is_read_as_numpy_reads_it() -> None:
    found = read_arrays(MODEL_FILE)

    with np.load(MODEL_FILE, allow_pickle=False) as expected:
        assert list(expected) == list(found)
        assert all(found[name].dtype == expected[name].dtype for name in found)
        assert all(np.array_equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_any_shape_come_back(save: object, tmp_path: Path) -> None:
    given = {
        "none": np.zeros((0, 3)),
        "one": np.float32(2.5),
        "many": np.arange(24, dtype="<u2").reshape(2, 3, 4).transpose(2, 0, 1),
    }
    save(tmp_path / "a.npz", **given)  # type: ignore[operator]

    found = read_arrays(str(tmp_path / "a.npz"))

    assert all(np.array_equal(found[name], given[name]) for name in given)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = Path(MODEL_FILE).read_bytes()
    middle = len(whole) // 2
    turned = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for content in (b"", whole[:-1], whole[: len(whole) // 2], turned):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"damaged|cut short"):
            read_arrays(str(tmp_path / "a.npz"))
