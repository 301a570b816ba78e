"""A research agent: notes in, answers with citations out.

python examples/research_agent.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from skep import Bank
from skep.agent import Agent
from skep.llm import Budget, open_llm

NOTES = {
    "halden-2021.md": """# Moss as insulation

Ingrid Halden measured moss walls in Tromsø from 2019 to 2021. A wall of 12 cm saved 18 percent of the heat.
The study was paid for by the Nordlys Fund.
""",
    "nordlys.md": """# Nordlys Fund

The Nordlys Fund has its seat in Bergen. The Nordlys Fund gives money to studies of building materials.
""",
    "okoye-2023.md": """# Clay plaster

Chidi Okoye found that clay plaster evens out moisture in old houses. The rooms stayed below 60 percent humidity.
""",
}


def main(folder: Path) -> None:
    """Learn the notes, then answer questions about them."""
    spec = os.environ.get("SKEP_LLM")
    llm = open_llm(spec, environ=os.environ, budget=Budget(max_tokens=50_000)) if spec else None
    with Bank.open(folder / "research.skep") as bank:
        agent = Agent(bank, "researcher", llm=llm, domain="building")
        for source, text in NOTES.items():
            print(agent.learn_from_content(text, source).line())
        for question in (
            "How much heat did a moss wall of 12 cm save?",
            "In which city does the fund that paid for the study of Ingrid Halden have its seat?",
            "What does a kilo of straw cost in Lisbon?",
        ):
            found = agent.answer(question)
            print(f"\n{question}\n  {found.text}")
            for number, each in enumerate(found.citations, 1):
                print(f"  [{number}] {each.source}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
