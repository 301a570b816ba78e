"""A bank as a capability of Pydantic AI; the model is the framework's own test model."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from skep.adapters.pydantic_ai import HEAD, MemoryCapability
from skep.bank.bank import Bank


def seen_by(messages: list[ModelMessage]) -> str:
    return "\n".join(str(getattr(part, "content", "")) for message in messages for part in message.parts)


def test_a_model_remembers_in_one_run_and_is_told_in_the_next(bank: Bank) -> None:
    seen: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(seen_by(messages))
        assert {"recall", "remember"} <= {tool.name for tool in info.function_tools}
        if len(seen) == 1:
            return ModelResponse(parts=[ToolCallPart("remember", {"text": "The gate code is 4411"})])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(model), capabilities=[MemoryCapability(bank=bank, scope={"user": "ana"})])
    asyncio.run(agent.run("Note that the gate code is 4411"))
    assert [memory.text for memory in bank.find(scope={"user": "ana"})] == ["The gate code is 4411"]

    result = asyncio.run(agent.run("What is the gate code?"))
    assert HEAD in seen[-1]
    assert "The gate code is 4411" in seen[-1]
    assert HEAD not in seen_by(result.all_messages())  # in the request alone


def test_a_model_may_ask(bank: Bank) -> None:
    bank.remember("The gate code is 4411")

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("recall", {"query": "gate code"})])
        return ModelResponse(parts=[TextPart(seen_by(messages[-1:]))])

    agent = Agent(FunctionModel(model), capabilities=[MemoryCapability(bank=bank, inject=False)])
    assert "The gate code is 4411" in asyncio.run(agent.run("go")).output


def test_nothing_is_put_before_a_prompt_that_nothing_answers(bank: Bank) -> None:
    bank.remember("The gate code is 4411")
    seen: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        seen.append(seen_by(messages))
        return ModelResponse(parts=[TextPart("done")])

    asyncio.run(
        Agent(FunctionModel(model), capabilities=[MemoryCapability(bank=bank)]).run("Sing a song of spring")
    )
    assert HEAD not in seen[0]
