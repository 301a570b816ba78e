"""A process that writes until it is killed, acknowledging each memory on standard output."""

from __future__ import annotations

import sys

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder


def main(path: str, name: str) -> None:
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        number = 0
        while True:
            text = f"writer {name} note {number} about topic{number % 7}"
            memory = bank.remember(text, on_conflict="ignore").memory
            sys.stdout.write(f"{memory.id}\t{text}\n")
            sys.stdout.flush()
            if number % 5 == 4:
                bank.revise(memory.id, importance=0.9)
            number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
