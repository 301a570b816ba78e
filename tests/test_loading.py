"""Loading without looking for garbage leaves the collector as it was; msgspec does without what it can do without."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Generator

import pytest

from skep.loading import undisturbed


@pytest.fixture
def collections() -> Generator[list[int]]:
    seen: list[int] = []
    callback: Callable[[str, dict[str, int]], None] = lambda phase, about: (  # noqa: E731
        seen.append(about["generation"]) if phase == "start" else None
    )
    gc.callbacks.append(callback)
    yield seen
    gc.callbacks.remove(callback)
    gc.enable()


def test_what_is_loaded_is_never_gone_over(collections: list[int]) -> None:
    with undisturbed():
        kept = [[number] for number in range(50_000)]
    young = len(gc.get_objects(generation=0))

    assert collections == []
    assert len(kept) > young
    assert gc.isenabled()


def test_garbage_made_meanwhile_is_still_collected() -> None:
    class Ring:
        gone = 0

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            Ring.gone += 1

    with undisturbed():
        Ring()
    gc.collect()

    assert Ring.gone == 1


def test_a_collector_that_was_off_stays_off_and_what_was_frozen_stays_frozen() -> None:
    gc.disable()
    with undisturbed():
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()

    gc.freeze()
    frozen = gc.get_freeze_count()
    with undisturbed():
        pass
    assert frozen == gc.get_freeze_count() > 0
    gc.unfreeze()


def test_blocks_may_lie_within_one_another() -> None:
    with undisturbed():
        with undisturbed():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def told(code: str) -> str:
    """What a fresh process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


LOADED = "import sys; from skep.loading import load_msgspec; load_msgspec(); "


def test_msgspec_is_loaded_alone_and_what_was_hidden_can_be_imported_afterwards() -> None:
    assert (
        told(LOADED + "print('msgspec' in sys.modules, 'typing_extensions' in sys.modules)") == "True False\n"
    )
    assert told(LOADED + "import typing_extensions; print(typing_extensions.Required)") == "typing.Required\n"


def test_msgspec_reads_types_as_it_does_without_us() -> None:
    pytest.importorskip("typing_extensions")
    reading = """
import msgspec
from typing_extensions import Annotated, NotRequired, TypedDict
class Part(TypedDict):
    name: NotRequired[Annotated[str, msgspec.Meta(max_length=3)]]
class Whole(msgspec.Struct):
    parts: "list[Part]"
for text in ('{"parts":[{},{"name":"abc"}]}', '{"parts":[{"name":"abcd"}]}'):
    try:
        print(msgspec.json.decode(text, type=Whole))
    except msgspec.ValidationError as error:
        print(error)
"""
    assert told(LOADED + reading) == told(reading)


def test_nothing_is_hidden_while_another_thread_runs() -> None:
    waiting = "import threading; end = threading.Event(); threading.Thread(target=end.wait).start(); "
    found = told(waiting + LOADED + "print('msgspec' in sys.modules); end.set()")

    assert found == "False\n"
