"""The figures of one member: of what it answers for, so that those of all members add up without copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from skep.hive.blast import everything
from skep.hive.frames import OutcomesAnswer, OutcomesQuery, StatusAnswer, StatusQuery
from skep.hive.replica import seen

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.hive.shelf import Shelf


class Counts(Protocol):
    """What of a member is counted."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def bank(self) -> Bank:
        """Its bank."""
        ...

    @property
    def shelf(self) -> Shelf:
        """What it answers for."""
        ...


def status_of(member: Counts, query: StatusQuery) -> StatusAnswer:
    """The figures of one member; with `missing`, only of what it answers for in the place of others."""
    engine = member.bank.engine
    by_status, by_kind, ids = member.shelf.tally(query.missing, now=engine.now())
    store = engine.store
    links = sum(source in ids for source in store.link_sources())
    trials = sum(m.successes + m.failures for m in store.procedures() if m.id in ids and not m.merged_into)
    if query.missing:
        return StatusAnswer(
            member=member.name, by_status=by_status, by_kind=by_kind, links=links, trials=trials
        )
    own = member.bank.status()
    return StatusAnswer(
        member=member.name,
        by_status=by_status,
        by_kind=by_kind,
        links=links,
        trials=trials,
        held=own.held,
        reembedding=own.reembedding,
        size_bytes=own.size_bytes,
        index_bytes=own.index_bytes,
        embed_error=own.embed_error,
        quarantined={m.id: m.kind for m in everything(member.bank, "quarantined")},
        seen=seen(member.bank),
    )


def outcomes_of(name: str, bank: Bank, query: OutcomesQuery) -> OutcomesAnswer:
    """The outcomes that one bank knows of, and what it knows to be undone."""
    log = bank.engine.store.log
    events = log.outcomes() if query.memory is None else log.of(query.memory)
    return OutcomesAnswer(
        member=name,
        events=tuple(event for event in events if event.kind == "outcome"),
        undos=tuple(log.undos()),
    )
