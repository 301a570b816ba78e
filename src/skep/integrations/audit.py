"""The audit of another memory: its junk, repetitions, contradictions, staleness and secrets. Changes nothing.

Called by `skep audit` with the items of an importer and an empty bank in memory to compare them in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from skep.integrations.hooks import DAY, clip, date
from skep.integrations.importers.item import Item
from skep.integrations.importers.text_files import TEXTS
from skep.text.redaction import redact
from skep.text.terms import STOP, fold, query_terms

if TYPE_CHECKING:
    from skep.bank.bank import Bank


Progress = Callable[[int, int], None]

COMPARED: Final = 20_000
"""Memories compared pair by pair; in a larger file the newest ones are."""
EXAMPLES: Final = 5
OLD_DAYS: Final = 365
OLD: Final = "over a year old and never confirmed"
"""Worth a look, but no fault by itself: it does not count among what has a finding."""
MIN_WORDS: Final = 2
SYMBOL_SHARE: Final = 0.45
EXAMPLE_CHARS: Final = 100

_ASSISTANT = re.compile(
    r"\b(?:as an ai (?:language )?model|you are (?:an? )?(?:helpful |ai )+assistant|i(?:'m| am) (?:sorry|unable)|"
    r"i cannot (?:assist|help)|system prompt|the (?:user|assistant) (?:said|asked|wants|is asking))\b",
    re.I,
)
_LOG = re.compile(
    r"traceback \(most recent|^[ \t]*at [^\s(]+\(.*:\d+\)|"
    r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d.*(?:INFO|DEBUG|WARN|ERROR)",
    re.I | re.M,
)
_BLOB = re.compile(r"^[A-Za-z0-9+/=_-]{40,}$|^[0-9a-f-]{32,}$")
_PASSING = re.compile(
    r"\b(?:today|tomorrow|tonight|yesterday|this (?:morning|week|month|sprint)|next (?:week|month|sprint)|right now|"
    r"at the moment|currently|for now|in progress|wip)\b",
    re.I,
)
_YEAR = re.compile(
    r"\b(?:until|by|before|due|expires?|deadline)\b[^.]{0,30}?\b(20\d\d)(?:-(\d\d)-(\d\d))?", re.I
)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One case of a finding."""

    text: str
    source: str
    other: str | None = None
    other_source: str = ""
    note: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of trouble: how often, in how many memories, and some cases."""

    name: str
    count: int
    """Memories, or pairs of them where two are compared."""
    memories: int
    """Different memories that are concerned; of two that say the same, one is."""
    pairs: bool = False
    examples: tuple[Example, ...] = ()


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `affected` are memories with a finding besides their age."""

    source: str
    memories: int
    compared: int
    affected: int
    tokens: int
    wasted_tokens: int
    """Tokens of junk and repetitions: what an agent pays for nothing."""
    median_age_days: float | None
    oldest: str | None
    junk: tuple[Finding, ...]
    duplicates: tuple[Finding, ...]
    contradictions: tuple[Finding, ...]
    staleness: tuple[Finding, ...]
    secrets: tuple[Finding, ...]


def junk_of(text: str, title: str = "") -> str | None:
    """Why a text is not worth keeping as a memory; None if it may be. A title adds to what it means."""
    plain = text.strip()
    if _BLOB.match(plain):
        return "a key, a hash or encoded data"
    words = [term for term in query_terms(f"{title} {plain}") if term not in STOP]
    if len(words) < MIN_WORDS:
        return "too little to mean anything"
    if _LOG.search(plain):
        return "a log or a stack trace"
    if plain[0] in "{[" and plain[-1] in "}]":
        return "raw data"
    if _ASSISTANT.search(plain):
        return "talk about the conversation, not knowledge"
    symbols = sum(not (char.isalnum() or char.isspace()) for char in plain)
    if symbols > SYMBOL_SHARE * len(plain):
        return "mostly symbols"
    return None


def staleness_of(item: Item, now: float) -> str | None:
    """Why a memory probably no longer holds; None if nothing says so."""
    until = item.fields.get("valid_to")
    if isinstance(until, float) and until < now:
        return "its time of validity is over"
    made = item.fields.get("created_at")
    age = (now - made) / DAY if isinstance(made, float) else None
    due = _YEAR.search(item.text)
    if due is not None and int(due[1]) < int(date(now)[:4]):
        return "speaks of a deadline in the past"
    if age is not None and age > 30 and _PASSING.search(item.text):
        return "says now or soon, and is over a month old"
    if age is not None and age > OLD_DAYS:
        return OLD
    return None


