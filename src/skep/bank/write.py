"""Verbs that write memories (remember, revise, retract, merge, forget and others) and verbs about links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from skep.bank.open_bank import BULK, OpenBank, Sees
from skep.confidence import independent
from skep.engine.embeddings import Progress
from skep.errors import InvalidInputError, WrongTypeError
from skep.events import Changed, Confirm, Dispute, Evidence, Mark, Retract, Revise, Supersede
from skep.model import (
    CURRENT,
    LINEAGE,
    Graph,
    Link,
    Memory,
    OnConflict,
    Receipt,
    Remembered,
    Scope,
    ScopeLike,
)
from skep.semantics import link_graph as graph
from skep.storage.store import Plan
from skep.validation import (
    REMEMBER_KEYS,
    Time,
    body_of,
    clean_call,
    clean_choice,
    clean_count,
    clean_flag,
    clean_id,
    clean_ids,
    clean_number,
    clean_policy,
    clean_sources,
    clean_text,
    is_blank,
    public_text,
    refuse_inverted,
    refuse_unknown,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from skep.bank.memory_bank import Changes
    from skep.semantics.conflict_policy import Item
    from skep.semantics.link_graph import Direction


_ITEM = (dict, Mapping)
_FIELDS = dict.fromkeys(REMEMBER_KEYS).keys()
_HOW = ("contradiction_fn", "on_conflict", "redact")
"""Arguments about the writing, not about the memory."""
_GIVEN = dict.fromkeys((*REMEMBER_KEYS, *_HOW))


class WriteVerbs(OpenBank):
    """Remember, revise, retract, restore, supersede, merge, mark, confirm, dispute, support, forget."""

    @cached_property
    def _writer(self):
        """The module that looks for conflicts and writes; many a process only reads."""
        from skep.semantics import conflict_policy

        return conflict_policy

    def remember(
        self,
        text: str,
        *,
        kind: str = "fact",
        title: str | None = None,
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        tags: Iterable[str] = (),
        source: str | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        polarity: int | None = None,
        pinned: bool | None = None,
        level: int | None = None,
        created_at: Time | None = None,
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        ttl: float | timedelta | None = None,
        evidence: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        on_conflict: OnConflict | None = None,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        redact: bool | str | Iterable[str] = True,
    ) -> Remembered:
        """Store one memory; it is durable when this returns.

        Args:
            text: What to remember, in plain words.
            kind: `fact`, `episode`, `procedure` or `document`.
            title: A short heading, searched like the text.
            domain: The field it belongs to, such as `billing`.
            agent: Who learnt it.
            scope: Whom it is for: any of user, project, session; or a namespace, a tuple of free parts. Nothing
                means everybody.
            tags: Labels to filter by.
            source: Where it comes from, such as a path or an address.
            confidence: How sure, 0 to 1; 0.8 if not said.
            importance: How much it matters, 0 to 1; 0.5 if not said.
            polarity: +1 or -1 where the text states or denies something, for the search for contradictions.
            pinned: Maintenance never touches it.
            level: 0 for what was observed, higher for summaries.
            created_at: When it was learnt, if not now.
            valid_from: Since when it holds.
            valid_to: Until when it holds.
            ttl: Seconds, or a timedelta, after which it expires.
            evidence: Ids of the memories that support it.
            metadata: Anything else, as JSON; `find` and `recall` filter by it.
            key: Your own name for it, one per scope. If a memory there has it, that one is revised and then says
                exactly what this call says; its id, history and record stay.
            on_conflict: What to do when it contradicts or repeats what is stored: `ignore` does not look, `warn`
                stores and reports, `supersede` replaces what is outdated and confirms what is repeated, `raise`
                refuses. Without it, `Settings.on_conflict`, the bank's setting `conflict/policy`, or `warn`. With an
                embedder that nobody can wait for (a service, an ONNX model), all go by words alone.
            contradiction_fn: Asked about pairs on which the built-in rules say nothing; without it,
                `Settings.contradiction_fn`.
            redact: What to take out first, from text, title, source, domain, tags and metadata; the kinds that were
                found are in the result. True takes out what the bank's setting `redact/kinds` names, by default
                secrets: keys, tokens, passwords. Or name kinds, such as `"email"`, `"personal"` or `"all"`. False takes
                nothing out. Parts marked `<private>` are never stored, whatever this says.
        """
        said = {
            "title": title,
            "domain": domain,
            "agent": agent,
            "scope": scope,
            "tags": None if is_blank(tags) else tags,
            "source": source,
            "confidence": confidence,
            "importance": importance,
            "polarity": polarity,
            "pinned": pinned,
            "level": level,
            "created_at": created_at,
            "valid_from": valid_from,
            "valid_to": valid_to,
            "ttl": ttl,
            "evidence": None if is_blank(evidence) else evidence,
            "metadata": metadata,
            "key": key,
            "contradiction_fn": contradiction_fn,
            "redact": None if redact is True else redact,
        }
        given = {"text": text, "kind": kind} | {
            key: value for key, value in said.items() if value is not None
        }
        item = self._item(given, self._policy(on_conflict, "warn"))
        result = self._writer.remember(
            self._engine,
            item.body,
            on_conflict=item.on_conflict,
            contradiction_fn=item.contradiction_fn,
        )
        return msgspec.structs.replace(result, redactions=item.redactions) if item.redactions else result

    def remember_many(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        on_conflict: OnConflict | None = None,
        progress: Progress | None = None,
    ) -> list[Remembered]:
        """Store many memories: texts, or mappings with the arguments of `remember`.

        Every item is checked before the first is written. Conflicts are not looked for unless the call or the bank
        asks for it (`Settings.on_conflict`, `conflict/policy`); `maintain` finds them later at a fraction of the cost.

        Args:
            items: What to remember. An item's own `on_conflict` goes before that of the call.
            on_conflict: As in `remember`. With `raise`, one item that does not go with what is stored keeps out the
                whole batch; the items are not compared with one another. With `warn` and `supersede` they are
                written one by one, each compared with all before it.
            progress: Called with what is done and what there is in all.
        """
        policy = self._policy(on_conflict, "ignore")
        clean_call("progress", progress)
        from skep.runtime import gc_paused

        checked: list[Item] = []
        rest = iter(clean_items(items))
        while some := list(islice(rest, BULK)):
            with gc_paused():
                self._check(some, policy, checked)
        return self._writer.remember_many(self._engine, checked, bulk=BULK, progress=progress)

    def _check(self, items: Sequence[Any], on_conflict: OnConflict, checked: list[Item]) -> None:
        """Put items, checked, after those that were."""
        for item in items:
            try:
                checked.append(self._item(fields_of(item), on_conflict))
            except InvalidInputError as error:
                error.args = (f"item {len(checked)}: {error}",)
                raise

    def _item(self, given: Mapping[str, Any], on_conflict: str) -> Item:
        """The arguments of `remember`, checked."""
        fields, policy, asks, redact = given, on_conflict, None, True
        if not (isinstance(given, dict) and given.keys() <= _FIELDS):
            refuse_unknown(given, _GIVEN)
            fields = dict(given)
            policy = clean_policy("on_conflict", fields.pop("on_conflict", None) or on_conflict)
            asks = clean_call("contradiction_fn", fields.pop("contradiction_fn", None))
            redact = fields.pop("redact", None)
            redact = True if redact is None else redact
        fields, redacted = self._cleaned(fields, redact)
        body = body_of(fields, self._engine.settings)
        if redacted:
            body["redacted"] = redacted
        return self._writer.Item(
            body=body,
            on_conflict=policy,  # type: ignore[arg-type]
            contradiction_fn=asks or self._engine.settings.contradiction_fn,
            redactions=tuple(redacted),
        )

    def revise(
        self, memory_id: str, *, expected_version: int | None = None, **changes: Unpack[Changes]
    ) -> Memory:
        """Change fields of a memory; what it said before stays in its history. Only the fields given change.

        Args:
            memory_id: The memory.
            changes: Any of text, title, domain, scope, tags, source, confidence, importance, polarity, pinned,
                valid_from, valid_to, ttl, metadata and key, as in `remember`. Tags, scope and metadata are replaced as
                a whole. None clears a field: `scope=None` shares the memory with everybody, `ttl=None` keeps it for
                good. Text, confidence and importance always hold something and cannot be cleared.
            expected_version: Change it only if it still has this `version`; otherwise a `VersionError` says what
                changed, and nothing is written.
        """
        clean_id(memory_id)
        if "agent" in changes:
            raise InvalidInputError(
                "who wrote a memory cannot be changed; remember it anew in the right name, and supersede this one",
                field="agent",
            )
        kept, _ = self._cleaned(changes, True)
        body = body_of(kept, self._engine.settings, partial=True)
        if not body:
            self._engine.known(memory_id)
            raise InvalidInputError("nothing to revise; pass at least one field, such as text=...")
        if "valid_from" in body or "valid_to" in body:
            start, end = self._engine.validity(memory_id)
            refuse_inverted(body.get("valid_from", start), body.get("valid_to", end))
        if expected_version is not None:
            clean_count("expected_version", expected_version, 1, 1 << 40)
        if body.get("key") is not None:
            return self._rekeyed(memory_id, body, expected_version)
        return self._engine.revise(memory_id, body, expected_version)

    def _rekeyed(self, memory_id: str, body: dict[str, Any], expected_version: int | None) -> Memory:
        """Revise a memory that gets a key, unless another one of its scope has it."""
        with self._engine.writing():
            memory = self._engine.memory(memory_id)
            scope = Scope(**body["scope"]) if "scope" in body else memory.scope
            holders = self._writer.holders(self._engine, body["key"], scope)
            taken = next((holder.id for holder in holders if holder.id != memory_id), None)
            if taken is not None:
                raise InvalidInputError(
                    f"{taken} has the key {body['key']!r} in that scope; revise or forget it, or choose another key",
                    field="key",
                )
            return self._engine.revise(memory_id, body, expected_version)

    def retract(self, memory_id: str, reason: str | None = None) -> Memory:
        """Take a memory back: out of every recall, kept in history; `restore` brings it back."""
        from skep.storage.fold import fold

        self._engine.known(memory_id)
        state = fold(memory_id, self._engine.log.of(memory_id))
        self._write(Retract(memory=memory_id, observed=list(state.dots) if state else []), reason)
        return self._engine.memory(memory_id)

    def restore(self, memory_id: str, reason: str | None = None) -> Memory:
        """Make a memory current again after it was superseded, merged, retracted, deprecated or expired.

        Links that led to it before it was merged lead to it again.
        """
        from skep.lifecycle.decisions import led_back

        memory = self._engine.memory(memory_id)
        body = {"memory": memory_id}
        if reason is not None:
            body["reason"] = public_text("reason", reason, self._engine.settings.text_limit)
        if memory.status in CURRENT:
            return memory
        with self._engine.writing():
            self._engine.write([("restore", body), *led_back(self._engine, memory_id)])
        return self._engine.memory(memory_id)

    def supersede(self, old: str, new: str, reason: str | None = None) -> Memory:
        """Say that a newer memory replaces an older one; the older stays in history."""
        self._engine.known(old, field="old")
        self._engine.known(new, field="new")
        with self._engine.writing():  # what replaced what is looked at and written at one moment
            graph.refuse_cycle(old, new, self._engine.get)
            graph.refuse_set_aside(new, self._engine.get)
            self._write(Supersede(old=old, new=new), reason)
        return self._engine.memory(old)

    def merge(self, loser: str, winner: str, reason: str | None = None) -> Memory:
        """Fold a duplicate into the memory that is kept, with its evidence and record; nothing is deleted.

        What led to the duplicate leads to the one that is kept, and what it contradicts that one contradicts. Of tags,
        importance, title, domain and metadata it gets what it lacks, if both are of one scope. Undoing the merge takes
        all of that back.
        """
        from skep.lifecycle.decisions import merge_plans

        self._engine.known(loser, field="loser")
        self._engine.known(winner, field="winner")
        if reason is not None:
            reason = public_text("reason", reason, self._engine.settings.text_limit)
        with self._engine.writing():  # what links there are is looked at and moved at one moment
            graph.refuse_cycle(loser, winner, self._engine.get)
            graph.refuse_set_aside(winner, self._engine.get)
            copy, kept = self._engine.memory(loser), self._engine.memory(winner)
            self._engine.write(merge_plans(self._engine, kept, [copy], reason=reason))
        return self._engine.memory(winner)

    def mark(self, memory_id: str, status: str, reason: str | None = None) -> Memory:
        """Set a memory aside (`deprecated`, `quarantined`, `expired`) or make it `active` again.

        One that is made active after it had reached its end has none any more.
        """
        ends = self._engine.memory(memory_id).expires_at
        clean_choice("status", status, ("active", "deprecated", "quarantined", "expired"))
        with self._engine.writing():  # both or neither
            if status == "active" and ends is not None and ends <= self._engine.now():
                self._write(Revise(memory=memory_id, changes=Changed(expires_at=None)))
            self._write(Mark(memory=memory_id, status=status), reason)
        return self._engine.memory(memory_id)

    def confirm(self, memory_id: str, by: str | None = None) -> Memory:
        """Note that somebody independent says the same."""
        self._engine.known(memory_id)
        by = self.actor if by is None else public_text("by", by, 500)
        self._write(Confirm(memory=memory_id, by=by))
        return self._engine.memory(memory_id)

    def dispute(self, memory_id: str, by: str) -> Memory:
        """Note that another memory (or somebody) contradicts it; its confidence halves."""
        self._engine.known(memory_id)
        self._write(Dispute(memory=memory_id, by=public_text("by", by, 500)))
        return self._engine.memory(memory_id)

    def support(self, memory_id: str, sources: Iterable[str]) -> Memory:
        """Note evidence for a memory. What leads to the same root counts once: copies of one memory are one source."""
        names = list(clean_sources("sources", sources, self._engine.settings))
        known = self._engine.memory(memory_id)
        counts = independent(names, (memory_id, *known.evidence), self._engine.get)
        self._write(Evidence(memory=memory_id, sources=names, counts=None if counts == names else counts))
        return self._engine.memory(memory_id)

    def forget(
        self, memory_ids: str | Iterable[str], *, dry_run: bool = False, derived: bool = False
    ) -> Receipt:
        """Erase memories for good, from rows, log, words, vectors, segments and the backups this bank made.

        Replicas erase them too when they next sync. Nothing brings them back.

        Of the events that made and changed them the log keeps when, what kind and which bank's; not what they said,
        nor who confirmed, disputed or changed them, nor what supported them. What also speaks of something else stays
        there: the task of an outcome in which they were used, links and their ends, what they were merged with and the
        evidence that went over, and who forgot them.

        Args:
            memory_ids: Those that must go.
            dry_run: Only say what would go.
            derived: Erase also what may repeat them: facts, summaries and procedures that were derived from them, and
                copies that were merged with them. Without it the receipt names those, and they stay.
        """
        ids = clean_ids("memory_ids", memory_ids)
        clean_flag("dry_run", dry_run)
        clean_flag("derived", derived)
        if not ids:
            raise InvalidInputError("nothing to forget; pass the id of a memory", field="memory_ids")
        from skep.engine.engine import forget

        return forget(self._engine, ids, dry_run=dry_run, derived=derived)


def clean_items(items: Any) -> Iterable[Any]:
    """Several memories to be."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise WrongTypeError(
            f"items must be a list of texts or mappings, got {type(items).__name__};"  # pyright: ignore
            " for a single memory use `remember`",
            field="items",
        )
    try:
        return iter(cast("Iterable[Any]", items))
    except TypeError as error:  # an array without dimensions
        raise WrongTypeError(f"items must be a list ({error})", field="items") from None


