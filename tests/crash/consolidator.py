"""A process that sums up episodes, forgets them, and is killed at a given moment of that."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from skep.bank import Bank
from skep.embedding.hashing import HashingEmbedder
from skep.lifecycle import consolidating
from skep.lifecycle.maintain import MaintainConfig


def die(*_args: Any, **_options: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, moment: str) -> None:
    forget = consolidating.forget
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        bank.remember_many(
            [{"text": f"Backup to nas3 failed again, attempt {n}", "kind": "episode"} for n in range(4)]
        )
        if moment == "marked":
            consolidating._repointed = die  # type: ignore[assignment] # pyright: ignore[reportPrivateUsage]
        elif moment == "repointed":
            consolidating.forget = die  # type: ignore[assignment]
        elif moment == "forgotten":
            consolidating.forget = lambda *args: die(forget(*args))  # type: ignore[assignment]
        bank.maintain(MaintainConfig(steps=("reflect",), consolidate="hard"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
