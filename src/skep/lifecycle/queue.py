"""The judgements that wait, and those that were made; kept as settings, so that every replica knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from skep.digests import blake2b
from skep.engine import Engine
from skep.errors import InvalidInputError, NotFoundError
from skep.lifecycle import deciding
from skep.lifecycle.judge import DECISIONS, Case, Decision
from skep.lifecycle.nearness import by_id, standing
from skep.model import Event, Memory
from skep.semantics.links import chain
from skep.storage.sqlite import Plan

PREFIX = "judgement/"
DAY = 86_400.0
LEAVES_IT = frozenset(
    ("use", "remember", "revise", "link", "unlink", "evidence", "confirm", "dispute", "outcome")
)
"""Events that change neither a judgement nor whether a memory stands."""
MANY = 1000
"""Events since the last count after which counting again is no dearer than looking at them."""
NEVER = 2**62
"""When the oldest decision was made, where there is none."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One pair: `decision` is None while it waits."""

    older: str
    newer: str
    kind: str
    similarity: float
    confidence: float
    decision: str | None = None
    by: str | None = None
    at: float = 0.0
    """When it was decided."""
    words: str = ""
    """A digest of what both said then; empty in judgements of an older skep, which count whatever they say now."""


_decode = msgspec.json.Decoder(Judgement).decode


def key_of(a: str, b: str) -> str:
    """The setting that holds the judgement on two memories."""
    return PREFIX + "|".join(sorted((a, b)))


def words_of(a: Memory, b: Memory) -> str:
    """A short digest of what two memories say, in whatever order they come."""
    first, second = (a, b) if a.id <= b.id else (b, a)
    said = [(first.text, first.polarity), (second.text, second.polarity)]
    return blake2b(msgspec.json.encode(said), digest_size=8).hexdigest()


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Of changed memories: the pairs that rules need not look at again, and those whose words have changed since."""

    pairs: set[str]
    outdated: dict[str, Judgement]
    waiting: Counter[str] = msgspec.field(default_factory=Counter[str])
    """By memory, in how many of the pairs that wait it is."""


def judgements(engine: Engine) -> dict[str, Judgement]:
    """Every judgement. A setting of such a name that is none, of a user or a peer, does not count."""
    kept: dict[str, Judgement | None] = engine.store.settings_under(PREFIX, _judgement)
    return {key: judgement for key, judgement in kept.items() if judgement is not None}


def _judgement(text: str) -> Judgement | None:
    try:
        return _decode(text)
    except msgspec.ValidationError:
        return None


def known_pairs(engine: Engine, changed: Sequence[Memory]) -> Known:
    """The keys of the pairs of changed memories that wait or were decided, and which of them that made outdated."""
    memories = {memory.id: memory for memory in changed}
    kept: dict[str, str] = engine.store.settings_under(PREFIX, str) if memories else {}
    touched: dict[str, Judgement] = {}
    for key, text in kept.items():  # the key tells whose they are; most need not be read for that
        if not memories.keys().isdisjoint(key[len(PREFIX) :].split("|")):
            judgement = _judgement(text)
            if judgement is not None:
                touched[key] = judgement
    both = (i for judgement in touched.values() for i in (judgement.older, judgement.newer))
    memories |= by_id(engine, [i for i in both if i not in memories])
    outdated = {key: judgement for key, judgement in touched.items() if not _still_said(judgement, memories)}
    waiting = Counter[str]()
    for key, judgement in touched.items():
        if judgement.decision is None and key not in outdated:
            waiting.update((judgement.older, judgement.newer))
    return Known(pairs=touched.keys() - outdated.keys(), outdated=outdated, waiting=waiting)


def _still_said(judgement: Judgement, memories: Mapping[str, Memory]) -> bool:
    """Whether two memories say what they said when they were judged, as far as they are known."""
    older, newer = memories.get(judgement.older), memories.get(judgement.newer)
    if older is None or newer is None or not judgement.words:
        return True
    return judgement.words == words_of(older, newer)


def queue_plan(case: Case) -> Plan:
    """The event that queues a case."""
    return _written(case)


def _written(case: Case, decision: Decision | None = None, by: str | None = None, at: float = 0.0) -> Plan:
    judgement = Judgement(
        older=case.older.id,
        newer=case.newer.id,
        kind=case.kind,
        similarity=round(case.similarity, 4),
        confidence=round(case.confidence, 4),
        decision=decision,
        by=by,
        at=at,
        words=words_of(case.older, case.newer),
    )
    return ("setting", {"key": PREFIX + case.key, "value": msgspec.to_builtins(judgement)})


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many judgements there are, as a run of this file last counted them."""

    seq: int
    """The newest event that they were counted with."""
    waiting: int
    decided: int
    oldest: int
    """The second in which the oldest decision was made."""

    def stays(self, now: float, *, most: int, days: float) -> bool:
        """Whether none of them is to be let go yet."""
        return self.decided <= most and (self.oldest == NEVER or self.oldest >= now - days * DAY)


def counted(engine: Engine) -> Count | None:
    """The last count, where nothing has happened since that could change it; None where one has to count again.

    What it costs follows from the events since then, and not from the judgements there are.
    """
    store = engine.store
    count = Count(**{name: store.mark(f"queue/{name}") for name in Count.__struct_fields__})
    if not count.seq or store.last_seq() - count.seq > MANY or engine.embeddings.backlog():
        return None
    quiet = all(
        event.kind in LEAVES_IT
        or (event.kind == "setting" and not str(event.body.get("key")).startswith(PREFIX))
        for event in store.log.after(count.seq)
    )
    return count if quiet else None


