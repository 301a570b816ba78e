"""The second look: what only the best candidates are worth. Neighbours, texts, one another, time, currency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from skep.model import ANY
from skep.retrieval import candidates as stage
from skep.retrieval import currency, query, shortlist_features
from skep.retrieval import currency as currency_module
from skep.retrieval import score as score_module
from skep.retrieval.query import identifiers
from skep.runtime import product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.candidates import Call, Candidates


if TYPE_CHECKING:
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

AFTER = 0.8
"""What the memory after one counts, as a share of the one before it: answers follow questions."""
FADE = 0.6
"""What a neighbour one step further away counts, as a share of the nearer one."""
BY_TEXT = ("late", "close", "subject", "another", "elsewhere", "author", "title", "wanted", "guidance")
"""Weights for which the texts of the short list are read."""


def second_look(found: Candidates, call: Call) -> Candidates:
    """The candidates, best first, after everything the config asks of the short list."""
    config = call.config
    if (config.context > 0 or config.coverage > 0 or config.numbers > 0) and call.asked.terms:
        found = _words_again(found, call)
    if any(getattr(config, name) > 0 for name in BY_TEXT):
        found = _texts(found, call)
    if (config.contrast > 0 or config.peers > 0) and call.vector is not None:
        found = _company(found, call)
    if config.bridge > 0 and len(found) > 1:
        found = _bridged(found, call)
    if config.thread > 0 and len(found) > 1:
        found = _threaded(found, call)
    if config.home > 0 and len(found) > 1:
        found = _at_home(found, call)
    if config.echo > 0 and len(found) > 1:
        found = _echoed(found, call)
    if config.phrase > 0 and call.asked.phrases:
        texts = _worded(call.sources.texts(found.rows), found, call)
        found = query.quoted(found, texts, call, stage.unit(config))
    if config.temporal == "boost" and call.asked.spans:
        found = _in_time(found, call)
    if config.currency and not call.asked.former:
        found = _current(found, call)
    return found


def filled(own: Floats, near: Floats, weight: float) -> Floats:
    """Each query word counted once, by its best evidence: in the memory itself or, for less, beside it.

    Args:
        own: Impact of each word (columns) on each memory (rows).
        near: The same for the neighbours, [memory, neighbour, word], from far before to far after.
        weight: What the memory just before counts; further ones and those after count less.
    """
    window = near.shape[1] // 2
    shares = [weight * FADE ** (step - 1) for step in range(1, window + 1)]
    best = np.maximum(own, 0.0)
    for place, share in enumerate([*shares[::-1], *(AFTER * share for share in shares)]):
        np.maximum(best, near[:, place] * share, out=best)
    return best


def coverage(impacts: Floats, idf: Floats) -> Floats:
    """How much of the query each memory holds: its words, weighted by how rare they are."""
    total = float(idf.sum())
    return (impacts > 0) @ idf / total if total > 0 else np.zeros(len(impacts))


def _words_again(found: Candidates, call: Call) -> Candidates:
    """The best candidates and their neighbours, by words that may stand in a neighbour, and by coverage."""
    config, sources, terms = call.config, call.sources, call.asked.terms
    columns, head = found.columns, found.at[: config.reach]
    near, joined = np.zeros((len(head), 0), dtype=np.int64), 0
    if config.context > 0:
        near = sources.around(columns.rows[head], config.window, call.where)
        fresh = _beside(near[: config.shortlist], columns.rows)
        if len(fresh):
            joined = len(fresh)
            columns = stage.join(columns, stage.of_pool(sources.lookup(fresh, (), call.vector), call))
            head = np.concatenate([head, np.arange(len(columns.rows) - joined, len(columns.rows))])
            near = np.concatenate([near, sources.around(fresh, config.window, call.where)])
    own, whole = _impacts(columns.rows[head], columns.former[head], near, call)
    words = columns.words.copy()
    words[head] = whole.sum(axis=1)
    idf = sources.idf(terms)
    shown = {"coverage": np.zeros(len(words))}
    shown["coverage"][head] = coverage(whole, idf)
    if own is not whole:
        shown["held"] = np.zeros(len(words))
        shown["held"][head] = coverage(own, idf)
    extra = config.coverage * shown["coverage"]
    exact = [at for at, term in enumerate(terms) if any(map(str.isdigit, term))] if config.numbers > 0 else []
    if exact:
        shown["numbers"] = np.zeros(len(words))
        shown["numbers"][head] = coverage(own[:, exact], idf[exact])
        extra = extra + config.numbers * shown["numbers"]
    before = columns.before
    if near.size:
        before = before.copy()
        before[head] = near[:, config.window - 1]
    rated = stage.rate(columns.but(words=words, before=before), call)
    rated = replace(rated, trace=found.trace).lifted(stage.unit(config) * extra, **shown)
    return rated.noted("words again", note=f"{joined} neighbours joined")


def _beside(near: Ints, known: Ints) -> Ints:
    """The neighbours that are no candidates yet."""
    there = near[near >= 0]
    if not len(there):
        return there
    return np.array(sorted(set(there.tolist()) - set(known.tolist())), dtype=np.int64)


def _impacts(rows: Ints, former: Ints, near: Ints, call: Call) -> tuple[Floats, Floats]:
    """Impact of each query word on each row by itself or in what it replaced, and there or beside it."""
    terms = call.asked.terms
    if not (near >= 0).any():
        alone = _inherited(call.sources.impacts(terms, rows).astype(np.float64), former, call)
        return alone, alone
    every, back = np.unique(np.concatenate([rows, near.ravel()]), return_inverse=True)
    impacts = call.sources.impacts(terms, every).astype(np.float64)[back]
    own = _inherited(impacts[: len(rows)], former, call)
    beside = impacts[len(rows) :].reshape(len(rows), near.shape[1], len(terms))
    return own, filled(own, beside, call.config.context)


def _inherited(own: Floats, former: Ints, call: Call) -> Floats:
    """The impacts on rows, or on what they replaced where that is more."""
    heirs = np.flatnonzero(former >= 0)
    if len(heirs):
        old = call.sources.impacts(call.asked.terms, former[heirs]).astype(np.float64)
        own[heirs] = np.maximum(own[heirs], currency_module.SHARE * old)
    return own


def _worded(texts: list[str], found: Candidates, call: Call) -> list[str]:
    """The texts of the first candidates, each with that of what it replaced."""
    former = found.columns.former[found.at[: len(texts)]]
    heirs = np.flatnonzero(former >= 0)
    if not len(heirs):
        return texts
    texts = list(texts)
    for at, old in zip(heirs.tolist(), call.sources.texts(former[heirs]), strict=True):
        texts[at] = f"{texts[at]}\n{old}"
    return texts


def _texts(found: Candidates, call: Call) -> Candidates:
    """The short list by its texts: words and their relatives, the subject, and the kind of answer that is wanted."""
    config, asked, table = call.config, call.asked, call.sources.tokens
    by_pieces = table is not None and (config.late > 0 or config.close > 0)
    by_subject = config.subject > 0 and len(asked.names) > 0
    by_party = config.another > 0 or config.elsewhere > 0
    by_want = config.wanted > 0 and asked.wants in query.READERS
    shown: dict[str, Floats] = {}
    if (
        by_pieces
        or by_subject
        or by_party
        or by_want
        or config.guidance > 0
        or config.title > 0
        or config.author > 0
    ):
        texts = call.sources.texts(found.rows[: config.shortlist])
        extra = np.zeros(len(texts))
        matched = (
            shortlist_features.matches(asked.about, _worded(texts, found, call), table)
            if by_pieces and table is not None
            else None
        )
        if config.late > 0 and matched is not None:
            shown["late"] = shortlist_features.whole_texts(matched)
            extra += config.late * shown["late"]
        if config.close > 0 and matched is not None:
            shown["close"] = shortlist_features.close_together(matched)
            extra += config.close * shown["close"]
        if by_subject:
            shown["subject"] = query.subject(asked.names, texts)
            extra += config.subject * shown["subject"]
        sides = shortlist_features.parties(asked.about, asked.names, texts) if by_party else None
        if sides is not None:
            shown["another"] = 0.0 - shortlist_features.another(
                sides, texts
            )  # it counts against, and is shown so
            extra += config.another * shown["another"]
        if config.author > 0:
            written = query.author(asked.about, call.sources.authors(found.rows[: len(texts)]))
            extra += config.author * written
            shown |= {"author": written} if written.any() else {}
        if config.title > 0:
            headed = score_module.named(asked.about, [score_module.title(text) for text in texts])
            extra += config.title * headed
            shown |= {"title": headed} if headed.any() else {}
        if by_want:
            extra += config.wanted * query.wanted(asked.wants, texts)
        if config.guidance > 0:
            told = shortlist_features.guidance(
                asked.text, texts, found.cosine[: len(texts)], _occasions(texts, call)
            )
            extra += config.guidance * told
            shown |= {"guidance": told} if told.any() else {}
        found = found.lifted(stage.unit(config) * extra, **shown)
    return found.noted("texts", note=", ".join(shown))


def _occasions(texts: Sequence[str], call: Call) -> dict[int, float] | None:
    """How near the query is to the occasion of each standing instruction, by its place; None without a table."""
    table = call.sources.tokens
    if table is None:
        return None
    standing = shortlist_features.places(texts)
    if not standing:
        return {}
    asked = shortlist_features.pooled(call.asked.about, table)
    occasions = [
        shortlist_features.pooled(shortlist_features.occasion(texts[place]), table) for place in standing
    ]
    near = [
        np.nan if each is None or asked is None else table.calibrate(float(each @ asked))
        for each in occasions
    ]
    return dict(zip(standing, near, strict=True))


def _company(found: Candidates, call: Call) -> Candidates:
    """The short list by its vectors: against what all of it has in common, and against one another."""
    config = call.config
    vectors = call.sources.vectors(found.rows[: config.shortlist])
    extra = np.zeros(len(vectors))
    shown: dict[str, Floats] = {}
    if config.contrast > 0 and call.vector is not None:
        shown["contrast"] = contrast(call.vector, vectors)
        extra += config.contrast * shown["contrast"]
    if config.peers > 0:
        alike = call.sources.calibrate(product(vectors, vectors.T)).astype(np.float64)
        shown["peers"] = peers(alike, found.score[: len(vectors)])
        extra += config.peers * shown["peers"]
    return found.lifted(stage.unit(config) * extra, **shown).noted("company", note=", ".join(shown))


def _bridged(found: Candidates, call: Call) -> Candidates:
    """The short list by titles that its first hits name and the query does not."""
    config = call.config
    texts = call.sources.texts(found.rows[: config.shortlist])
    heads = [score_module.title(text) for text in texts]
    guides = texts[: score_module.GUIDES]
    steps = score_module.bridge(call.asked.about, heads, guides, found.score[: len(guides)])
    if not steps.any():
        return found
    lifted = found.lifted(stage.unit(config) * config.bridge * steps, bridge=steps)
    return lifted.noted("bridge", note=f"{int(np.count_nonzero(steps))} named by the first hits")


def _threaded(found: Candidates, call: Call) -> Candidates:
    """The short list by what was said just before: a memory that follows a better one is drawn up to it."""
    config = call.config
    rows = found.rows[: config.shortlist]
    before = found.columns.before[found.at[: len(rows)]]
    drawn = thread(rows, before, found.score[: len(rows)])
    if drawn.any():  # one page of a book after another is no conversation
        drawn[call.sources.scopes(rows).talk == 0] = 0.0
    if not drawn.any():
        return found
    lifted = found.lifted(stage.unit(config) * config.thread * drawn, thread=drawn)
    return lifted.noted("thread", note=f"{int(np.count_nonzero(drawn))} follow a better one")


def thread(rows: Ints, before: Ints, score: Floats) -> Floats:
    """How far each candidate lies behind the one just before it in its session, as a share of the best score.

    >>> thread(np.array([4, 9, 5]), np.array([-1, 8, 4]), np.array([2.0, 1.5, 1.0])).tolist()
    [0.0, 0.0, 0.5]
    """
    best = float(score.max(initial=0.0))
    if best <= 0 or (before < 0).all():
        return np.zeros(len(score))
    scores = dict(zip(rows.tolist(), score.tolist(), strict=True))
    led = np.array([scores.get(row, 0.0) for row in before.tolist()])
    return np.maximum(led - score, 0.0) / best


def _at_home(found: Candidates, call: Call) -> Candidates:
    """The short list by whose it is: the user, project and session that most of the first hits belong to."""
    config = call.config
    rows = found.rows[: config.shortlist]
    over_all = call.asked.over_all or call.asked.about != call.asked.text
    there = shortlist_features.home(call.sources.scopes(rows), found.score[: len(rows)], over_all=over_all)
    if not there.any():
        return found
    lifted = found.lifted(stage.unit(config) * config.home * there, home=there)
    return lifted.noted("home", note=f"{int(np.count_nonzero(there))} where the first hits are")


def _echoed(found: Candidates, call: Call) -> Candidates:
    """The short list by the words that its first hits share and the query has not."""
    config, sources = call.config, call.sources
    rows, score = (
        found.rows[: config.shortlist],
        found.score[: min(config.shortlist, shortlist_features.VOICES)],
    )
    said = shortlist_features.voices(sources.texts(rows[: len(score)]), score, call.asked.terms)
    if not said or score[0] <= 0:
        return found
    words = sorted(said)
    order = np.argsort(-sources.idf(words) * [said[word] for word in words], kind="stable")
    chosen: list[str] = [words[place] for place in order[: shortlist_features.WORDS].tolist()]
    heard = shortlist_features.echo(sources.impacts(chosen, rows).astype(np.float64), score)
    lifted = found.lifted(stage.unit(config) * config.echo * heard, echo=heard)
    return lifted.noted("echo", note=" ".join(chosen))


def contrast(vector: Singles, vectors: Singles) -> Floats:
    """Cosines with the query after the mean of all candidates is taken from both.

    What the candidates share says nothing about which of them answers.
    """
    mean = np.add.reduce(vectors, axis=0) / np.float32(len(vectors))
    apart, asked = vectors - mean, vector - mean
    lengths = np.sqrt(np.einsum("ij,ij->i", apart, apart)) * np.sqrt(asked @ asked)
    return (np.vecdot(apart, asked) / np.maximum(lengths, 1e-9)).astype(np.float64)


def peers(alike: Floats, score: Floats) -> Floats:
    """For each candidate the closest other one, weighed by how high that one ranks, 0..1.

    >>> peers(np.array([[1.0, 0.9], [0.9, 1.0]]), np.array([2.0, 1.0])).round(2).tolist()
    [0.45, 0.9]
    """
    best = float(score.max(initial=0.0))
    if best <= 0:
        return np.zeros(len(score))
    weighed = alike * (score / best)
    weighed.flat[:: len(score) + 1] = 0.0
    return np.maximum(weighed.max(axis=1, initial=0.0), 0.0)


def _in_time(found: Candidates, call: Call) -> Candidates:
    """Memories of a time the query names, lifted."""
    inside = _of_then(found.created_at, call)
    if not inside.any():
        return found
    lifted = found.lifted(np.where(inside, call.config.temporal_boost, 0.0))
    return lifted.noted("time", note=f"{int(inside.sum())} from {call.asked.spans[0].text}")


def _of_then(created_at: Floats, call: Call) -> NDArray[np.bool_]:
    """Which are of a time the query names."""
    inside = np.zeros(len(created_at), dtype=bool)
    for span in call.asked.spans:
        inside |= (created_at >= span.start) & (created_at < span.end)
    return inside


def _apart(rows: Ints, call: Call) -> Callable[[int, set[int]], set[int]] | None:
    """Which of some candidates are of other users or projects than one of them; scopes are read if that is asked."""
    where = call.where.scope
    if where is not None and ANY not in (where.user, where.project):
        return None  # all are of one, or of everybody

    def apart(one: int, others: set[int]) -> set[int]:
        places = [one, *sorted(others)]
        whose = call.sources.scopes(rows[places]).place
        if (whose == whose[0]).all():
            return set()
        mine, *theirs = (memory.scope for memory in call.sources.memories(rows[places]))
        return {place for place, scope in zip(places[1:], theirs, strict=True) if mine.apart(scope)}

    return apart


def _current(found: Candidates, call: Call) -> Candidates:
    """The newest of rival memories first."""
    terms = call.asked.terms
    head = found.rows[: currency.REACH]
    size = len(head)
    if not terms or size < 2:
        return found
    texts = call.sources.texts(head)
    if call.asked.of_before(texts):
        return found
    wants = call.asked.wants if call.asked.present else "thing"
    matched = call.sources.impacts(terms, head) > 0
    exact = identifiers(call.asked.text)
    facts = currency.Facts(
        matched=matched,
        idf=call.sources.idf(terms),
        texts=texts,
        created_at=found.created_at[:size],
        score=found.score[:size],
        present=call.asked.present,
        holding=query.wanted(wants, texts) > 0 if wants in query.READERS else None,
        rows=head if wants in query.READERS else None,
        wants=wants,
        asked=frozenset(terms),
        names=call.asked.names,
        over_all=call.asked.over_all,
        apart=_apart(head, call),
        sides=(
            *(
                found.measured[name][found.at[:size]] > 0
                for name in ("title", "phrase")
                if name in found.measured
            ),
            *((_of_then(found.created_at[:size], call),) if call.config.temporal != "off" else ()),
            *(matched[:, place] for place, term in enumerate(terms) if term in exact),
        ),
    )
    renewed = currency.renew(facts)
    if not renewed.outdated.any() and (renewed.order == np.arange(size)).all():
        return found
    moved = replace(
        found,
        at=np.concatenate([found.at[renewed.order], found.at[size:]]),
        outdated=frozenset(head[renewed.outdated].tolist()),
    )  # the scores stay where they are
    return moved.noted("currency", note=f"{len(moved.outdated)} outdated")
