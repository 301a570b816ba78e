"""Forgetting takes rows out of a segment, and leaves what a segment without them would hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.index import catch_up, segment_builder
from skep.index.bm25 import key_of
from skep.index.catch_up import trimmed
from skep.index.index import SegmentIndex
from skep.index.quantisation import fit_frame
from skep.index.segment_builder import Builder, merge, segment_arrays
from skep.index.segment_reader import Segment
from skep.text.terms import terms

from .bank import DIM, FakeBank, make_row

WORDS = ["dog", "cat", "the", "foo_bar", "v2.3.1", "走る", "rare"]
TAGS = ["a", "b", "c"]
row = st.tuples(
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.booleans(),  # whether it has a vector
    st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple),
    st.sampled_from(["fact", "episode"]),
    st.sampled_from([None, "ana", "bo"]),
    st.booleans(),  # whether it stays
)


@given(st.lists(row, min_size=1, max_size=20), st.booleans())
def test_what_is_left_of_a_segment_is_what_merging_it_alone_would_make(
    given: list[tuple[str, bool, tuple[str, ...], str, str | None, bool]], oldest: bool
) -> None:
    rng = np.random.default_rng(len(given))
    build = Builder(DIM)
    rows = [
        make_row(
            number * 3,
            number,
            text,
            rng.standard_normal(DIM).astype("<f4").tobytes() if has_vector else None,
            tags=tags,
            kind=kind,
            user=user,
            id=f"actor{number % 2}-{number}",
        )
        for number, (text, has_vector, tags, kind, user, _) in enumerate(given)
    ]
    build.add([*rows, make_row(1000, len(rows), "", None, gone=True)])
    content = build.finish()
    frame = None if content.codes is None else fit_frame(content.codes)
    segment = Segment("whole", segment_arrays(content, frame))
    stays = {number * 3 for number, (*_, stay) in enumerate(given) if stay}
    keep = np.array([each in stays for each in segment.rows.tolist()], dtype=bool)

    left = segment_arrays(trimmed(segment, keep, oldest=oldest), frame)

    merged = segment_arrays(merge([segment], [keep], oldest=oldest), frame)
    assert left.keys() == merged.keys()
    for name, wanted in merged.items():
        assert left[name].dtype == wanted.dtype, name
        if wanted.dtype.kind == "f":  # sums of floats come in another order
            np.testing.assert_allclose(left[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            assert np.array_equal(left[name], wanted), name


def test_forgetting_in_a_large_bank_sketches_and_sorts_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "SAMPLE", 50)
    bank = FakeBank()
    vectors = np.random.default_rng(3).standard_normal((300, DIM))
    for number in range(300):
        bank.put(number, f"word{number} common", vectors[number], id=f"actor-{number}")
    index = SegmentIndex(tmp_path, bank, tail_limit=100)
    index.refresh()
    before = index.stats()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("done again")

    for module, name in ((segment_builder, "sketch"), (segment_builder, "merge"), (catch_up, "fit_frame")):
        monkeypatch.setattr(module, name, refuse)
    bank.forget(7)
    assert index.erase([7]) == 1

    after = index.stats()
    assert (after.rows, after.dead, after.segments) == (299, 0, before.segments)
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    gone, there = terms("word7")[0], terms("word8")[0]
    assert key_of(gone).to_bytes(8, "little") not in everything
    assert key_of(there).to_bytes(8, "little") in everything
