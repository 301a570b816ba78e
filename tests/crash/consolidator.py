"""A process that sums up episodes, forgets them, and is killed at a given moment of that."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.lifecycle import reflect
from skep.lifecycle.maintain import MaintainConfig


def die(*_args: Any, **_options: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, moment: str) -> None:
    forget = reflect.forget
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        bank.remember_many(
            [{"text": f"Backup to nas3 failed again, attempt {n}", "kind": "episode"} for n in range(4)]
        )
        if moment == "marked":
            reflect._repointed = die  # type: ignore[assignment] # pyright: ignore[reportPrivateUsage]
        elif moment == "repointed":
            reflect.forget = die  # type: ignore[assignment]
        elif moment == "forgotten":
            reflect.forget = lambda *args: die(forget(*args))  # type: ignore[assignment]
        bank.maintain(MaintainConfig(steps=("reflect",), consolidate="hard"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
