"""mem0's words over a bank: `Memory().add`, `search`, `get`, `get_all`, `update`, `delete`, `history` and the like.

A program written for mem0 changes its import and goes on, offline. `user_id` and `run_id` are user and session of a
scope, `agent_id` is the agent, as in an import from mem0. mem0 itself is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from skep.adapters.mem0_arguments import Message, asked_for, by_user, messages_of, whose, words_of
from skep.clock import Now, system_now
from skep.errors import InvalidInputError, NotFoundError
from skep.model import Memory as Stored

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

Facts = Callable[[Sequence[Message]], Iterable[str]]
UNSET: Any = object()
TIMELY = (
    "is a feature of mem0's platform; `created_at` of a memory and `as_of` of `Bank.recall` tell times here"
)


class Memory:
    """What `mem0.Memory` does, in a bank.

    Args:
        bank: The bank; without one, that of the user is opened, as by `Bank.open()`.
        facts: Finds the statements in messages, for `add(infer=True)`. Without one, each message of a user is one.
    """

    def __init__(
        self, bank: MemoryBank | None = None, *, facts: Facts | None = None, now: Now = system_now
    ) -> None:
        if bank is None:
            from skep.bank.bank import Bank

            bank = Bank.open()
        self.bank = bank
        self.facts = facts
        self.now = now

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """A memory in the bank that `{"path": ...}` names. Settings of mem0's own parts are refused: none is there."""
        from skep.bank.bank import Bank

        others = sorted(set(config_dict) - {"path"})
        if others:
            raise InvalidInputError(
                f"{', '.join(others)} of a mem0 config name parts that skep does not have; give {{'path': 'my.skep'}}"
                " or nothing, or pass an open bank",
                field="config_dict",
            )
        return cls(Bank.open(config_dict.get("path")))

    def add(
        self,
        messages: str | Message | Sequence[Message],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> dict[str, list[dict[str, Any]]]:
        """Remember messages. With `infer`, what is repeated is confirmed and what is outdated replaced."""
        if timestamp is not None:
            raise ValueError(f"timestamp {TIMELY}")
        if prompt is not None:
            raise ValueError("prompt has no effect without mem0's model; pass `facts=` to Memory instead")
        if memory_type not in (None, "procedural_memory"):
            raise ValueError(f"memory_type must be 'procedural_memory' or left out, got {memory_type!r}")
        said = messages_of(messages)
        ends: dict[str, Any] = {} if expiration_date is None else {"ttl": self._until(expiration_date)}
        if infer and self.facts is not None:
            told = [(text, None) for text in self.facts(said)]
        else:
            kept = [m for m in said if m.get("role", "user") != "system" and (not infer or by_user(m))]
            told = [(words_of(m), None if infer else m.get("role")) for m in kept]
        owner = whose({"user_id": user_id, "agent_id": agent_id, "run_id": run_id}, asked=False)
        results: list[dict[str, Any]] = []
        for text, role in told:
            if not text.strip():
                continue
            done = self.bank.remember(
                text,
                kind="procedure" if memory_type else "fact",
                **owner,
                metadata={**(metadata or {}), **({"role": role} if role else {})},
                on_conflict="supersede" if infer else "ignore",
                **ends,
            )
            event = {"confirmed": "NONE", "superseded": "UPDATE"}.get(done.action, "ADD")
            results.append({"id": done.memory.id, "memory": done.memory.text, "event": event})
        return {"results": results}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """One memory; None if there is none."""
        try:
            return self._item(self.bank.get(memory_id))
        except NotFoundError:
            return None

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """The memories of a user, agent or run, newest first."""
        asked = asked_for(filters, kwargs, "get_all")
        if top_k <= 0:
            return {"results": []}
        status = ("active", "pending", "expired") if show_expired else ("active", "pending")
        page = self.bank.find(**asked, status=status, limit=top_k)
        return {"results": [self._item(memory) for memory in page]}

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """The memories that fit a question, best first, with a score from 0 to 1."""
        if reference_date is not None:
            raise ValueError(f"reference_date {TIMELY}")
        if show_expired:
            raise ValueError("show_expired: an expired memory is in no search here; `get_all` lists them")
        if rerank:
            raise ValueError("rerank: pass a reranker to `Bank.recall`; see docs/how-to/rerank.md")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be between 0 and 1, got {threshold}")
        asked = asked_for(filters, kwargs, "search")
        if top_k <= 0:
            return {"results": []}
        found = self.bank.recall(query, **asked, limit=top_k)
        return {
            "results": [
                self._item(hit.memory)
                | {"score": hit.score}
                | ({"score_details": {"why": hit.why(), **hit.signals}} if explain else {})
                for hit in found
                if hit.score >= threshold
            ]
        }

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Change the text of a memory, add to its metadata, or set its end."""
        text = data if text is None else text
        changes: dict[str, Any] = {} if text is None else {"text": text}
        if expiration_date is not UNSET:
            changes["ttl"] = None if expiration_date is None else self._until(expiration_date)
        if not changes and metadata is None:
            raise ValueError("At least one of text, metadata, or expiration_date must be provided.")
        memory = self._found(memory_id)
        if metadata is not None:
            changes["metadata"] = {**memory.metadata, **metadata}
        self.bank.revise(memory_id, **changes)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Erase a memory for good."""
        self._found(memory_id)
        self.bank.forget(memory_id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Erase every memory of a user, agent or run for good."""
        named = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        if not any(named.values()):
            raise ValueError("Name a user_id, agent_id or run_id. To delete everything, use `reset()`.")
        self._forget(**whose(named, asked=True))
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """What a memory said before, oldest first."""
        rows: list[dict[str, Any]] = []
        text: str | None = None
        kinds = {
            "remember": "ADD",
            "revise": "UPDATE",
            "retract": "DELETE",
            "supersede": "DELETE",
            "forget": "DELETE",
        }
        for event in self.bank.history(memory_id):
            if event.kind not in kinds:
                continue
            new = event.body.get("text", event.body.get("changes", {}).get("text"))
            gone = kinds[event.kind] == "DELETE"
            row: dict[str, Any] = {"id": event.id, "memory_id": memory_id, "event": kinds[event.kind]}
            row |= {"old_memory": text, "new_memory": None if gone else new or text, "is_deleted": gone}
            rows.append(row | {"created_at": _iso(event.at), "updated_at": _iso(event.at)})
            text = new or text
        return rows

    def reset(self) -> None:
        """Erase every memory of the bank for good."""
        self._forget()

    def close(self) -> None:
        """Release the bank."""
        self.bank.close()

    def _found(self, memory_id: str) -> Stored:
        try:
            return self.bank.get(memory_id)
        except NotFoundError as error:
            raise ValueError(f"Memory with id {memory_id} not found") from error

    def _forget(self, **owner: Any) -> None:
        ids: list[str] = []
        cursor: str | None = None
        while True:
            page = self.bank.find(**owner, status=None, limit=1000, cursor=cursor)
            ids += [memory.id for memory in page]
            if (cursor := page.cursor) is None:
                break
        if ids:
            self.bank.forget(ids)

    def _until(self, day: Any) -> float:
        """Seconds until the end of a day."""
        when = day if isinstance(day, date) else date.fromisoformat(str(day)[:10])
        end = datetime(when.year, when.month, when.day, tzinfo=UTC) + timedelta(days=1)
        return max(0.001, end.timestamp() - self.now())

    def _item(self, memory: Stored) -> dict[str, Any]:
        item: dict[str, Any] = {"id": memory.id, "memory": memory.text, "created_at": _iso(memory.created_at)}
        named = {"user_id": memory.scope.user, "agent_id": memory.agent, "run_id": memory.scope.session}
        item |= {name: value for name, value in named.items() if value}
        metadata = dict(memory.metadata)
        if "role" in metadata:
            item["role"] = metadata.pop("role")
        if memory.expires_at is not None:
            item["expiration_date"] = _iso(memory.expires_at - 1)[:10]
        return item | ({"metadata": metadata} if metadata else {})


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
