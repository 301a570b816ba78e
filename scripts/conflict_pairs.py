"""Pairs to learn from: the labelled sets, and pairs made from unlabelled texts so that no style goes with one class."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from conflict_memories import memories

from skep.embedding.static_table import StaticEmbedder
from skep.semantics import lexicon as lx

MIX = "pairmix3"
MEMORIES = 2500
CORPORA = {
    "msc_personas": 3.0, "wordnet": 1.0, "rules": 2.0, "commits": 1.5, "debian": 1.0, "so_titles": 0.5,
    "clinc150": 0.7, "locomo_turns": 1.0, "locomo_obs": 2.0, "realmem": 1.5, "hotpot_distractor": 2.0,
    "timeqa": 1.5, "scifact": 1.0, "beam_100k": 1.0, "amplihack_hive": 1.0, "automem": 0.7, "factcon_32k": 1.0,
}  # fmt: skip
"""Unlabelled texts, and their share of the made pairs."""
LONG = lx.word_set("hotpot_distractor timeqa scifact beam_100k locomo_turns realmem rules automem debian")


class Pair(NamedTuple):
    """Two texts and what they are to each other."""

    a: str
    b: str
    label: str
    source: str
    mix: bool = False


def read(root: Path, name: str, part: str) -> list[dict[str, Any]]:
    """One part (pairs, corpus) of a set."""
    path = root / "conv" / name / f"{part}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _inference(row: dict[str, Any]) -> str | None:
    return row["label"] if row["label"] in ("contradiction", "neutral") else None


def _paraphrase(row: dict[str, Any]) -> str | None:
    return "duplicate" if row["label"] == "duplicate" else None


def _sick(row: dict[str, Any]) -> str | None:
    if row["label"] == "entailment":
        return "duplicate" if row["score"] >= 4.5 else None
    return row["label"]


def _graded(row: dict[str, Any]) -> str | None:
    return "duplicate" if row["score"] >= 4.5 else "neutral" if row["score"] < 3 else None


READERS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "sick": _sick,
    "mnli_watson": _inference,
    "negnli": _inference,
    "conjnli": _inference,
    "fever_sym": _inference,
    "factcon_32k": _inference,
    "factcon_6k": _inference,
    "scone": _inference,
    "scifact": _inference,
    "scifact_antonym": _inference,
    "amplihack_forget": _inference,
    "beam_100k": _inference,
    "commits": _inference,
    "qqp": _paraphrase,
    "mrpc": _paraphrase,
    "paws_qqp": _paraphrase,
    "stsb_en": _graded,
}


def labelled(root: Path, *, cap: int = 1000, seed: int = 0) -> list[Pair]:
    """The mixed set, and at most `cap` further pairs per source and label from the sets it was drawn from."""
    rng = random.Random(seed)
    pairs = [Pair(r["a"], r["b"], r["label"], r["source"], True) for r in read(root, MIX, "pairs")]
    seen = {(p.a, p.b) for p in pairs}
    for name, label_of in READERS.items():
        cells: defaultdict[str, list[Pair]] = defaultdict(list)
        for row in read(root, name, "pairs"):
            label = label_of(row)
            if label and (row["a"], row["b"]) not in seen:
                seen.add((row["a"], row["b"]))
                cells[label].append(Pair(row["a"], row["b"], label, name))
        for cell in cells.values():
            rng.shuffle(cell)
            pairs += cell[:cap]
    return pairs


def components(pairs: Sequence[Pair]) -> np.ndarray:
    """Pairs that share a text, directly or through others, get one number: they are held out together."""
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    def key_of(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    for pair in pairs:
        parent[find(key_of(pair.a))] = find(key_of(pair.b))
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(find(key_of(p.a)), len(numbers)) for p in pairs])


def _lower(text: str) -> str:
    keep = len(text) > 1 and (text[1].isupper() or text.startswith(("I ", "I'")))
    return text if keep or not text else text[0].lower() + text[1:]


def _tokens(text: str) -> list[str]:
    return [re.sub(r"^\W+|\W+$", "", word) for word in text.split(" ")]


def _put(text: str, place: int, new: str) -> str | None:
    words = text.split(" ")
    found = re.match(r"^(\W*)([\w'-]+)(.*)$", words[place])
    if not found:
        return None
    if found[2][0].isupper() and new[0].islower() and found[2] != "I":
        new = new[0].upper() + new[1:]
    words[place] = found[1] + new + found[3]
    return " ".join(words)


AUXILIARIES = lx.word_set("is are was were can could will would should must has have had do does did")
IMPERATIVES = lx.word_set("""use always prefer add avoid keep write make create include follow ensure run set
    remove fix allow support do provide implement update show check handle""")
FRAMES = (
    "I think {}", "{}, as said", "Note: {}", "Remember that {}", "Actually, {}", "Also, {}", "Just so you know, {}",
    "{} (confirmed)", "The user said that {}", "It is known that {}",
)  # fmt: skip
DENIALS = (
    "It is not true that {}", "It is false that {}", "Nobody thinks that {}", "Revert: {}", "Undo: {}",
    "Cancel this: {}", "{} is wrong", "{} is no longer true", 'Revert "{}"', "Disregard that {}",
)  # fmt: skip
SHARES = {
    "reword": 33, "negate": 12, "oppose": 6, "revalue": 17, "random": 6, "near": 13, "resubject": 9, "append": 5,
}  # fmt: skip
"""How often each kind of pair is made."""
FILLERS = lx.word_set("really very just also currently usually quite only new then that so own")


class Maker:
    """Rewrites a text so that the label of the pair is known."""

    def __init__(
        self, rng: random.Random, synonyms: dict[str, list[str]], opposites: dict[str, list[str]],
        near: Callable[[str], list[str]],
    ) -> None:  # fmt: skip
        self.rng, self.synonyms, self.opposites, self.near = rng, synonyms, opposites, near

    def _synonym(self, text: str) -> str | None:
        found = [(i, w) for i, w in enumerate(_tokens(text)) if w in self.synonyms]
        if not found:
            return None
        place, word = self.rng.choice(found)
        return _put(text, place, self.rng.choice(self.synonyms[word]))

    def _article(self, text: str) -> str | None:
        found = [i for i, w in enumerate(_tokens(text)) if w.lower() in ("a", "an", "the")]
        if not found:
            return None
        words, place = text.split(" "), self.rng.choice(found)
        if self.rng.random() < 0.5:
            words[place] = "a" if words[place].lower() == "the" else "the"
        else:
            del words[place]
        return " ".join(words)

    def _swap_conjuncts(self, text: str) -> str | None:
        found = re.search(r"\b(\w+) (and|or) (\w+)\b", text)
        return (
            text[: found.start()] + f"{found[3]} {found[2]} {found[1]}" + text[found.end() :]
            if found
            else None
        )

    def _front(self, text: str) -> str | None:
        pattern = r"^(.{12,}?) ((?:in|on|at|for|during|after|before|with) [^,.?!]{4,40})([.?!]?)$"
        found = re.match(pattern, text)
        return f"{found[2][0].upper()}{found[2][1:]}, {_lower(found[1])}{found[3]}" if found else None

    def _frame(self, text: str) -> str:
        return self.rng.choice(FRAMES).format(_lower(text).rstrip("."))

    def _respell(self, text: str) -> str:
        return self.rng.choice(
            (
                text.lower(),
                text.rstrip(".!") + ("" if text.endswith(".") else "."),
                text.replace("n't", " not").replace("'m", " am").replace("'ve", " have").replace("'s", " 's"),
                text.replace(" do not ", " don't ")
                .replace(" is not ", " isn't ")
                .replace(" cannot ", " can't "),
            )
        )

    def _trim(self, text: str) -> str | None:
        words = text.split(" ")
        found = [i for i, w in enumerate(words) if w.lower() in FILLERS or w.endswith("ly")]
        if found:
            del words[self.rng.choice(found)]
        return " ".join(words) if found else None

    def reword(self, text: str, times: int) -> str:
        """The same in other words."""
        ways = (
            self._synonym, self._synonym, self._article, self._swap_conjuncts, self._front, self._frame,
            self._respell, self._trim,
        )  # fmt: skip
        for _ in range(times):
            text = self.rng.choice(ways)(text) or text
        return text

    def _affirm(self, text: str) -> str | None:
        words = text.split(" ")
        for i, word in enumerate(words):
            low = word.lower()
            if low == "not":
                del words[i]
                return " ".join(words)
            if low.endswith("n't") and low not in ("can't", "won't"):
                words[i] = word[:-3]
                return " ".join(words)
            if low in ("never", "no"):
                words[i] = "always" if low == "never" else "a"
                return " ".join(words)
        return None

    def _negate_auxiliary(self, words: list[str]) -> bool:
        rng = self.rng
        for i, word in enumerate(words[:10]):
            low = word.lower()
            if low in ("i'm", "i'll", "i've", "we're", "he's", "she's", "it's", "you're"):
                words.insert(i + 1, "not")
                return True
            if low not in AUXILIARIES or i == 0:
                continue
            if (
                low in ("has", "have", "had")
                and i + 1 < len(words)
                and not words[i + 1].endswith(("ed", "en"))
            ):
                words[i] = {"has": "does not have", "have": "do not have", "had": "did not have"}[low]
            elif low in ("will", "can"):
                words[i] = {"will": "won't", "can": "can't"}[low] if rng.random() < 0.5 else word + " not"
            elif rng.random() < 0.3 and low != "must":
                words[i] = word + "n't"
            elif low in ("is", "are", "was", "were") and rng.random() < 0.3:
                words.insert(i + 1, rng.choice(("no longer", "never")))
            else:
                words.insert(i + 1, "not")
            return True
        return False

    def negate(self, text: str) -> str | None:
        """The contrary, by negation."""
        tokens = _tokens(text)
        if any(w.lower() in lx.NEGATORS or w.lower().endswith("n't") for w in tokens):
            return self._affirm(text)
        if self.rng.random() < 0.1:
            return self.rng.choice(DENIALS).format(_lower(text).rstrip("."))
        words = text.split(" ")
        if self._negate_auxiliary(words):
            return " ".join(words)
        first = words[0].lower()
        if (
            first in ("i", "we", "you", "they")
            and len(words) > 2
            and words[1].isalpha()
            and words[1][-2:] != "ed"
        ):
            words.insert(1, self.rng.choice(("don't", "do not", "never", "no longer")))
            return " ".join(words)
        if first in ("he", "she", "it", "this") and len(words) > 2 and re.fullmatch(r"\w+[^s]s", words[1]):
            words[1] = "does not " + words[1][:-1]
            return " ".join(words)
        if words[0][:1].isupper() and first in IMPERATIVES:
            rest = text[7:] if first == "always" else text
            return self.rng.choice(("Never ", "Don't ", "Do not ", "Stop trying to ")) + _lower(rest)
        return None

    def oppose(self, text: str) -> str | None:
        """The contrary, by an opposite word."""
        found = [(i, w) for i, w in enumerate(_tokens(text)) if w in self.opposites]
        if not found:
            return None
        place, word = self.rng.choice(found)
        return _put(text, place, self.rng.choice(self.opposites[word]))

    def revalue(self, text: str, names: Sequence[str]) -> str | None:
        """The same subject and relation with another value."""
        rng, tokens = self.rng, _tokens(text)
        numbers = [i for i, w in enumerate(tokens) if re.fullmatch(r"\d{1,6}(?:\.\d+)?", w)]
        proper = [
            i for i, w in enumerate(tokens)
            if i and w[:1].isupper() and len(w) > 2 and not tokens[i - 1][:1].isupper()
        ]  # fmt: skip
        last = [
            i for i in range(max(1, len(tokens) - 3), len(tokens))
            if tokens[i].isalpha() and tokens[i].islower() and tokens[i] not in lx.STOP and len(tokens[i]) > 3
        ]  # fmt: skip
        ways = [way for way in (numbers, proper, last) if way]
        if not ways:
            return None
        way = rng.choice(ways)
        if way is numbers:
            place = rng.choice(numbers)
            old = tokens[place]
            new = f"{float(old) * rng.choice((1.1, 0.5, 2, 1.5)):.1f}" if "." in old else str(
                abs(int(old) + rng.choice((1, 2, 3, 5, 10, -1, 20)))
            )  # fmt: skip
            return _put(text, place, new) if new != old else None
        if way is proper:
            start = end = rng.choice(proper[-2:])
            while end + 1 < len(tokens) and tokens[end + 1][:1].isupper():
                end += 1
            words = text.split(" ")
            trail = re.search(r"\W*$", words[end])
            words[start : end + 1] = [rng.choice(names) + (trail[0] if trail else "")]
            return " ".join(words)
        place = rng.choice(last)
        others = self.near(tokens[place])
        return _put(text, place, rng.choice(others)) if others else None

    def resubject(self, text: str, names: Sequence[str]) -> str | None:
        """The same statement about somebody else."""
        found = re.match(r"^(?:The |the )?([A-Z][\w.'-]+(?: (?:of |the )?[A-Z][\w.'-]+)*)", text)
        pronouns = lx.word_set("I The A It He She We They You This That In My")
        if not found or found[1] in pronouns or len(text.split()) < 4:
            return None
        return text[: found.start(1)] + self.rng.choice(names) + text[found.end(1) :]


def _synonyms(entries: Iterable[str]) -> dict[str, list[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    senses: Counter[str] = Counter()
    for entry in entries:
        words = [w.strip().lower() for w in entry.split(":", 1)[0].split(",")]
        words = [w for w in words if w.isalpha()]
        for word in words:
            senses[word] += 1
            found[word].update(w for w in words if w != word)
    return {w: sorted(v) for w, v in found.items() if v and senses[w] <= 2 and w not in lx.STOP}


def _opposites(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    listed = (tuple(e.split()) for e in lx.OPPOSITES.replace("\n", " ").split(";"))
    for a, b in (*pairs, *(e for e in listed if len(e) == 2)):
        found[a].append(b)
        found[b].append(a)
    return dict(found)


def _neighbours(embedder: StaticEmbedder, words: list[str]) -> Callable[[str], list[str]]:
    rows = embedder.embed(words)
    rows -= rows.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    place = {w: i for i, w in enumerate(words)}
    known: dict[str, list[str]] = {}

    def near(word: str) -> list[str]:
        if word not in place:
            return []
        if word not in known:
            cosines = rows @ rows[place[word]]
            order = np.argsort(-cosines)[2:40]
            known[word] = [words[i] for i in order if 0.2 < cosines[i] < 0.62 and words[i][:4] != word[:4]]
        return known[word]

    return near


def _sentences(root: Path, name: str, rng: random.Random) -> list[str]:
    out: set[str] = set()
    for row in read(root, name, "corpus"):
        text = row["text"].strip()
        if name == "wordnet":
            text = text.split(":", 1)[1]
        if name in LONG:
            text = rng.choice(re.split(r"(?<=[.!?])\s+", text))
        text = " ".join(text.split())
        if 4 <= len(text.split()) <= 45:
            out.add(text)
    texts = sorted(out)
    rng.shuffle(texts)
    return texts[:4000]


def made(root: Path, common: Sequence[str], *, count: int = 9000, seed: int = 0) -> list[Pair]:
    """Pairs of all three classes from unlabelled texts of many styles. `common` are frequent words."""
    rng = random.Random(seed)
    embedder = StaticEmbedder()
    listed = [(r["a"].lower(), r["b"].lower()) for r in read(root, "wordnet", "pairs")]
    maker = Maker(
        rng,
        _synonyms(r["text"] for r in read(root, "wordnet", "corpus")),
        _opposites((a, b) for a, b in listed if a.isalpha() and b.isalpha()),
        _neighbours(embedder, [w for w in common if w.isalpha() and len(w) > 3]),
    )
    pairs: list[Pair] = []
    for name, share in CORPORA.items():
        texts = _sentences(root, name, rng)
        rows = embedder.embed(texts)
        names = [
            m for t in texts[:2000]
            for m in re.findall(r"(?<=[a-z] )[A-Z][\w-]+(?: [A-Z][\w-]+)*", t) if len(m) > 2
        ] or ["Paris", "Berlin", "Alice", "Python"]  # fmt: skip
        wanted = int(count * share / sum(CORPORA.values()))
        found: list[Pair] = []
        for place, text in enumerate(texts):
            if len(found) >= wanted:
                break
            other, label = _make_one(maker, text, place, texts, rows, names, embedder)
            if other and other != text:
                a, b = (text, other) if rng.random() < 0.5 else (other, text)
                found.append(Pair(a, b, label, name))
        pairs += found
    remembered = (Pair(a, b, label, "memories") for a, b, label in memories(MEMORIES, rng) if a != b)
    return [*pairs, *remembered]


def _make_one(
    maker: Maker, text: str, place: int, texts: list[str], rows: np.ndarray, names: list[str],
    embedder: StaticEmbedder,
) -> tuple[str | None, str]:  # fmt: skip
    rng = maker.rng
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    times = rng.choice((0, 0, 1, 1, 2, 3))
    if kind == "reword":
        return maker.reword(text, rng.choice((1, 2, 2, 3, 4))), "duplicate"
    if kind == "random":
        return rng.choice(texts), "neutral"
    if kind == "near":
        cosines = rows @ rows[place]
        order = [int(i) for i in np.argsort(-cosines)[1:25]]
        order = [i for i in order if 0.2 < embedder.calibrate(float(cosines[i])) < 0.78]
        return (texts[rng.choice(order)] if order else None), "neutral"
    if kind == "append":
        joined = text.rstrip(".") + rng.choice((" and ", ". ", ", and ", "; ")) + _lower(rng.choice(texts))
        return maker.reword(joined, times), "neutral"
    if kind == "resubject":
        other = maker.resubject(text, names)
        if other and rng.random() < 0.5:
            other = maker.revalue(other, names) or other
        return (maker.reword(other, times) if other else None), "neutral"
    if text.endswith("?"):
        return None, "contradiction"
    if kind == "revalue":
        indefinite = re.match(r"(?i)(a|an|some|two|several|there)\b", text)
        other = None if indefinite else maker.revalue(text, names)
    else:
        other = maker.negate(text) if kind == "negate" else maker.oppose(text)
    return (maker.reword(other, times) if other and other != text else None), "contradiction"
