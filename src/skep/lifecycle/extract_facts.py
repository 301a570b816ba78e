"""Plans of the steps `extract` and `evidence`: facts from episodes, and episodes that support facts.

Episodes near each other that say the same make a cluster. Its fact is the statement that most of them support, and only
those are its evidence; an episode that contradicts it never is. A convention that a user states ("we use pnpm here, not
npm") is a fact though it is said once. Maintenance calls this; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.engine.engine import Engine
from skep.filters import Filter
from skep.lifecycle.maintenance_run import Action, Planned, counted
from skep.lifecycle.similar_memories import (
    TRUST,
    Union,
    by_density,
    derived_from,
    inherited,
    least_trust,
)
from skep.lifecycle.summarise import Distil, by_call, ranked
from skep.model import CURRENT, Memory
from skep.runtime import lazy
from skep.semantics.evidence import Said, against, reports, supports_many, worth_keeping
from skep.semantics.find_conflicts import bare_words, find_for, neighbours
from skep.semantics.reported_speech import ROLES, as_statement, speaker
from skep.storage.sqlite_store import Plan

SUPPORTS = 0.4
"""Similarity from which an episode may support a fact, in whatever words."""
SUPPORTED = 8
"""How many facts an episode may support."""
SUPPORTING = 64
"""How many earlier episodes are looked at for a fact that came after them."""


def support(engine: Engine, changed: Sequence[Memory]) -> list[Action]:
    """Plan evidence for facts near new episodes, and from episodes near new facts.

    A summary is no evidence: the episodes that it sums up were counted. Nor is what is in doubt.
    """
    episodes = [memory for memory in changed if memory.kind == "episode" and memory.level == 0]
    facts = [memory for memory in changed if memory.kind == "fact"]
    pairs: dict[tuple[str, str], tuple[Memory, Memory, float]] = {}
    near = neighbours(engine, episodes, among={"episode": ("fact",)}, threshold=SUPPORTS, limit=SUPPORTED)
    for episode in episodes:
        for fact, similarity in near[episode.id]:
            pairs[fact.id, episode.id] = fact, episode, similarity
    if facts and _has_episodes(engine):
        near = neighbours(engine, facts, among={"fact": ("episode",)}, threshold=SUPPORTS, limit=SUPPORTING)
        for fact in facts:
            for episode, similarity in near[fact.id]:
                if episode.level == 0:
                    pairs.setdefault((fact.id, episode.id), (fact, episode, similarity))
    new = [pair for pair in pairs.values() if pair[1].id not in pair[0].evidence]
    asked = [Said(fact.text, episode.text, similarity) for fact, episode, similarity in new]
    found: dict[str, tuple[Memory, list[str]]] = {}
    for (fact, episode, _), told in zip(new, supports_many(asked), strict=True):
        if (told or reports(fact.text, episode.text)) and not in_doubt(engine, episode):
            found.setdefault(fact.id, (fact, []))[1].append(episode.id)
    return [_evidence(fact, sources) for fact, sources in found.values()]


def in_doubt(engine: Engine, memory: Memory) -> bool:
    """True if something contradicts a memory, or what it was derived from no longer stands: nothing follows from it."""
    return memory.stale or memory.disputes > 0 or engine.contradicted(memory.id)


def _has_episodes(engine: Engine) -> bool:
    """Asked of the index: where there is none, a store has to look at everything to tell."""
    episodes, facts = (Filter(kinds=(kind,), statuses=CURRENT) for kind in ("episode", "fact"))
    return bool(len(engine.index.rows_where(episodes, unless=facts)))


def _evidence(fact: Memory, sources: list[str]) -> Action:
    support = "supports" if len(sources) == 1 else "support"
    return Action(
        step="evidence",
        why=f"{counted(len(sources), 'episode')} {support} {fact.text!r}",
        memories=(fact.id,),
        plans=(("evidence", {"memory": fact.id, "sources": sources}),),
    )


SAME_EVENT = 0.80
"""Similarity from which episodes tell of the same thing."""
NEAREST = 16
"""How many of the nearest episodes are joined to one."""
EXTRACTED = 0.7
"""The confidence of a fact that was distilled, before its evidence counts."""
WEIGHED = 8
"""How many statements of a cluster are tried as its fact."""
TAKEN_BACK = ("retracted", "deprecated", "quarantined")
"""What became of a fact that is not to be said again."""
Pair = tuple[str, str]


def extract(
    engine: Engine,
    episodes: Sequence[Memory],
    *,
    smallest: int = 2,
    cluster: str = "threshold",
    distil: Distil | None = None,
    ask: bool = True,
) -> Planned:
    """Plan one fact per cluster of episodes, or more evidence for a fact that was distilled from it before.

    With `ask=False` a given `distil` is not called: only what it would be asked about is told.
    """
    talk = _Talk(engine, episodes, cluster, smallest, loose=distil is not None)
    actions: list[Action] = []
    fresh: list[tuple[str, list[Memory]]] = []
    problem = ""
    for group in talk.groups():
        known, left = talk.known(group)
        actions += known
        if distil is None:
            fresh += talk.facts(left, smallest)
        elif len(left) >= smallest:
            fresh.append(("", left))
    if distil is not None:
        if not ask:
            return Planned(actions + [_to_distil(group) for _, group in fresh])
        told = by_call(distil, [[episode.text for episode in group] for _, group in fresh])
        problem = told.problem
        fresh = _worded(fresh, told.texts, smallest)
    used = {episode.id for _, group in fresh for episode in group}
    fresh += conventions(engine, [episode for episode in episodes if episode.id not in used])
    return Planned(actions + [_new_fact(engine, group, as_statement(fact)) for fact, group in fresh], problem)


CONVENTION = lazy(
    r"(?i)\b(?:(?:we|i) (?:always|never|only|exclusively|prefer|use|don['’]?t use|do not use|stick (?:to|with))"
    r"|(?:always|never) \w+|from now on|by convention|our (?:convention|rule|policy|standard)|in this (?:repo|project)"
    r"|prefers? \w+ (?:over|to)|please (?:always|never)|(?:use|say|write|call it) [^.!?]{1,60}(?:\bnot\b|instead of))\b"
)
"""How a user states a convention or a standing wish."""
_HABIT = (
    r"(?:(?:always|never|also|usually|often|still|only|mostly|generally|mainly|normally|currently|really) )*"
)
_ONCE = (
    r"(?! (?:it|that|this|these|those|them|you|your|so|to|how|no|some"
    r"|with (?:it|that|this)|the (?:wrong|same|right|other"
    r"|(?:\w+ )?(?:version|one|option|idea|look|way))"
    r"|(?:a|an|another|one) (?:\w+ )?(?:question|problem|issue|error|idea|doubt|feeling|look|point|bug|moment))\b)"
)
"""What follows a verb that is about this conversation alone."""
_OWN = (
    r"(?:wife|husband|partner|sons?|daughters?|child|children|kids?|mother|father|mum|mom|dad|parents?|brothers?|sisters?"
    r"|boss|manager|colleagues?|team|company|employer|dogs?|cats?|doctor|landlord|neighbou?rs?|flatmates?|girlfriend"
    r"|boyfriend|uncle|aunt|grandmother|grandfather|grandchildren|friend|twins?|allergy|diabetes|asthma|degree|garden)"
)
"""Whom and what somebody tells of as theirs."""
LASTING = lazy(
    rf"(?i)\b(?:I {_HABIT}(?:(?:live|study|studied|teach|own|speak|play|drive|drink|eat|collect|prefer|like|love"
    rf"|enjoy|hate|dislike|avoid|use|support|follow|cook)\b{_ONCE}|have (?:an? |\w+ )(?:\w+ )?{_OWN}\b"
    r"|(?:work|grew up|come|am based|was born)(?= (?:as|at|in|for|from|near|with|nights|part|full|\w+ hours)\b)"
    r"|(?:can['’]?t|cannot|don['’]?t|do not) (?:eat|drink|have|drive|speak|own|like|use)\b(?! (?:it|that|this)\b)"
    r"|(?:moved|relocated) (?:to|from|back)\b|(?:joined|married|adopted|retired|got married|was promoted)\b)"
    r"|I(?:['’]m| am|['’]ve been| have been) (?:also |still |now )?(?:an? (?!bit|little|moment|step|loss)"
    r"|vegan|vegetarian|left-handed|allergic|married|divorced|retired|from|based|the (?:owner|head|lead|maintainer))"
    rf"|my (?:\w+ )?(?:{_OWN}|name|birthday|timezone|time zone|address)(?:['’]s)?\b"
    r"(?! (?:asked|wants|says|said|just|told|called me|thinks|came|cancelled|(?:is|are) (?:not |\w+ing\b|here|back)))"
    r"|(?:we|our [\w-]+(?: [\w-]+)?) (?:also |only |mostly )?(?:(?:store|deploy|host|keep|run|ship|build|release|pay"
    r"|lives?|goe?s?|runs?|has|uses?|sits?|meets?|opens?|closes?|expires?|starts?|ends?) (?!it|this|that|out of|into)"
    r"|(?:is|are) (?=in|at|on|based|called|named|written|hosted|kept|an? |the |\d|(?-i:[A-Z]))))"
)
"""How somebody tells what holds for longer of themselves, theirs or their work."""
SOON = lazy(
    r"(?i)\b(?:in (?:a|an|\w+) (?:second|minute|hour|moment)s?|at \d+ ?(?:percent|%)|on it|sorry|again"
    r"|(?:how|what|why|whether|where|which) (?:can|could|do|does|should|would|if|to|is|are|i|my|we)"
    r"|I(?: am|['’]m)?(?: kinda| really| just)? (?:need|want|trying|worried|looking|having|stressed|wondering)"
    r"|(?:(?:some|any|every|no)?things?|ones?|reasons?|that|which|what|how much) I (?:\w+ )?(?:like|love|enjoy|hate)"
    r"|I (?:\w+ )?(?:like|love|enjoy|hate|dislike) (?:(?!\b(?:because|since)\b)[^.!?,;]){0,120}"
    r"\b(?:too|as well|it|them|this|that|these|those|here|there|how|when|you|your)"
    r"|I(?:['’]m| am) (?:\w+ )?(?:a )?(?:\w+ )?fan of (?:this|that|these|those|it|them))\b"
    r"|^\w+: (?:can|could|would|should|if|in what|what|how|why|when|where|who|which|is|are|do|does|did|regarding)\b"
)
"""What makes a passing thing, a reply or a question of it."""
USER_TURN = lazy(
    r"(?is)\b(?:user|human|customer|client)(?: \([^()\n]{1,40}\))?: (.*?)"
    r"(?=\b(?:assistant|ai|user|human|customer|client|agent|system|bot|support)(?: \([^()\n]{1,40}\))?: |\Z)"
)


def conventions(engine: Engine, episodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]]:
    """Facts that users state once, with their episodes: conventions, and what holds of themselves and theirs.

    Nothing that a fact says already.
    """
    found: dict[tuple[str, ...], tuple[str, list[Memory]]] = {}
    for episode in episodes:
        if ":" not in episode.text or in_doubt(engine, episode) or _facts_of(engine, episode):
            continue
        for text in stated(episode.text):
            if not _is_known(engine, as_statement(text), episode):
                key = tuple(bare_words(as_statement(text)))
                found.setdefault(key, (text, []))[1].append(episode)
    return list(found.values())


def stated(text: str) -> list[str]:
    """The sentences of an episode that are facts though they are said once, with who says them.

    >>> stated("user: Thanks! I'm a beekeeper in Aurich. I have a question."), stated("assistant: I'm a language model")
    (["user: I'm a beekeeper in Aurich."], [])
    """
    name = (speaker(text) or "").partition(" (")[0].casefold()
    named = bool(name) and name not in ROLES
    turns = [text] if named else [f"user: {turn}" for turn in USER_TURN.findall(text)]
    said = [each for turn in turns for each in worth_keeping(turn) if not SOON.search(each)]
    return [each for each in said if LASTING.search(each) or (not named and CONVENTION.search(each))]


def _is_known(engine: Engine, text: str, episode: Memory) -> bool:
    """True if some fact of the same scope says a text."""
    fact = Memory(id="", kind="fact", text=text, scope=episode.scope, created_at=episode.created_at)
    return any(conflict.kind == "duplicate" for conflict in find_for(engine, fact))


def reworded(engine: Engine, episodes: Sequence[Memory]) -> list[Action]:
    """Plan for facts whose episodes were revised and contradict them now: those are no evidence any more.

    A fact that is left without any is set aside.
    """
    changed: dict[str, list[str]] = {}
    for episode in episodes:
        for fact_id in _facts_of(engine, episode):
            fact = engine.get(fact_id)
            stands = fact is not None and fact.status in CURRENT and not fact.pinned
            if fact is not None and stands and against(fact.text, episode.text, similarity=SAME_EVENT):
                changed.setdefault(fact_id, []).append(episode.id)
    return [_without(engine, engine.memory(fact), lost) for fact, lost in sorted(changed.items())]


def _without(engine: Engine, fact: Memory, lost: Sequence[str]) -> Action:
    links = engine.links(fact.id, rel="derived_from", direction="out")
    plans: list[Plan] = [("unlink", {"src": fact.id, "dst": i, "rel": "derived_from"}) for i in lost]
    evidence = [i for i in fact.evidence if i not in lost]
    plans.append(("revise", {"memory": fact.id, "changes": {"evidence": evidence}}))
    says = "says" if len(lost) == 1 else "say"
    why = f"{counted(len(lost), 'episode')} of {fact.text!r} {says} something else now"
    if all(link.dst in lost for link in links):
        reason = "its episodes say something else now"
        plans.append(("mark", {"memory": fact.id, "status": "deprecated", "reason": reason}))
    return Action(step="extract", why=why, memories=(fact.id,), plans=tuple(plans))


def _worded(
    asked: Sequence[tuple[str, list[Memory]]], facts: Sequence[str | None], smallest: int
) -> list[tuple[str, list[Memory]]]:
    """Facts in the words of a model; episodes that contradict its text are no evidence for it."""
    found: list[tuple[str, list[Memory]]] = []
    for (_, group), fact in zip(asked, facts, strict=False):
        if fact is not None:
            says = [each for each in group if not against(fact, each.text, similarity=SAME_EVENT)]
            found += [(fact, says)] if len(says) >= smallest else []
    return found


class _Talk:
    """New episodes and those near them, and which of them say the same.

    `loose`: what is near counts as saying the same, because a model will tell what it comes to.
    """

    def __init__(
        self, engine: Engine, episodes: Sequence[Memory], cluster: str, smallest: int, *, loose: bool
    ) -> None:
        self.engine = engine
        self.new = {episode.id for episode in episodes}
        self.memories = {episode.id: episode for episode in episodes}
        self.similarity: dict[Pair, float] = {}
        self.near: dict[str, set[str]] = {}
        self.agree: dict[str, set[str]] = {}
        self._supports: dict[tuple[str, str], bool] = {}
        found = neighbours(engine, episodes, threshold=SAME_EVENT, limit=NEAREST)
        for one, others in found.items():
            for other, similarity in others:
                if other.level == 0 and other.id != one and _lasting(other) == _lasting(self.memories[one]):
                    self.memories.setdefault(other.id, other)
                    self._join(one, other.id, similarity)
        if cluster == "hdbscan":
            self._within(self._dense(smallest))
        self._smallest, self._loose = smallest, loose

    def _join(self, a: str, b: str, similarity: float) -> None:
        self.similarity[a, b] = self.similarity[b, a] = similarity
        self.near.setdefault(a, set()).add(b)
        self.near.setdefault(b, set()).add(a)

    def _dense(self, smallest: int) -> list[list[str]]:
        """Groups of new episodes by density."""
        import numpy as np

        groups: list[list[str]] = []
        keys = {i: (self.memories[i].scope, _lasting(self.memories[i])) for i in sorted(self.new)}
        rows = self.engine.rows_of(list(keys))
        for key in dict.fromkeys(keys.values()):
            ids = [i for i in keys if keys[i] == key and i in rows]
            if len(ids) >= max(2, smallest):
                vectors = self.engine.index.vectors(np.array([rows[i] for i in ids], dtype=np.int64))
                groups += by_density(ids, vectors, smallest=smallest)
        return groups

    def _within(self, groups: Iterable[list[str]]) -> None:
        """Of new episodes keep near only those of one group; to earlier ones they are attached as they are near."""
        of = {i: number for number, group in enumerate(groups) for i in group}
        self.near = {
            i: {o for o in others if not {i, o} <= self.new or (i in of and of[i] == of.get(o))}
            for i, others in self.near.items()
        }

    def groups(self) -> list[list[Memory]]:
        """Clusters with something new in them: episodes that say the same, by whatever chain; oldest first."""
        pairs = [(a, b) for a in sorted(self.near) for b in sorted(self.near[a])]
        union = Union()
        for i in sorted(self.new):
            union.find(i)
        for a, b in pairs if self._loose else self._agreeing(pairs):
            self.agree.setdefault(a, set()).add(b)
            self.agree.setdefault(b, set()).add(a)
            union.join(a, b)
        found = [group for group in union.groups() if not self.new.isdisjoint(group)]
        return [
            sorted((self.memories[i] for i in group), key=_when)
            for group in found
            if len(group) >= self._smallest
        ]

    def _agreeing(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs of which the second says something that the first does."""
        asked = [(text, b, a) for a, b in pairs for text in worth_keeping(self.memories[a].text)]
        self._ask((text, b, self.similarity[a, b]) for text, b, a in asked)
        return [(a, b) for text, b, a in asked if self.supports(text, b)]

    def known(self, group: list[Memory]) -> tuple[list[Action], list[Memory]]:
        """More evidence for facts that were distilled from these episodes before, and the episodes that are left.

        What is in doubt may have led to a fact before, but leads to none now.
        """
        facts: dict[str, list[Memory]] = {}
        for episode in group:
            for fact in _facts_of(self.engine, episode):
                facts.setdefault(fact, []).append(episode)
        used = {episode.id for sources in facts.values() for episode in sources}
        left = [each for each in group if each.id not in used and not in_doubt(self.engine, each)]
        actions: list[Action] = []
        for fact_id, sources in sorted(facts.items()):
            fact = _standing(self.engine, fact_id)
            if fact is None or not left:
                continue
            says = [episode for episode in left if self._says(fact, episode, sources)]
            if fact.status in CURRENT:
                new = [each.id for each in says if each.id not in fact.evidence]
                actions += [_more_evidence(fact, new)] if new else []
            elif fact.status == "superseded":  # what was replaced may be said again, by what is newer
                successor = self.engine.get(fact.superseded_by or "")
                since = successor.created_at if successor is not None else fact.created_at
                says = [episode for episode in says if episode.created_at <= since]
            elif fact.status not in TAKEN_BACK:
                says = []
            gone = {episode.id for episode in says}
            left = [episode for episode in left if episode.id not in gone]
        return actions, left

    def _says(self, fact: Memory, episode: Memory, sources: Sequence[Memory]) -> bool:
        """True if an episode says a fact that was distilled from others."""
        if self.supports(fact.text, episode.id):
            return True
        if any(fact.text in source.text or fact.text in worth_keeping(source.text) for source in sources):
            return False
        beside = self.agree.get(
            episode.id, set()
        )  # a fact in a model's words: who agrees with its sources says it
        return any(source.id in beside for source in sources) and not against(
            fact.text, episode.text, similarity=SAME_EVENT
        )

    def facts(self, left: list[Memory], smallest: int) -> list[tuple[str, list[Memory]]]:
        """Statements with the episodes that say them; none that a newer episode near them contradicts."""
        found: list[tuple[str, list[Memory]]] = []
        while len(left) >= smallest:
            best: tuple[str, list[Memory]] | None = None
            for text in self._candidates(left):
                self._ask((text, each.id, SAME_EVENT) for each in left)
                says = [each for each in left if self.supports(text, each.id)]
                if best is None or len(says) > len(best[1]):
                    best = text, says
            if best is None or len(best[1]) < smallest:
                break
            left = [each for each in left if each not in best[1]]
            if not self._outdated(*best):
                found.append(best)
        return found

    def _candidates(self, left: list[Memory]) -> list[str]:
        """The statements that most of those near them support, as far as that is known."""
        here = {each.id for each in left}
        votes: dict[str, int] = {}
        for text in ranked([each.text for each in left]):
            by = {
                i
                for each in left
                if text in worth_keeping(each.text)
                for i in self.near.get(each.id, set()) & here
            }
            votes[text] = sum(self.supports(text, i) for i in by)
        return sorted(votes, key=lambda text: -votes[text])[:WEIGHED]

    def _outdated(self, text: str, says: list[Memory]) -> bool:
        """True if something newer near the episodes does not let the statement stand."""
        ids = {each.id for each in says}
        last = max(each.created_at for each in says)
        beside = {i for each in says for i in self.near.get(each.id, ()) if i not in ids}
        return any(
            against(text, self.memories[i].text, similarity=SAME_EVENT)
            for i in sorted(beside)
            if self.memories[i].created_at > last
        )

    def _ask(self, asked: Iterable[tuple[str, str, float]]) -> None:
        """Find out which episodes support which texts, for all that is not known yet."""
        unknown = {(text, i): similarity for text, i, similarity in asked if (text, i) not in self._supports}
        if not unknown:
            return
        keys = list(unknown)
        answers = supports_many([Said(text, self.memories[i].text, unknown[text, i]) for text, i in keys])
        self._supports.update(zip(keys, answers, strict=True))

    def supports(self, text: str, memory_id: str) -> bool:
        """True if an episode supports a text."""
        if (text, memory_id) not in self._supports:
            self._ask([(text, memory_id, SAME_EVENT)])
        return self._supports[text, memory_id]


