"""The cost of capabilities: CPU time per frame of 1 KB, beside the hash alone and a signature per frame.

python scripts/capability_cost.py
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import blake2b
from statistics import median

from nacl.signing import SigningKey

from skep.hive.capabilities import Issuer, Pass
from skep.hive.messages import Envelope, LearnContent, decode, encode
from skep.replication.signatures import Signer

FRAME = Envelope(subject="hive.team.ask", frame=LearnContent(text="x" * 900), sender="ana")


def cost(action: Callable[[], object], count: int = 2000) -> float:
    """Microseconds of CPU per call, the median of seven rounds."""
    rounds: list[float] = []
    for _ in range(7):
        begun = time.process_time()
        for _ in range(count):
            action()
        rounds.append((time.process_time() - begun) / count * 1e6)
    return median(rounds)


def passes(count: int) -> list[Pass]:
    """Processes that have met."""
    issuer = Issuer(secrets.token_bytes(32))
    made: list[Pass] = []
    for _ in range(count):
        seed = secrets.token_bytes(32)
        made.append(Pass(issuer.public, seed, issuer.grant("team", ["ana"], Signer(seed).public)))
    shown = {f"p{n}": one.introduction(f"p{n}") for n, one in enumerate(made)}
    for n, one in enumerate(made):
        for process, introduction in shown.items():
            if process != f"p{n}":
                one.meet(process, introduction, {})
    return made


def main() -> None:
    """Print the table."""
    data = encode(FRAME)
    key, signer = secrets.token_bytes(32), SigningKey.generate()
    signature = signer.sign(data).signature
    two, twenty = passes(2), passes(20)
    inbox = Envelope(subject="_INBOX.p1.1", frame=FRAME.frame, sender="ana")
    sealed = iter([two[0].seal(FRAME) for _ in range(20_000)])
    print(
        f"keyed hash alone          {cost(lambda: blake2b(data, key=key, digest_size=16).digest()):7.1f} µs"
    )
    print(f"encode, no capability     {cost(lambda: encode(FRAME)):7.1f} µs")
    print(f"decode, no capability     {cost(lambda: decode(data)):7.1f} µs")
    print(f"seal an answer            {cost(lambda: two[0].seal(inbox)):7.1f} µs")
    print(f"seal for 2 processes      {cost(lambda: two[0].seal(FRAME)):7.1f} µs")
    print(f"seal for 20 processes     {cost(lambda: twenty[0].seal(FRAME)):7.1f} µs")
    print(f"open and check            {cost(lambda: two[1].open(next(sealed), 'x')):7.1f} µs")
    print(f"Ed25519 check per frame   {cost(lambda: signer.verify_key.verify(data, signature), 500):7.1f} µs")
    meet = two[0].introduction("p0")

    def again() -> None:
        two[1].gone("p0")
        two[1].meet("p0", meet, {})

    print(f"meet a process, once      {cost(again, 200):7.1f} µs")


if __name__ == "__main__":
    main()
