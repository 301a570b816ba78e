"""Files of arrays come back as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from skep.semantics.pair_model import MODEL_FILE, read_arrays, write_arrays


def test_arrays_of_any_shape_come_back(tmp_path: Path) -> None:
    given = {
        "none": np.zeros((0, 3)),
        "one": np.array(2.5, np.float32),
        "odd": np.arange(5, dtype=np.uint8),
        "many": np.arange(24, dtype="<u2").reshape(2, 3, 4).transpose(2, 0, 1),
        "wide": np.arange(3, dtype="<u8"),
    }
    path = str(tmp_path / "a")

    write_arrays(path, given)
    found = read_arrays(path)

    assert list(found) == list(given)
    assert all(found[name].dtype == given[name].dtype for name in given)
    assert all(np.array_equal(found[name], given[name]) for name in given)
    assert all(each.flags.aligned for each in found.values())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = Path(MODEL_FILE).read_bytes()
    middle = len(whole) // 2
    turned = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for content in (b"", whole[:-1], whole[:middle], turned):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(ValueError, match="damaged"):
            read_arrays(str(tmp_path / "a"))
