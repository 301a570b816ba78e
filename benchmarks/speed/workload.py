"""One seeded workload for every engine: texts, vectors, filter fields, questions and the exact answers.

Texts are Zipf-distributed with topics: function words, words of the document's topic, and words of the
whole vocabulary. Content words are made up, and end so that no stemmer changes them, so that every tokenizer
sees the same words. Vectors are clustered (topic, sub-topic, noise), share a mean, and have a falling
spectrum, like the embeddings of real text. Text and vector of a row come from the same topic. Rows are made
in blocks with their own seeds: the first 1,000 rows are the same at every size.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.engines.values import Query, Row

VERSION = 2
"""Part of the cache key: raise it when the generator changes."""
DIM = 256
BLOCK = 5_000
WORDS = 40_000
TOPICS = 200
TOPIC_WORDS = 400
SUBTOPICS = 8
TEAMS = 10
PROJECTS = 100
MARKED = 10
"""One row in so many carries an identifier that no other row has."""
COMMON = """
the of to and a in is for that with on as it by this was be are at from or an not we have has which when but
will can if their its so they all one more after into then than only about should before our between
"""
FUNCTION_WORDS = COMMON.split()
SOUNDS = """
b br c cl d dr f fl g gr k kl l m n p pl pr r s st t tr v z
| a e i o u ai ou
| ok ap um ob uk ox ump ab olt urk
"""
ONSETS, VOWELS, ENDINGS = (part.split() for part in SOUNDS.split("|"))
FLOAT = NDArray[np.float32]
INT = NDArray[np.int64]


def _rng(seed: int, *path: int) -> np.random.Generator:
    return np.random.default_rng([seed, VERSION, *path])


def make_words(count: int, rng: np.random.Generator) -> list[str]:
    """Distinct, pronounceable words; frequent ranks come first and are shorter."""
    seen: dict[str, None] = {}
    while len(seen) < count:
        middle = 1 + (len(seen) > count // 40)
        syllables = [
            ONSETS[rng.integers(len(ONSETS))] + VOWELS[rng.integers(len(VOWELS))] for _ in range(middle)
        ]
        last = ONSETS[rng.integers(len(ONSETS))] + ENDINGS[rng.integers(len(ENDINGS))]
        seen["".join(syllables) + last] = None
    return list(seen)


def zipf_cdf(count: int, exponent: float) -> NDArray[np.float64]:
    """Cumulative chances of ranks 1..count."""
    weights = 1.0 / np.arange(1, count + 1) ** exponent
    return np.cumsum(weights) / weights.sum()


def unit(rows: NDArray[Any]) -> FLOAT:
    """Rows scaled to length one."""
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Block:
    """Some rows: token ids laid end to end, where each text starts, vectors and fields."""

    tokens: INT
    starts: INT
    vectors: FLOAT
    topics: INT
    teams: INT
    projects: INT


@dataclass(frozen=True)
class Workload:
    """Everything an engine is given at one size. `seed` and `size` say it all."""

    size: int
    seed: int = 7

    @cached_property
    def vocabulary(self) -> list[str]:
        """Function words first, then made-up ones by falling frequency."""
        return FUNCTION_WORDS + make_words(WORDS, _rng(self.seed, 1))

    @cached_property
    def _topic_words(self) -> INT:
        rng = _rng(self.seed, 2)
        low = len(FUNCTION_WORDS)
        return np.stack([rng.choice(WORDS, TOPIC_WORDS, replace=False) + low for _ in range(TOPICS)])

    @cached_property
    def _spectrum(self) -> FLOAT:
        basis, _ = np.linalg.qr(_rng(self.seed, 3).standard_normal((DIM, DIM)))
        return (basis / np.sqrt(np.arange(1, DIM + 1))[:, None] ** 0.8).astype(np.float32)

    @cached_property
    def _centres(self) -> tuple[FLOAT, FLOAT, FLOAT]:
        rng = _rng(self.seed, 4)
        mean = unit(rng.standard_normal(DIM) @ self._spectrum)
        topics = unit(rng.standard_normal((TOPICS, DIM)) @ self._spectrum)
        parts = unit(rng.standard_normal((TOPICS, SUBTOPICS, DIM)) @ self._spectrum)
        return mean, topics, parts

    def _vectors(self, topics: INT, rng: np.random.Generator) -> FLOAT:
        mean, centres, parts = self._centres
        part = parts[topics, rng.integers(SUBTOPICS, size=len(topics))]
        noise = unit(rng.standard_normal((len(topics), DIM)).astype(np.float32) @ self._spectrum)
        return unit(0.5 * mean + 0.6 * centres[topics] + 0.5 * part + 0.8 * noise)

    def block(self, number: int, count: int, kind: int = 5) -> Block:
        """Block `number` of the rows (kind 5) or of the later writes (kind 6)."""
        rng = _rng(self.seed, kind, number)
        topics = np.searchsorted(zipf_cdf(TOPICS, 0.6), rng.random(count))
        lengths = np.clip(rng.lognormal(2.95, 0.45, count), 5, 80).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        owner = np.repeat(topics, lengths)
        total = int(starts[-1])
        draws, which = rng.random(total), rng.random(total)
        common = np.searchsorted(zipf_cdf(len(FUNCTION_WORDS), 0.9), draws)
        topical = self._topic_words[owner, np.searchsorted(zipf_cdf(TOPIC_WORDS, 0.9), draws)]
        general = np.searchsorted(zipf_cdf(WORDS, 1.0), draws) + len(FUNCTION_WORDS)
        tokens = np.where(which < 0.42, common, np.where(which < 0.80, topical, general))
        return Block(
            tokens=tokens,
            starts=starts,
            vectors=self._vectors(topics, rng),
            topics=topics,
            teams=rng.integers(TEAMS, size=count),
            projects=rng.integers(PROJECTS, size=count),
        )

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block; the last one is cut to size."""
        for number in range(-(-self.size // BLOCK)):
            whole = self.block(number, BLOCK)
            keep = min(BLOCK, self.size - number * BLOCK)
            yield Block(
                tokens=whole.tokens[: whole.starts[keep]],
                starts=whole.starts[: keep + 1],
                vectors=whole.vectors[:keep],
                topics=whole.topics[:keep],
                teams=whole.teams[:keep],
                projects=whole.projects[:keep],
            )

    def rows_of(self, block: Block, first: int, letter: str) -> Iterator[Row]:
        """The rows of a block as engines are given them."""
        words = self.vocabulary
        for i in range(len(block.topics)):
            tokens: list[int] = block.tokens[block.starts[i] : block.starts[i + 1]].tolist()
            text = " ".join(words[t] for t in tokens)
            mark = f" {letter}{first + i:06d}x" if letter == "w" or (first + i) % MARKED == 0 else ""
            yield Row(
                id=f"{letter}{first + i:07d}",
                text=text + mark,
                vector=array("f", block.vectors[i].tobytes()),
                team=f"t{block.teams[i]}",
                project=f"p{block.projects[i]:02d}",
            )

    def rows(self) -> Iterator[Row]:
        """Every row, in order. One in `MARKED` carries an identifier that no other row has."""
        first = 0
        for block in self.blocks():
            yield from self.rows_of(block, first, "r")
            first += len(block.topics)

    def writes(self, count: int) -> Iterator[Row]:
        """Rows to be written later, each with an identifier of its own."""
        for number in range(-(-count // BLOCK)):
            part = self.block(number, min(BLOCK, count - number * BLOCK), kind=6)
            yield from self.rows_of(part, number * BLOCK, "w")

    def queries(self, count: int) -> list[Query]:
        """Questions about rows that exist: three or four of its content words, and a vector near its own."""
        rng = _rng(self.seed, 7, self.size)
        targets = rng.choice(self.size, count, replace=count > self.size)
        wanted = {int(t): self._target(int(t)) for t in np.unique(targets)}
        noise = unit(rng.standard_normal((count, DIM)) @ self._spectrum)
        found: list[Query] = []
        for i, target in enumerate(targets):
            content, vector = wanted[int(target)]
            take = int(rng.integers(3, 5))
            picked = rng.choice(content, min(take, len(content)), replace=False)
            words = [self.vocabulary[int(t)] for t in picked] or ["nothing"]
            fill = [FUNCTION_WORDS[int(j)] for j in rng.integers(len(FUNCTION_WORDS), size=6)]
            asked = " ".join(w for pair in zip(fill, words + fill, strict=False) for w in pair)
            found.append(
                Query(
                    id=f"q{i:04d}",
                    text=" ".join(words),
                    question=asked,
                    vector=array("f", unit(vector + 0.5 * noise[i]).tobytes()),
                    team=f"t{rng.integers(TEAMS)}",
                    project=f"p{rng.integers(PROJECTS):02d}",
                )
            )
        return found

    def _target(self, row: int) -> tuple[INT, FLOAT]:
        block = self._cached_block(row // BLOCK)
        i = row % BLOCK
        tokens = np.unique(block.tokens[block.starts[i] : block.starts[i + 1]])
        return tokens[tokens >= len(FUNCTION_WORDS)], block.vectors[i]

    def _cached_block(self, number: int) -> Block:
        if self.__dict__.get("_last", (-1, None))[0] != number:
            self.__dict__["_last"] = (number, self.block(number, BLOCK))
        return self.__dict__["_last"][1]


def save(workload: Workload, folder: Path, *, queries: int, writes: int) -> None:
    """Write what the engines' processes read: rows as lines, vectors as raw float32."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("rows", workload.rows()), ("writes", workload.writes(writes))):
        with (folder / f"{name}.jsonl").open("w") as lines, (folder / f"{name}.f32").open("wb") as vectors:
            for row in rows:
                lines.write(json.dumps([row.id, row.text, row.team, row.project]) + "\n")
                vectors.write(row.vector.tobytes())
    asked = workload.queries(queries)
    with (folder / "queries.jsonl").open("w") as lines, (folder / "queries.f32").open("wb") as vectors:
        for query in asked:
            lines.write(json.dumps([query.id, query.text, query.question, query.team, query.project]) + "\n")
            vectors.write(query.vector.tobytes())