def audit(
    items: Iterable[Item], *, source: str, now: float, bank: Bank, progress: Progress | None = None
) -> Audit:
    """Examine memories.

    Args:
        items: What an importer read.
        source: What the file was taken for.
        now: Seconds since the epoch.
        bank: An empty bank in memory, to compare in; it is filled.
        progress: Called with how many memories were compared, and of how many.
    """
    everything = list(items)
    bad: set[str] = set()
    wasted: set[str] = set()
    junk = _collect(everything, lambda item: junk_of(item.text, str(item.fields.get("title", ""))), bad)
    wasted |= bad
    stale = _collect(everything, lambda item: staleness_of(item, now), bad)
    secrets = _secrets(everything, bad)
    exact, unique = _repeated(everything, bad, wasted)
    newest = sorted(unique, key=lambda item: -float(item.fields.get("created_at") or 0.0))[:COMPARED]
    near, opposed = _compare(newest, bank, bad, wasted, progress)
    times = [made for item in everything if isinstance(made := item.fields.get("created_at"), float)]
    return Audit(
        source=source,
        memories=len(everything),
        compared=len(newest),
        affected=len(bad),
        tokens=sum(len(item.text) for item in everything) // 4,
        wasted_tokens=sum(len(item.text) for item in everything if item.key in wasted) // 4,
        median_age_days=round((now - median(times)) / DAY, 1) if times else None,
        oldest=date(min(times)) if times else None,
        junk=junk,
        duplicates=tuple(found for found in (exact, near) if found.count),
        contradictions=opposed,
        staleness=stale,
        secrets=secrets,
    )


def _collect(items: Sequence[Item], why: Callable[[Item], str | None], bad: set[str]) -> tuple[Finding, ...]:
    cases: dict[str, list[Item]] = {}
    for item in items:
        reason = why(item)
        if reason is not None:
            cases.setdefault(reason, []).append(item)
            if reason != OLD:
                bad.add(item.key)
    ordered = sorted(cases.items(), key=lambda case: -len(case[1]))
    return tuple(
        Finding(
            name=name,
            count=len(found),
            memories=len(found),
            examples=tuple(_example(item) for item in found[:EXAMPLES]),
        )
        for name, found in ordered
    )


def _secrets(items: Sequence[Item], bad: set[str]) -> tuple[Finding, ...]:
    """Secrets stored in the clear; the examples show the place, not the secret."""
    cases: dict[str, list[Example]] = {}
    for item in items:
        clean = redact(item.text)
        for kind in clean.kinds:
            bad.add(item.key)
            text = clip(clean.text.replace("\n", " "), EXAMPLE_CHARS)
            cases.setdefault(kind, []).append(Example(text=text, source=_source(item)))
    return tuple(
        Finding(name=kind, count=len(found), memories=len(found), examples=tuple(found[:EXAMPLES]))
        for kind, found in sorted(cases.items(), key=lambda case: -len(case[1]))
    )


def _repeated(items: Sequence[Item], bad: set[str], wasted: set[str]) -> tuple[Finding, list[Item]]:
    """Texts that are the same but for case and blanks."""
    first: dict[str, Item] = {}
    again: Counter[str] = Counter()
    for item in items:
        key = " ".join(fold(item.text).split())
        if key in first:
            again[key] += 1
            bad.add(item.key)
            wasted.add(item.key)
        else:
            first[key] = item
    examples = tuple(
        Example(
            text=clip(first[key].text, EXAMPLE_CHARS), source=_source(first[key]), note=f"{count + 1} times"
        )
        for key, count in again.most_common(EXAMPLES)
    )
    count = again.total()
    return Finding(name="word for word", count=count, memories=count, examples=examples), list(first.values())