def _when(memory: Memory) -> tuple[float, str]:
    return memory.created_at, memory.id


def _lasting(memory: Memory) -> bool:
    """True if a memory has no end; what lasts is never put together with what does not."""
    return memory.expires_at is None


def _facts_of(engine: Engine, episode: Memory) -> list[str]:
    """The facts that were distilled from an episode before, whatever became of them."""
    links = engine.links(episode.id, rel="derived_from", direction="in")
    found = [engine.get(link.src) for link in links if link.rel == "derived_from"]
    return [
        fact.id
        for fact in found
        if fact is not None and fact.kind == "fact" and (fact.source or "").startswith("maintenance:")
    ]


def _standing(engine: Engine, fact_id: str) -> Memory | None:
    """A fact, or what it was merged into."""
    fact = engine.get(fact_id)
    seen: set[str] = set()
    while fact is not None and fact.merged_into is not None and fact.id not in seen:
        seen.add(fact.id)
        fact = engine.get(fact.merged_into)
    return fact


def _more_evidence(fact: Memory, episodes: list[str]) -> Action:
    plans: list[Plan] = [("evidence", {"memory": fact.id, "sources": episodes})]
    plans += [("link", {"src": fact.id, "dst": i, "rel": "derived_from", "strength": 1.0}) for i in episodes]
    say = "says" if len(episodes) == 1 else "say"
    return Action(
        step="extract",
        why=f"{counted(len(episodes), 'more episode')} {say} {fact.text!r}",
        memories=(fact.id,),
        plans=tuple(plans),
    )


def _to_distil(group: Sequence[Memory]) -> Action:
    why = f"{counted(len(group), 'episode')} to be distilled, such as {group[0].text!r}"
    return Action(step="extract", why=why, memories=tuple(episode.id for episode in group))


def _new_fact(engine: Engine, group: Sequence[Memory], text: str) -> Action:
    body: dict[str, object] = {
        "text": text,
        "kind": "fact",
        "confidence": EXTRACTED,
        "source": "maintenance: extracted",
        **inherited(group),
    }
    if (trust := least_trust(engine, group)) < TRUST:
        body["metadata"] = {"trust": trust}
    plans: list[Plan] = [("remember", body)]
    plans += [("link", derived_from(episode.id)) for episode in group]
    say = "says" if len(group) == 1 else "say"
    return Action(
        step="extract",
        why=f"{counted(len(group), 'episode')} {say} {text!r}",
        memories=tuple(episode.id for episode in group),
        plans=tuple(plans),
    )
