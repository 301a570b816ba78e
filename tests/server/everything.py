"""A server that does nothing useful and everything the protocol allows: what the conformance suite asks for.

Run as a program it serves HTTP (`everything.py --port 9000`) or stdio (no arguments).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
import sys
import time
import zlib
from typing import Annotated, Any

from msgspec import Meta

from skep.server.mcp.protocol import INVALID_PARAMS, RpcError
from skep.server.mcp.session import Server
from skep.server.mcp.tool_calls import (
    Call,
    InputRequired,
    Prompt,
    Registry,
    Reply,
    Resource,
    Tool,
    ToolError,
    tool,
)

KEY = b"only for tests"


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
).decode()
WAV = base64.b64encode(
    b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    + b"data" + struct.pack("<I", 0)
).decode()  # fmt: skip


def test_simple_text(call: Call) -> str:
    """Answers with text."""
    return "This is a simple text response for testing."


def test_image_content(call: Call) -> Reply:
    """Answers with an image."""
    return Reply(blocks=({"type": "image", "data": PNG, "mimeType": "image/png"},))


def test_audio_content(call: Call) -> Reply:
    """Answers with a sound."""
    return Reply(blocks=({"type": "audio", "data": WAV, "mimeType": "audio/wav"},))


def test_embedded_resource(call: Call) -> Reply:
    """Answers with a resource."""
    resource = {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    }
    return Reply(blocks=({"type": "resource", "resource": resource},))


def test_multiple_content_types(call: Call) -> Reply:
    """Answers with a bit of everything."""
    resource = {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    }
    return Reply(
        text="Multiple content types test:",
        blocks=(
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "resource", "resource": resource},
        ),
    )


def test_tool_with_logging(call: Call) -> str:
    """Logs three lines."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.log("info", line)
        time.sleep(0.05)
    return "logged"


def test_logging_tool(call: Call) -> str:
    """Logs one line."""
    call.log("info", "one line")
    return "logged"


def test_error_handling(call: Call) -> str:
    """Always fails."""
    raise ToolError("This tool intentionally returns an error for testing")


def test_tool_with_progress(call: Call) -> str:
    """Reports progress."""
    for done in (0, 50, 100):
        call.progress(done, 100, f"{done} of 100")
        time.sleep(0.05)
    return "done"


def wait(call: Call, steps: int = 1000) -> str:
    """Works until it is withdrawn, or for `steps` steps."""
    for step in range(steps):
        call.progress(step, steps)
        time.sleep(0.005)
    return "waited"


def test_sampling(call: Call, prompt: str) -> str:
    """Asks the client's model."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    answer = call.ask("sample", "sampling/createMessage", {"messages": [message], "maxTokens": 100})
    return f"LLM response: {answer['content']['text']}"


def _elicit(
    call: Call, key: str, message: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return call.ask(key, "elicitation/create", {"message": message, "requestedSchema": schema})


def test_elicitation(call: Call, message: str) -> str:
    """Asks the user."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = _elicit(call, "user", message, fields, ["username", "email"])
    return f"User response: action: {answer['action']}, content: {json.dumps(answer.get('content'))}"


