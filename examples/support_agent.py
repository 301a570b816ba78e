"""A support agent: what each customer said is theirs alone; what the company knows is for everybody.

python examples/support_agent.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from skep import Bank
from skep.agent import Agent, learn_from_content
from skep.llm import Budget, open_llm

HANDBOOK = """# Returns

A return is free within 30 days. The refund takes five working days.

# Deliveries

Parcels leave the warehouse in Leipzig every day at 4 p.m.
"""

TALKS = {
    "mira": [
        {"role": "user", "content": "I live in Graz now. My order number is 4711."},
        {"role": "assistant", "content": "Thank you, I have noted that."},
    ],
    "jonas": [
        {"role": "user", "content": "I am allergic to wool. Please send me cotton socks only."},
        {"role": "assistant", "content": "Of course."},
    ],
}


def main(folder: Path) -> None:
    """Learn what customers said, then answer for each of them."""
    spec = os.environ.get("SKEP_LLM")
    llm = open_llm(spec, environ=os.environ, budget=Budget(max_tokens=50_000)) if spec else None
    with Bank.open(folder / "support.skep") as bank:
        learn_from_content(bank, HANDBOOK, "handbook.md", llm=llm)
        for customer, talk in TALKS.items():
            print(f"{customer}: {bank.add(talk, user_id=customer, llm=llm).line()}")

        for customer, question in (
            ("mira", "Where does the user live?"),
            ("jonas", "Where does the user live?"),
            ("jonas", "How long does the refund take?"),
        ):
            agent = Agent(bank, "support", llm=llm, scope={"user": customer})
            found = agent.answer(question)
            print(f"\n{customer}: {question}\n  {found.text}")
            if not found.known:
                print("  -> ask the customer, or hand over to a person")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