def note_count(engine: Engine, count: Count) -> None:
    """Remember a count, in this file alone."""
    with engine.store.writing():
        for name in Count.__struct_fields__:
            engine.store.set_mark(f"queue/{name}", getattr(count, name))


class Kept:
    """Every judgement of a bank, and which memories they are about still stand."""

    def __init__(self, engine: Engine) -> None:
        self.judgements = judgements(engine)
        self._engine = engine
        both = (i for judgement in self.judgements.values() for i in (judgement.older, judgement.newer))
        self._current, self._active = standing(engine, both)

    def set_aside(self, ids: set[str]) -> None:
        """Count these memories as current no more."""
        self._current -= ids
        self._active -= ids

    def count(self, seq: int) -> Count:
        """How many there are, as of an event."""
        decided = [judgement.at for judgement in self.judgements.values() if judgement.decision is not None]
        oldest = int(min(decided)) if decided else NEVER
        return Count(seq=seq, waiting=len(self.waiting()), decided=len(decided), oldest=oldest)

    def waiting(self) -> list[Judgement]:
        """Those that are not decided, both sides still current."""
        active = self._active
        return [
            judgement
            for judgement in self.judgements.values()
            if judgement.decision is None and judgement.older in active and judgement.newer in active
        ]

    def partners(self) -> dict[str, set[str]]:
        """By memory, the others that it waits with."""
        found: dict[str, set[str]] = {}
        for judgement in self.waiting():
            found.setdefault(judgement.older, set()).add(judgement.newer)
            found.setdefault(judgement.newer, set()).add(judgement.older)
        return found

    def pending(self) -> list[Case]:
        """The cases that wait, with their memories; what says something else by now waits for the rules."""
        waiting = self.waiting()
        known = by_id(self._engine, (i for judgement in waiting for i in (judgement.older, judgement.newer)))
        return [
            Case(
                older=known[judgement.older],
                newer=known[judgement.newer],
                kind=judgement.kind,
                similarity=judgement.similarity,
                confidence=judgement.confidence,
            )
            for judgement in waiting
            if judgement.older in known and judgement.newer in known and _still_said(judgement, known)
        ]

    def let_go(self, now: float, *, most: int, days: float) -> list[list[Plan]]:
        """The events that let go of what need not be kept, judgement by judgement.

        What a pair cost its memories before anybody decided on it, they get back: there is nothing left to decide.
        """
        found = {key: self.judgements[key] for key in self.outdated(now, most=most, days=days)}
        return [
            dropped(self._engine, key, judgement, "no longer to be decided")
            if judgement.decision is None
            else [("setting", {"key": key, "value": None})]
            for key, judgement in found.items()
        ]

    def outdated(self, now: float, *, most: int, days: float) -> list[str]:
        """The keys of judgements that need not be kept.

        Those of which a side is no longer current, whether decided or not; those decided long ago; and the oldest
        decisions beyond `most`. A decision that was let go costs at most one more question, and only if one of the two
        memories changes again.
        """
        gone = {
            key
            for key, j in self.judgements.items()
            if j.older not in self._current or j.newer not in self._current
        }
        decided = {
            key: j.at for key, j in self.judgements.items() if j.decision is not None and key not in gone
        }
        newest = sorted(decided, key=lambda key: (-decided[key], key))
        old = [key for key in newest[:most] if decided[key] < now - days * DAY]
        return sorted([*gone, *old, *newest[most:]])


def pending(engine: Engine) -> list[Case]:
    """The cases that wait, both sides still current."""
    return Kept(engine).pending()


def as_they_are(engine: Engine, cases: Sequence[Case]) -> list[Case]:
    """Cases with their memories read again; without those of which one was forgotten."""
    known = by_id(engine, (memory.id for case in cases for memory in (case.older, case.newer)))
    return [
        msgspec.structs.replace(case, older=known[case.older.id], newer=known[case.newer.id])
        for case in cases
        if case.older.id in known and case.newer.id in known
    ]


def dropped(engine: Engine, key: str, judgement: Judgement, why: str) -> list[Plan]:
    """The events that let a judgement go; like any setting, the last writer's word counts in every replica."""
    plans = deciding.reconciled(engine, judgement.older, judgement.newer, why)
    return [*plans, ("setting", {"key": key, "value": None})]


def decided_plans(engine: Engine, case: Case, decision: Decision, by: str) -> list[Plan]:
    """The events that carry out a decision and remember it."""
    remembered = _written(case, deciding.carried_out(case, decision), by, engine.now())
    return [*deciding.plans_for(engine, case, decision, by), remembered]


def resolve(engine: Engine, a: str, b: str, decision: str, by: str) -> list[Event]:
    """Decide one pair that waits."""
    word = decision.strip().upper()
    if word not in DECISIONS:
        raise InvalidInputError(
            f"decision must be one of {', '.join(DECISIONS)}, got {decision!r}", field="decision"
        )
    key = key_of(a, b)
    case = next((case for case in pending(engine) if PREFIX + case.key == key), None)
    if case is None:
        raise NotFoundError(
            f"no judgement on {a} and {b} is pending; `pending_judgements` lists those that are"
        )
    if word == "SUPERSEDED" and case.older.id in chain(case.newer.id, engine.store.get):
        raise InvalidInputError(f"{case.newer.id} was itself replaced by {case.older.id}", field="decision")
    if deciding.carried_out(case, word) != word:  # type: ignore[arg-type]
        raise InvalidInputError(
            f"{case.older.id} is pinned, so no judgement replaces it; decide KEEP_BOTH, or replace it yourself:"
            f" `skep supersede {case.older.id} {case.newer.id}`",
            field="decision",
        )
    events, _ = engine.write(decided_plans(engine, case, word, by))  # type: ignore[arg-type]
    return events
