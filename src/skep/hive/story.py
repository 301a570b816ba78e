"""A small story for the demo, made up from a seed: many facts, and questions that each need one of them."""

from __future__ import annotations

import random

import msgspec

_KEEPERS = (
    "Ada", "Bruno", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Iris", "Jonas",
    "Kira", "Luis", "Mona", "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sven", "Tara",
)  # fmt: skip
_PLACES = (
    "the mill", "the north meadow", "the lime avenue", "the chapel garden", "the old quarry", "the river bend",
    "the school roof", "the south orchard", "the railway bank", "the herb terrace",
)  # fmt: skip
_FLOWERS = ("lime", "clover", "acacia", "heather", "buckwheat", "lavender", "chestnut", "rapeseed")
_COLOURS = ("blue", "yellow", "white", "green", "red", "grey", "orange", "violet")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One fact of the story, and a question that it answers."""

    fact: str
    question: str


def story(count: int, seed: int = 7) -> list[Part]:
    """The parts of a story about a village of beekeepers; as many as asked for, all different."""
    rng = random.Random(seed)
    parts: dict[str, Part] = {}
    number = 0
    while len(parts) < count:
        keeper = _KEEPERS[number % len(_KEEPERS)]
        place, flower, colour = rng.choice(_PLACES), rng.choice(_FLOWERS), rng.choice(_COLOURS)
        hive, amount, day = 100 + number, rng.randint(4, 38), rng.randint(1, 28)
        kinds = (
            (f"{keeper} keeps hive {hive} at {place}.", f"Where does {keeper} keep hive {hive}?"),
            (f"Hive {hive} gave {amount} kilos of {flower} honey.", f"How much honey did hive {hive} give?"),
            (f"The lid of hive {hive} is painted {colour}.", f"What colour is the lid of hive {hive}?"),
            (
                f"{keeper} saw the queen of hive {hive} on May {day}.",
                f"When was the queen of hive {hive} seen?",
            ),
            (f"Hive {hive} swarmed towards {place}.", f"Where did the bees of hive {hive} swarm to?"),
        )
        fact, question = kinds[number % len(kinds)]
        parts[fact] = Part(fact=fact, question=question)
        number += 1
    return list(parts.values())
