"""The family's prompt format, as far as the corpus uses it: conversation -> text.

Its output is compared with the deepseek-recipe package by tests/test_corpus.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYS, USER, ASST, DSML = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜"


@dataclass
class Turn:
    role: str  # system user assistant tool
    text: str = ""
    think: str = ""
    calls: list[tuple[str, dict]] = field(default_factory=list)


@dataclass
class Chat:
    """A conversation with the settings that its prompt depends on."""

    turns: list[Turn]
    thinking: bool = True
    tools: list[dict] = field(default_factory=list)
    json_object: bool = False
    effort: int = 75


def tools_text(tools: list[dict]) -> str:
    """The part of the system block that teaches the call syntax and lists the schemas."""
    d = DSML
    return (
        "\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by "
        f'writing a "<{d} calls>" block like the following:\n\n<{d} calls>\n<{d} invoke name="$TOOL_NAME">\n'
        f'<{d} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{d} parameter>\n...\n</{d} invoke>\n'
        f'<{d} invoke name="$TOOL_NAME2">\n...\n</{d} invoke>\n</{d} calls>\n\n'
        'String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, '
        'arrays, objects), pass the value in JSON format and set `string="false"`.\n\n'
        "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
        "<think>...</think> BEFORE any tool calls or final response.\n\n"
        "Otherwise, output directly after </think> with tool calls or final response.\n\n### Available Tool Schemas\n\n"
        + "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
        + "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
    )


def calls_text(calls: list[tuple[str, dict]]) -> str:
    """A block of tool calls: strings as they are, other values as JSON."""
    lines = [f"<{DSML} calls>"]
    for name, args in calls:
        lines.append(f'<{DSML} invoke name="{name}">')
        for key, value in args.items():
            is_string = isinstance(value, str)
            text = value if is_string else json.dumps(value, ensure_ascii=False)
            flag = "true" if is_string else "false"
            lines.append(f'<{DSML} parameter name="{key}" string="{flag}">{text}</{DSML} parameter>')
        lines.append(f"</{DSML} invoke>")
    lines.append(f"</{DSML} calls>")
    return "\n\n" + "\n".join(lines)


def assistant_text(t: Turn, thinking: bool) -> str:
    """What the model writes in a turn, think tag and end token included."""
    return (
        (f"<think>{t.think}" if thinking else "")
        + "</think>"
        + t.text
        + (calls_text(t.calls) if t.calls else "")
        + EOS
    )


def render(chat: Chat, upto: int | None = None) -> str:
    """Prompt text of the first `upto` turns; the assistant marker (and think tag) is opened at the end
    when the last turn is not an assistant turn."""
    turns = chat.turns[:upto]
    out = [BOS]
    system = turns[0].text if turns and turns[0].role == "system" else ""
    body = turns[1:] if turns and turns[0].role == "system" else turns
    head = (
        f"Reasoning Effort: {chat.effort} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
        if chat.thinking
        else ""
    )
    head += system
    if chat.tools:
        head += tools_text(chat.tools)
    if chat.json_object:
        head += '\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{"type": "json_object"}'
    if head:
        out.append(SYS + head)
    last_user = max((i for i, t in enumerate(body) if t.role == "user"), default=-1)
    for i, t in enumerate(body):
        if t.role == "user":
            out.append(USER + t.text)
        elif t.role == "tool":
            joint = (
                "\n\n" if i and body[i - 1].role == "tool" else USER
            )  # results of one turn share a user block
            out.append(f"{joint}<tool_result>{t.text}</tool_result>")
        else:  # old reasoning is dropped unless the conversation uses tools
            out.append(ASST + assistant_text(t, chat.thinking and (bool(chat.tools) or i > last_user)))
    if not body or body[-1].role != "assistant":
        out.append(ASST + ("<think>" if chat.thinking else "</think>"))
    return "".join(out)
