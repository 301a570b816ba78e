"""A recall sees one moment, whatever others write meanwhile."""

from __future__ import annotations

import threading

from skep.bank import Bank


def test_forgetting_while_others_recall_breaks_no_answer(bank: Bank) -> None:
    ids = [m.memory.id for m in bank.remember_many([f"shared note number {i}" for i in range(60)])]
    errors: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                for hit in bank.recall("shared note", limit=20):
                    assert hit.memory.text
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for memory_id in ids[:40]:
        bank.forget(memory_id)
    done.set()
    for reader in readers:
        reader.join()
    assert errors == []