def test_elicitation_sep1034_defaults(call: Call) -> str:
    """Asks the user, with defaults."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    answer = _elicit(call, "user", "Please review", fields, [])
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"


def test_elicitation_sep1330_enums(call: Call) -> str:
    """Asks the user to choose."""
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"}
        for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = _elicit(call, "user", "Please choose", fields, [])
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"


NAME = {
    "message": "What is your name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


def _said(answer: object, field: str) -> str | None:
    content = answer.get("content") if isinstance(answer, dict) else None
    value = content.get(field) if isinstance(content, dict) else None
    return value if isinstance(value, str) else None


def test_input_required_result_elicitation(call: Call) -> str:
    """Asks for a name, then greets."""
    name = _said(call.ask("user_name", "elicitation/create", NAME), "name")
    if name is None:
        raise InputRequired({"user_name": {"method": "elicitation/create", "params": NAME}})
    return f"Hello, {name}!"


def test_input_required_result_sampling(call: Call) -> str:
    """Asks the client's model, then repeats it."""
    message = {"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}
    answer = call.ask("capital_question", "sampling/createMessage", {"messages": [message], "maxTokens": 100})
    return str(answer["content"]["text"])


def test_input_required_result_list_roots(call: Call) -> str:
    """Asks for the client's folders, then repeats them."""
    return json.dumps(call.ask("client_roots", "roots/list", {})["roots"])


def _sign(text: str) -> str:
    return text + "." + hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


def _signed(call: Call) -> str | None:
    if call.state is None:
        return None
    text, _, _ = call.state.rpartition(".")
    if not hmac.compare_digest(_sign(text).encode(), call.state.encode("utf-8", "replace")):
        raise RpcError(INVALID_PARAMS, "requestState was tampered with")
    return text


CONFIRM = {
    "message": "Please confirm",
    "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
}


def test_input_required_result_request_state(call: Call) -> str:
    """Checks that its state comes back."""
    if _signed(call) == "first" and "confirm" in call.answers():
        return "state-ok"
    raise InputRequired({"confirm": {"method": "elicitation/create", "params": CONFIRM}}, _sign("first"))


def test_input_required_result_tampered_state(call: Call) -> str:
    """Checks that its state comes back untouched."""
    return test_input_required_result_request_state(call)


def test_input_required_result_multiple_inputs(call: Call) -> str:
    """Asks three things at once."""
    message = {"role": "user", "content": {"type": "text", "text": "Generate a greeting"}}
    questions: dict[str, dict[str, Any]] = {
        "user_name": {"method": "elicitation/create", "params": NAME},
        "greeting": {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 50}},
        "client_roots": {"method": "roots/list", "params": {}},
    }
    if _signed(call) == "all" and set(questions) <= set(call.answers()):
        return "all answered"
    raise InputRequired(questions, _sign("all"))


def test_input_required_result_multi_round(call: Call) -> str:
    """Asks one thing after the other."""
    color = {
        "message": "Step 2: What is your favorite color?",
        "requestedSchema": {
            "type": "object",
            "properties": {"color": {"type": "string"}},
            "required": ["color"],
        },
    }
    state, answers = _signed(call), call.answers()
    if state is not None and state.startswith("two:") and "step2" in answers:
        return f"{state[4:]} likes {_said(answers['step2'], 'color')}"
    if state == "one" and "step1" in answers:
        name = _said(answers["step1"], "name")
        raise InputRequired(
            {"step2": {"method": "elicitation/create", "params": color}}, _sign(f"two:{name}")
        )
    raise InputRequired(
        {
            "step1": {
                "method": "elicitation/create",
                "params": {**NAME, "message": "Step 1: What is your name?"},
            }
        },
        _sign("one"),
    )


def test_input_required_result_capabilities(call: Call) -> str:
    """Asks only what the client declared."""
    questions: dict[str, dict[str, Any]] = {}
    if call.can_ask("elicitation/create"):
        questions["user_name"] = {"method": "elicitation/create", "params": NAME}
    if call.can_ask("sampling/createMessage"):
        message = {"role": "user", "content": {"type": "text", "text": "Hello"}}
        questions["greeting"] = {
            "method": "sampling/createMessage",
            "params": {"messages": [message], "maxTokens": 50},
        }
    if questions and not call.answers():
        raise InputRequired(questions)
    return "nothing more to ask"


def test_missing_capability(call: Call) -> str:
    """Needs sampling."""
    return test_sampling(call, "hello")


def test_streaming_elicitation(call: Call) -> str:
    """Reports progress and then asks."""
    call.progress(1, 2)
    return test_input_required_result_elicitation(call)


HEADER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "verbose": {"type": "boolean", "x-mcp-header": "Verbose"},
        "query": {"type": "string"},
    },
}
SCHEMA_2020: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def add(call: Call, a: Annotated[int, Meta(description="One number.")], b: int = 1) -> Reply:
    """Adds two numbers."""
    return Reply(text=str(a + b), structured={"sum": a + b})