def _compare(
    items: Sequence[Item], bank: Bank, bad: set[str], wasted: set[str], progress: Progress | None
) -> tuple[Finding, tuple[Finding, ...]]:
    """Conflicts among the items, as the bank's own search finds them."""
    stored = bank.remember_many([item.fields for item in items])
    by_id = {one.memory.id: item for one, item in zip(stored, items, strict=True)}
    cases: dict[str, list[Example]] = {}
    concerned: dict[str, set[str]] = {}
    for conflict in bank.find_conflicts(progress=progress):
        if conflict.memory is None:
            continue
        one, other = by_id[conflict.existing.id], by_id[conflict.memory.id]
        hit = {other.key} if conflict.kind == "duplicate" else {one.key, other.key}
        concerned.setdefault(conflict.kind, set()).update(hit)
        bad |= hit
        if conflict.kind == "duplicate":
            wasted.add(other.key)
        cases.setdefault(conflict.kind, []).append(
            Example(
                text=clip(one.text, EXAMPLE_CHARS),
                source=_source(one),
                other=clip(other.text, EXAMPLE_CHARS),
                other_source=_source(other),
                note=f"{conflict.reason}, similarity {conflict.similarity:.2f}",
            )
        )
    names = {
        "duplicate": "in other words",
        "contradiction": "contradict each other",
        "update": "differ, and one probably replaces the other",
    }
    found = {
        kind: Finding(
            name=name,
            count=len(cases.get(kind, ())),
            memories=len(concerned.get(kind, ())),
            pairs=True,
            examples=tuple(cases.get(kind, ())[:EXAMPLES]),
        )
        for kind, name in names.items()
    }
    opposed = tuple(finding for kind, finding in found.items() if kind != "duplicate" and finding.count)
    return found["duplicate"], opposed


def _example(item: Item) -> Example:
    return Example(text=clip(item.text.replace("\n", " "), EXAMPLE_CHARS), source=_source(item))


def _source(item: Item) -> str:
    return str(item.fields.get("source", ""))


def report(found: Audit) -> str:
    """The audit as a person reads it."""
    if not found.memories:
        return (
            f"No memories found, read as {found.source}. If it is something else, say what with --from; "
            f"in plain files a text is looked for under {', '.join(TEXTS)}."
        )
    lines = [
        f"{_many(found.memories, 'memory', 'memories')}, about {found.tokens:,} tokens, read as {found.source}",
        f"{found.affected:,} ({found.affected / found.memories:.0%}) have a finding besides their age; "
        f"{found.wasted_tokens:,} tokens ({found.wasted_tokens / max(1, found.tokens):.0%}) are junk or said twice",
    ]
    if found.median_age_days is not None:
        lines.append(f"median age {found.median_age_days:,.0f} days, the oldest from {found.oldest}")
    if found.compared < found.memories:
        lines.append(f"{found.compared:,} different ones were compared with one another")
    clean: list[str] = []
    for title, findings in (
        ("Junk", found.junk),
        ("Said twice", found.duplicates),
        ("Contradictions", found.contradictions),
        ("Stale", found.staleness),
        ("Secrets and personal data", found.secrets),
    ):
        if not findings:
            clean.append(title.lower())
            continue
        lines += ["", title]
        for finding in findings:
            lines.append(f"  {_figures(finding, found.memories)} {finding.name}")
            lines += [_case(example) for example in finding.examples]
            if finding.count > len(finding.examples) > 1:
                lines.append(f"    … and {finding.count - len(finding.examples):,} more")
    if clean:
        lines += ["", f"None found: {', '.join(clean)}."]
    own = "`skep maintain --dry-run` shows what it would clean up."
    other = "`skep import` takes the file in; `skep maintain` then cleans up."
    lines += ["", f"Nothing was changed. {own if found.source == 'skep' else other}"]
    return "\n".join(lines)


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _figures(finding: Finding, total: int) -> str:
    share = f"{finding.memories / total:.1%}"
    if not finding.pairs:
        return f"{finding.count:,} ({share})"
    return (
        f"{_many(finding.count, 'pair', 'pairs')} ({_many(finding.memories, 'memory', 'memories')}, {share})"
    )


def _case(example: Example) -> str:
    if example.other is None:
        notes = "; ".join(part for part in (example.note, example.source) if part)
        return f"    - {example.text!r}" + (f"  ({notes})" if notes else "")
    first = f"    - {example.text!r}" + (f"  ({example.source})" if example.source else "")
    second = f"      {example.other!r}" + (f"  ({example.other_source})" if example.other_source else "")
    return f"{first}\n{second}\n      {example.note}"
