"""The corpus: its prompts are the family's, its documents whole, its evaluation set the miniature's."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import deepseek_recipe as recipe
import numpy as np
import pytest
from tokenizers import Tokenizer

from training.miniature.corpus import EVALUATION_SEED, TASKS, documents, eval_cases, write_tokens
from training.miniature.prompt import ASST, BOS, EOS, Chat, Turn, assistant_text, render
from training.reference.vocabulary import SPECIAL, compressed_token_map

MINIATURE_SEED = 20  # --seed of the corpus that models/mini saw last; its eval.jsonl comes from it


def recipe_prompt(chat: Chat) -> str:
    """The prompt before the last turn, as the deepseek-recipe package writes it."""
    messages, pending, made = [], [], 0
    for turn in chat.turns[:-1]:
        if turn.role == "system":
            messages.append(recipe.SystemMessage(turn.text))
        elif turn.role == "user":
            messages.append(recipe.UserMessage(turn.text))
        elif turn.role == "tool":
            messages.append(recipe.ToolMessage(turn.text, tool_call_id=pending.pop(0)))
        else:
            calls = []
            for name, arguments in turn.calls:
                made += 1
                calls.append(recipe.ToolCall(f"c{made}", name, json.dumps(arguments, ensure_ascii=False)))
            pending = [call.id for call in calls]
            reasoning = turn.think if chat.thinking and turn.think else None
            messages.append(
                recipe.AssistantMessage(turn.text, reasoning_content=reasoning, tool_calls=calls or None)
            )
    tools = [recipe.ToolDefinition(t["name"], t["description"], t["parameters"]) for t in chat.tools]
    conversation = recipe.Conversation(
        messages,
        thinking_mode=chat.thinking,
        tools=tools or None,
        response_format="json_object" if chat.json_object else "text",
    )
    return recipe.DeepseekV41Encoding().render_conversation(conversation).prompt


def test_prompts_are_those_of_deepseek_recipe() -> None:
    for i, chat in enumerate(islice(documents(7), 500)):
        chat.effort = 75  # the package's default; other efforts differ in that number only
        assert render(chat, len(chat.turns) - 1) == recipe_prompt(chat), f"document {i}"


def test_a_seed_gives_the_same_documents_again() -> None:
    first, second, other = ([render(c) for c in islice(documents(seed), 50)] for seed in (3, 3, 4))
    assert first == second != other


def test_every_document_is_whole() -> None:
    for chat in islice(documents(5), 500):
        text = render(chat)
        assert text.startswith(BOS)
        assert text.endswith(EOS)
        assert text.count(BOS) == 1
        assert text.count(ASST) == text.count(EOS) == sum(turn.role == "assistant" for turn in chat.turns)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_prompt_and_completion_are_the_document_cut_in_two(task) -> None:
    for seed in range(20):
        chat = task(random.Random(seed))
        prompt, answer = render(chat, len(chat.turns) - 1), assistant_text(chat.turns[-1], chat.thinking)
        opened = "<think>" if chat.thinking else "</think>"
        assert prompt.endswith(ASST + opened)
        if (
            chat.tools or sum(turn.role == "user" for turn in chat.turns) == 1
        ):  # else older reasoning is dropped later
            assert prompt + answer.removeprefix(opened) == render(chat)


def test_reasoning_before_the_last_question_is_dropped_without_tools_only() -> None:
    turns = [
        Turn("user", "a"),
        Turn("assistant", "b", "why"),
        Turn("user", "c"),
        Turn("assistant", "d", "because"),
    ]
    assert "why" not in render(Chat(turns))
    assert "because" in render(Chat(turns))
    schema = {
        "name": "f",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }
    assert "why" in render(Chat(turns, tools=[schema]))


def test_token_files_hold_whole_documents_back_to_back(miniature_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(miniature_folder / "tokenizer.json"))
    write_tokens(tokenizer, 3, 5000, tmp_path / "train.bin")
    ids = np.fromfile(tmp_path / "train.bin", dtype=np.uint16)
    assert len(ids) == 5000
    text = tokenizer.decode(ids.tolist(), skip_special_tokens=False)
    assert "".join(render(c) for c in islice(documents(3), 200)).startswith(text.rstrip("\ufffd"))


def test_the_evaluation_set_of_the_miniature_can_be_made_again(
    miniature_folder: Path, held_out: list[dict]
) -> None:
    tokenizer = Tokenizer.from_file(str(miniature_folder / "tokenizer.json"))
    made = sorted((c["prompt"], c["completion"]) for c in eval_cases(MINIATURE_SEED + EVALUATION_SEED, 40))
    assert sorted((c["prompt"], c["completion"]) for c in held_out) == made
    for case in held_out[::20]:
        assert tokenizer.encode(case["prompt"], add_special_tokens=False).ids == case["prompt_ids"]


def test_special_tokens_have_their_places_and_compress_to_themselves(miniature_folder: Path) -> None:
    file = str(miniature_folder / "tokenizer.json")
    assert [Tokenizer.from_file(file).id_to_token(i) for i in range(len(SPECIAL))] == SPECIAL
    table, size = compressed_token_map(file)
    assert table[: len(SPECIAL)] == list(range(len(SPECIAL)))
    assert sorted(set(table)) == list(range(size))