def _text(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


def _with_resource(call: Call, given: dict[str, str]) -> list[dict[str, Any]]:
    resource = {
        "uri": given["resourceUri"],
        "mimeType": "text/plain",
        "text": "Embedded resource content for testing.",
    }
    first = {"role": "user", "content": {"type": "resource", "resource": resource}}
    return [first, _text("Please process the embedded resource above.")]


def _with_image(call: Call, given: dict[str, str]) -> list[dict[str, Any]]:
    first = {"role": "user", "content": {"type": "image", "data": PNG, "mimeType": "image/png"}}
    return [first, _text("Please analyze the image above.")]


def _with_question(call: Call, given: dict[str, str]) -> list[dict[str, Any]]:
    fields = {"context": {"type": "string"}}
    answer = _elicit(call, "user_context", "What context should the prompt use?", fields, ["context"])
    return [_text(f"Context: {_said(answer, 'context')}")]


PROMPTS = (
    Prompt(
        name="test_simple_prompt",
        title="Simple",
        description="No arguments.",
        render=lambda call, given: [_text("This is a simple prompt for testing.")],
    ),
    Prompt(
        name="test_prompt_with_arguments",
        title="Arguments",
        description="Two arguments.",
        arguments=(("arg1", "First test argument", True), ("arg2", "Second test argument", True)),
        render=lambda call, given: [
            _text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
        ],
    ),
    Prompt(
        name="test_prompt_with_embedded_resource",
        title="Resource",
        description="Embeds a resource.",
        arguments=(("resourceUri", "What to embed", True),),
        render=_with_resource,
    ),
    Prompt(name="test_prompt_with_image", title="Image", description="Embeds an image.", render=_with_image),
    Prompt(
        name="test_input_required_result_prompt",
        title="Question",
        description="Asks first.",
        render=_with_question,
    ),
)

RESOURCES = (
    Resource(
        uri="test://static-text",
        name="static-text",
        title="Text",
        description="A text.",
        read=lambda call, uri: {"text": "This is the content of the static text resource."},
    ),
    Resource(
        uri="test://static-binary",
        name="static-binary",
        title="Binary",
        description="A picture.",
        mime="image/png",
        read=lambda call, uri: {"blob": PNG},
    ),
    Resource(
        uri="test://watched-resource",
        name="watched",
        title="Watched",
        description="Changes now and then.",
        read=lambda call, uri: {"text": "watched"},
    ),
    Resource(
        uri="test://template/{id}/data",
        name="template",
        title="Template",
        description="One per id.",
        mime="application/json",
        read=lambda call, uri, id: {
            "text": json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
        },
    ),
)


def touch(call: Call) -> str:
    """Changes the watched resource."""
    call.touched.add("test://watched-resource")
    return "touched"


def build() -> Server:
    """The server with all fixtures."""
    functions = [value for name, value in globals().items() if name.startswith("test_")]
    tools = [tool(function, title=function.__name__) for function in (*functions, add, touch, wait)]
    by_name = {entry.name: entry for entry in tools}
    by_name["test_header"] = Tool(
        name="test_header",
        title="Headers",
        description="Routed by headers.",
        schema=HEADER_SCHEMA,
        run=lambda call, **given: json.dumps(given),
    )
    by_name["json_schema_2020_12_tool"] = Tool(
        name="json_schema_2020_12_tool",
        title="Schema",
        description="Tool with JSON Schema 2020-12 features",
        schema=SCHEMA_2020,
        run=lambda call, **given: json.dumps(given),
    )
    registry = Registry(
        tools=by_name,
        resources=RESOURCES,
        prompts={prompt.name: prompt for prompt in PROMPTS},
        complete=lambda reference, argument: ["paris", "park", "party"],
        logging=True,
    )
    return Server(registry, name="everything", version="1.0")


def main() -> None:
    """Serve."""
    if "--port" in sys.argv:
        from skep.server.mcp.http import serve_http

        serve_http(build(), port=int(sys.argv[sys.argv.index("--port") + 1]), token=None)
    else:
        from skep.server.mcp.stdio import serve_stdio

        serve_stdio(build())


if __name__ == "__main__":
    main()
