"""Three agents share a memory: one learns, another is warned, and nobody changes what others wrote.

python examples/team_of_three.py
"""

from __future__ import annotations

from skep.agent import Agent, Tool
from skep.errors import AccessError
from skep.hive import Hive


def restart_all(_text: str) -> str:
    """The way that fails."""
    raise RuntimeError("the database refused: too many connections")


TOOLS = (
    Tool(name="restart_all", about="restart everything at once", call=restart_all),
    Tool(name="restart_one", about="restart host by host", call=lambda _text: "up"),
)


def main() -> None:
    """A morning of the team."""
    with Hive.flat(["dora", "otto", "sam"]) as hive:
        dora, otto, sam = (Agent(hive.agent(name), name, tools=TOOLS) for name in ("dora", "otto", "sam"))

        print("1. Dora reads the inventory, Otto the rack plan. Sam was told nothing.")
        dora.learn_from_content("The database of the shop runs on host db1.", "inventory.md")
        otto.learn_from_content("Host db1 stands in the rack room in Leipzig.", "racks.md")
        print("  ", sam.answer("Where does the database of the shop stand?").line())

        print("2. Dora restarts the shop. The first way fails.")
        print("  ", dora.act("restart the shop", check=lambda answer: answer == "up").line())

        print("3. Sam restarts it, and does at once what worked for Dora.")
        run = sam.act("restart the shop", check=lambda answer: answer == "up")
        print("  ", run.line(), "|", run.steps[0].decision.why)

        print("4. Sam may not change what Otto wrote. He proposes, and Otto agrees.")
        rack = hive.agent("sam").recall("where does host db1 stand?")[0].memory
        try:
            hive.agent("sam").retract(rack.id)
        except AccessError as refused:
            print("   refused:", refused)
        asked = hive.agent("sam").propose(
            "revise", rack.id, text="Host db1 stands in the rack room in Halle."
        )
        hive.agent("otto").approve(asked.id)
        print("  ", hive.agent("dora").recall("where does host db1 stand?")[0].memory.text)

        print("5. Who said it?")
        print("  ", hive.provenance(rack.id).witnesses)


if __name__ == "__main__":
    main()