def fields_of(item: object) -> Mapping[str, Any]:
    """One of them as the arguments of `remember`."""
    if isinstance(item, str):
        return {"text": item}
    if not isinstance(item, _ITEM):
        raise WrongTypeError(f"expected a text or a mapping, got {type(item).__name__}", field="items")
    return cast("Mapping[str, Any]", item)


class LinkVerbs(OpenBank):
    """Link, unlink, neighbors, subgraph, path."""

    def link(
        self, src: str, dst: str, rel: str = "related", strength: float = 1.0, *, dangling: bool = False
    ) -> Link:
        """Link two memories; the same link twice is one link. With `dangling`, `dst` need not be there (yet).

        The engine knows `related`, `refines`, `derived_from` (what is derived from something goes stale with it),
        `example_of`, `contradicts`, `updates` and `entails`; any other word may be a relation too.
        What replaces or repeats another is said with `supersede` and `merge`, and shows among the links.
        """
        self._engine.known(src, field="src")
        dst = clean_id(dst, "dst")
        if not clean_flag("dangling", dangling):
            self._engine.known(dst, field="dst")
        if src == dst:
            raise InvalidInputError(
                f"{src} cannot be linked to itself; pass two different memories", field="dst"
            )
        rel = clean_text("rel", rel, self._engine.settings.label_limit)
        if rel in LINEAGE:
            raise InvalidInputError(
                f"rel cannot be {rel!r}, which would replace nothing; call `{LINEAGE[rel]}`", field="rel"
            )
        strength = clean_number("strength", strength, 0.0, 1.0)
        found = self._engine.links(src, rel=rel, direction="out")
        wanted = Link(src=src, dst=dst, rel=rel, strength=strength)
        if wanted not in found:
            plans: list[Plan] = [("link", {"src": src, "dst": dst, "rel": rel, "strength": strength})]
            plans += graph.announced(rel, self._engine.setting)
            self._engine.write(plans)
        return wanted

    def unlink(self, src: str, dst: str, rel: str | None = None) -> int:
        """Remove the links from one memory to another; how many there were."""
        src, dst = clean_id(src, "src"), clean_id(dst, "dst")
        rel = None if rel is None else clean_text("rel", rel, self._engine.settings.label_limit)
        stored = [
            link
            for link in self._engine.links(src, rel=rel, direction="out")
            if link.dst == dst and link.rel not in LINEAGE
        ]
        plans: list[Plan] = [("unlink", {"src": src, "dst": dst, "rel": link.rel}) for link in stored]
        if plans:
            self._engine.write(plans)
        return len(plans)

    def neighbors(
        self,
        memory_id: str,
        rel: str | None = None,
        direction: Direction = "both",
        depth: int = 1,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> Graph:
        """The memories within `depth` links of one, and the links; targets that are gone are listed as dangling.

        With a scope only memories of that scope are walked and shown, as in `recall`.
        """
        sees = self._sees(scope, include_shared)
        self._seen(memory_id, sees)
        depth = clean_count("depth", depth, 1, 100)
        rel = None if rel is None else clean_text("rel", rel, self._engine.settings.label_limit)
        distance, crossed = graph.walk(
            [memory_id], self._links_within(sees), rel=rel, direction=direction, depth=depth
        )
        others = [name for name in distance if name != memory_id]
        found = self._known(others)
        dangling = tuple(name for name in others if name not in found)
        return Graph(memories=found, links=tuple(crossed), dangling=dangling)

    def subgraph(
        self,
        memory_ids: Iterable[str],
        depth: int = 1,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> Graph:
        """Memories, their surroundings, and the links among them; with a scope, within it alone."""
        sees = self._sees(scope, include_shared)
        ids = clean_ids("memory_ids", memory_ids)
        for memory_id in ids:
            self._seen(memory_id, sees)
        depth = clean_count("depth", depth, 0, 100)
        return graph.graph_of(
            ids, self._links_within(sees), lambda name: self._known([name]).get(name), depth=depth
        )

    def path(
        self,
        a: str,
        b: str,
        max_depth: int = 6,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Link]:
        """The fewest links that lead from one memory to another; empty when none do. With a scope, within it alone."""
        sees = self._sees(scope, include_shared)
        self._seen(clean_id(a, "a"), sees)
        self._seen(clean_id(b, "b"), sees)
        max_depth = clean_count("max_depth", max_depth, 0, 100)
        return graph.shortest_path(a, b, self._links_within(sees), max_depth=max_depth)

    def _links_within(self, sees: Sees | None) -> graph.LinksOf:
        """The links of a memory that lead to what may be shown."""

        def links_of(memory_id: str, rel: str | None, direction: Direction) -> list[Link]:
            links = self._links_of(memory_id, rel, direction)
            if sees is None:
                return links
            ends = self._known({graph.other_end(link, memory_id) for link in links})
            return [
                link
                for link in links
                if (end := ends.get(graph.other_end(link, memory_id))) is not None and sees(end)
            ]

        return links_of

    def _links_of(self, memory_id: str, rel: str | None, direction: Direction) -> list[Link]:
        return self._engine.links(memory_id, rel=rel, direction=direction)
