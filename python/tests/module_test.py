"""How the module behaves as Python: stubs, argument types, things that are used up, errors, threads."""
import ast
import json
import re
import sys
import threading
import time
import unittest
from pathlib import Path

import fathom_recipe as recipe
from shared import ROOT, V4_FILE, tokenizer

# What deepseek-recipe 0.2.0 exports; switching is an import line when all of it is here.
NAMES_OF_THE_WHEEL = """
    IMAGE_SPECIAL_TOKEN_ID AssistantMessage BytesImageSource CalcResizeError ChatCompletionChunk
    ChatCompletionChunkGenerator ChatCompletionRequest ChatCompletionResponse Conversation ConversationRequest
    ConversionError ConversionOptions DataUrlImageSource DeepseekV41Encoding DeepseekV4Encoding ImageError ImageInfo
    ImageQuota ImageResolver ImageSource InferenceChunk InferenceFinishReason InferenceOptions LatestReminderMessage
    Message MessagesChunkGenerator MessagesRequest MessagesResponse MessagesStreamEvent ModelVersion OutputConstraint
    MultiModalData OpenCvImagePreprocessor ParsingOptions PreprocessOptions PromptUsage ReasoningContentBehavior
    RenderedPrompt ReqwestImageFetcher ResponsesChunkGenerator ResponsesEcho ResponsesRequest ResponsesResponse
    ResponsesStreamEvent SpecialToken SpecialTokens StreamProcessor SystemMessage ThinkingInitialStage Tokenizer ToolCall
    ToolDefinition ToolMessage UrlImageSource UserMessage WebSearchBehavior __version__
""".split()


def chat(**more):
    return {"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "Hello"}], **more}


def processor_of(parsing=None, tokens=None):
    return recipe.StreamProcessor(recipe.MessagesChunkGenerator("ID", "m", True), parsing or recipe.ParsingOptions(), tokens)


def members(kind):
    return {name for name in vars(kind) if not name.startswith("_") or name == "__init__"}


class Names(unittest.TestCase):
    def test_every_name_of_the_wheel_is_there(self):
        self.assertLessEqual(set(NAMES_OF_THE_WHEEL), set(recipe.__all__))
        for name in recipe.__all__:
            self.assertTrue(hasattr(recipe, name), name)

    def test_every_public_name_and_member_has_a_stub(self):
        package = Path(recipe.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        tree = ast.parse((package / "_native.pyi").read_text(encoding="utf-8"))
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        variables = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
        for name in recipe.__all__:
            value = getattr(recipe, name)
            if not hasattr(recipe._native, name):
                continue  # annotated where it is written, in _images.py
            if not isinstance(value, type):
                self.assertIn(name, variables)
                continue
            declared = set()
            for node in classes[name].body:
                declared.add(getattr(node, "name", None) or getattr(getattr(node, "target", None), "id", None))
            found = members(value) - {"with_traceback", "add_note"}
            if "__init__" not in declared:
                found.discard("__init__")  # made elsewhere
            self.assertLessEqual(found, declared, name)
            real = {n for n in declared if n and n != "__init__" and name != "ConversionError"}
            for member in real:
                self.assertTrue(hasattr(value, member), f"{name}.{member}")

    def test_the_version_is_that_of_the_project(self):
        cmake = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        version = re.search(r"project\(fathom VERSION (\S+)", cmake)[1]
        self.assertEqual(recipe.__version__, version)
        self.assertIn(f'version = "{version}"', (ROOT / "python/pyproject.toml").read_text(encoding="utf-8"))

    def test_the_blocks_of_the_readme_run(self):
        text = (ROOT / "python/README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"(<!-- not run.*?-->\n)?```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(blocks), 3)
        for skipped, block in blocks:
            if not skipped:
                exec(compile(block, "README.md", "exec"), {"print": lambda *_: None})


class Arguments(unittest.TestCase):
    def test_a_body_may_be_bytes_text_or_a_dict(self):
        body = chat(temperature=0.5, seed=2**62, stop=("a", "b"), thinking={"type": "disabled"})
        prompts = set()
        for form in (body, json.dumps(body), json.dumps(body).encode()):
            converted = recipe.ChatCompletionRequest(form).convert(recipe.ConversionOptions())
            self.assertEqual(converted.inference_options.seed, 2**62)
            self.assertEqual(converted.inference_options.temperature, 0.5)
            self.assertEqual(converted.parsing_options.stop_sequences, ["a", "b"])
            prompts.add(recipe.DeepseekV41Encoding().render_conversation(converted.conversation).prompt)
        self.assertEqual(len(prompts), 1)

    def test_wrong_types_are_type_errors(self):
        wrong = [
            lambda: recipe.ChatCompletionRequest(bytearray(b"{}")),
            lambda: recipe.ChatCompletionRequest({1: 2}),
            lambda: recipe.ChatCompletionRequest({"a": object()}),
            lambda: recipe.ChatCompletionRequest(chat()).convert(3),
            lambda: recipe.ChatCompletionRequest(chat(), "strict"),
            lambda: recipe.Conversation([3]),
            lambda: recipe.Conversation("ab"),
            lambda: recipe.Conversation([], True),
            lambda: recipe.UserMessage(3),
            lambda: recipe.Message(),
            lambda: recipe.BytesImageSource("text"),
            lambda: recipe.ConversionOptions(default_thinking_mode=1),
            lambda: recipe.ConversionOptions(thinking_max_tokens_upper_bound=-1),
            lambda: recipe.ConversionOptions().with_model_versions_by_name({"a": 3}),
            lambda: recipe.ConversionOptions().with_special_tokens(None),
            lambda: recipe.SpecialTokens("x"),
            lambda: recipe.SpecialTokens(bos=3),
            lambda: recipe.SpecialTokens(nothing="x"),
            lambda: recipe.PromptUsage(prompt_tokens=1.5),
            lambda: recipe.PromptUsage(prompt_tokens=-1),
            lambda: recipe.InferenceChunk.text(b"x"),
            lambda: recipe.InferenceChunk.tokens([-1]),
            lambda: recipe.InferenceChunk.tokens([1], [(1.0, 2)]),
            lambda: recipe.InferenceChunk.finish("stop"),
            lambda: recipe.StreamProcessor(3, recipe.ParsingOptions()),
            lambda: recipe.StreamProcessor(recipe.MessagesChunkGenerator("a", "b", True), None),
            lambda: processor_of().push("x"),
            lambda: setattr(recipe.ParsingOptions(), "parse_tool_calls", 3),
            lambda: setattr(recipe.ParsingOptions(), "stop_sequences", "ab"),
            lambda: recipe.MessagesResponse("a", "b", 1, 2, 3).accumulate(3),
            lambda: recipe.MessagesResponse.sse_event_name(3),
            lambda: recipe.DeepseekV41Encoding().with_tokenizer("x"),
            lambda: recipe.DeepseekV41Encoding().encode(None),
            lambda: recipe.ImageInfo("x", 1, 1),
            lambda: recipe.ImageResolver(3, lambda data, options: None),
        ]
        for number, call in enumerate(wrong):
            with self.subTest(number), self.assertRaises(TypeError):
                call()

    def test_unknown_words_are_value_errors_that_list_the_choices(self):
        for call, message in (
            (lambda: recipe.Conversation(tool_choice="x"), 'invalid tool_choice "x"; expected "auto", "none", or "required"'),
            (lambda: recipe.Conversation(response_format="json_schema"),
             'invalid response_format "json_schema"; expected "text" or "json_object"'),
            (lambda: recipe.UrlImageSource("u", "x"),
             'invalid detail "x"; expected "low", "high", "original", or "auto"'),
            (lambda: recipe.ConversionOptions(policy="x"), 'invalid policy "x"; expected "default" or "strict"'),
            (lambda: recipe.UserMessage("a", image_token=""), "image_token must not be empty"),
            (lambda: recipe.Conversation(response_schema={}, response_regex="a"),
             "response_schema and response_regex cannot be combined"),
            (lambda: recipe.ChatCompletionRequest({"a": float("nan")}), "NaN is not a finite JSON number"),
        ):
            with self.subTest(message), self.assertRaises(ValueError) as caught:
                call()
            self.assertEqual(str(caught.exception), message)

    def test_a_dict_that_holds_itself_is_a_value_error(self):
        body = chat()
        body["metadata"] = body
        with self.assertRaisesRegex(ValueError, "127 levels"):
            recipe.ChatCompletionRequest(body)

    def test_a_lone_surrogate_in_a_body_is_a_unicode_error(self):
        with self.assertRaises(UnicodeEncodeError):
            recipe.ChatCompletionRequest("\ud800")
        with self.assertRaises(UnicodeEncodeError):
            recipe.ChatCompletionRequest({"model": "\ud800"})

    def test_values_of_schemas_keep_their_types(self):
        schema = {"a": [1, 2.5, None, True, 1e300, 2**63, "ä"], "b": {"z": 1, "y": 1.0}}
        found = recipe.Conversation(response_schema=schema).response_schema
        self.assertEqual(found, schema)
        self.assertIs(type(found["b"]["y"]), float)
        self.assertEqual(list(found["b"]), ["z", "y"])

    def test_conversations_made_by_hand_say_what_they_were_given(self):
        calls = [recipe.ToolCall("i", "f", "{}")]
        source = recipe.BytesImageSource(b"\0x", "low", path="p")
        conversation = recipe.Conversation([
            recipe.SystemMessage("s", tools=[recipe.ToolDefinition("g")]),
            recipe.UserMessage("see <｜image｜>", [source]),
            recipe.AssistantMessage("c", "r", calls, True),
            recipe.ToolMessage("t", "i"),
            recipe.LatestReminderMessage("now"),
        ], reasoning_effort="max")
        kinds = ["SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage", "LatestReminderMessage"]
        self.assertEqual([type(message).__name__ for message in conversation.messages], kinds)
        system, user, assistant, tool, reminder = conversation.messages
        self.assertEqual([t.name for t in system.tools], ["g"])
        self.assertEqual(user.image_sources[0].data, b"\0x")
        self.assertIsInstance(user.image_sources[0], recipe.BytesImageSource)
        self.assertEqual((assistant.reasoning_content, assistant.prefix), ("r", True))
        self.assertEqual(assistant.tool_calls[0].name, "f")
        self.assertEqual((tool.tool_call_id, reminder.role), ("i", "latest_reminder"))
        rendered = recipe.DeepseekV41Encoding().render_conversation(conversation)
        self.assertEqual([s.path for s in rendered.image_sources], ["p"])
        self.assertIn("<｜image｜>", [rendered.prompt[a:b] for a, b in rendered.special_ranges])


class UsedUp(unittest.TestCase):
    def consumed(self, what, call):
        with self.assertRaises(RuntimeError) as caught:
            call()
        self.assertEqual(str(caught.exception), f"{what} has been consumed")

    def test_a_request_is_used_up_by_converting_even_when_that_fails(self):
        options = recipe.ConversionOptions()
        for body, fails in ((chat(), False), (chat(temperature=9), True)):
            request = recipe.ChatCompletionRequest(body)
            if fails:
                with self.assertRaises(recipe.ConversionError):
                    request.convert(options)
            else:
                request.convert(options)
            self.consumed("protocol request", lambda: request.convert(options))
            self.consumed("protocol request", lambda: request.model)
        request = recipe.ResponsesRequest({"model": "DeepSeek-V4.1-Flash", "input": "x"})
        request.convert(options)
        self.consumed("protocol request", request.echo)
        self.consumed("protocol request", lambda: request.namespace_tool_map(options))

    def test_a_generator_is_used_up_by_its_processor_and_by_its_methods(self):
        generator = recipe.MessagesChunkGenerator("ID", "m", True)
        signed = generator.with_signature("s")
        self.consumed("chunk generator", lambda: generator.with_signature("s"))
        with self.assertRaises(TypeError):
            recipe.StreamProcessor(signed, None)
        recipe.StreamProcessor(signed, recipe.ParsingOptions())
        self.consumed("chunk generator", lambda: recipe.StreamProcessor(signed, recipe.ParsingOptions()))

    def test_a_chunk_is_used_up_by_the_response(self):
        event = processor_of().push(recipe.InferenceChunk.ready())[0]
        recipe.MessagesResponse("a", "b", 1, 2, 3).accumulate(event)
        self.consumed("protocol chunk", event.to_json)
        self.consumed("protocol chunk", lambda: recipe.MessagesResponse.sse_event_name(event))
        self.consumed("protocol chunk", lambda: recipe.MessagesResponse("a", "b", 1, 2, 3).accumulate(event))


class Errors(unittest.TestCase):
    def test_the_parse_stage_raises_value_errors_with_a_path(self):
        with self.assertRaises(ValueError) as caught:
            recipe.ChatCompletionRequest(chat(messages=[{"role": "user", "content": 3}]))
        self.assertEqual(caught.exception.param, "messages[0].content")
        self.assertEqual(caught.exception.status_code, 400)
        self.assertEqual(json.loads(caught.exception.body)["error"]["param"], "messages[0].content")

    def test_conversion_raises_conversion_errors(self):
        for policy, param in (("default", "temperature"), ("strict", None)):
            with self.assertRaises(recipe.ConversionError) as caught:
                recipe.ChatCompletionRequest(chat(temperature=9), policy=policy).convert(
                    recipe.ConversionOptions(policy=policy))
            message = "Invalid temperature value, the valid range of temperature is [0, 2]"
            error = json.loads(caught.exception.body)["error"]
            self.assertEqual((str(caught.exception), error["message"]), (message, message))
            self.assertEqual(caught.exception.status_code, 400)
            self.assertEqual(error["param"], param)

    def test_a_request_is_converted_under_the_policy_that_it_was_read_with(self):
        request = recipe.ChatCompletionRequest(chat())
        with self.assertRaisesRegex(ValueError, 'parsed under policy "default", the options say "strict"'):
            request.convert(recipe.ConversionOptions(policy="strict"))
        self.assertEqual(request.model, "DeepSeek-V4.1-Flash")  # a mistake of the program uses nothing up

    def test_the_policy_decides_what_is_accepted(self):
        developer = chat(messages=[{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}])
        recipe.ChatCompletionRequest(developer).convert(recipe.ConversionOptions())
        with self.assertRaises(ValueError):
            recipe.ChatCompletionRequest(developer, policy="strict")

    def test_a_stream_that_fails_or_is_over_raises_runtime_errors(self):
        text, tokens = recipe.InferenceChunk.text("x"), recipe.InferenceChunk.tokens([1])
        over = processor_of()
        over.finish()
        self.assertEqual(over.finish(), [])
        failed, closed = processor_of(), processor_of()
        closed.close()
        for processor, chunk, message in (
            (over, text, "stream processor has finished"),
            (failed, tokens, "token chunk received without a tokenizer"),
            (failed, text, "stream processor is closed"),
            (closed, text, "stream processor is closed"),
        ):
            with self.assertRaises(RuntimeError) as caught:
                processor.push(chunk)
            self.assertEqual(str(caught.exception), message)
        self.assertEqual((over.finished, failed.finished, closed.finished), (True, False, False))
        self.assertRaises(RuntimeError, closed.finish)

    def test_chunks_of_two_answers_do_not_make_one_response(self):
        first, second = (processor_of().push(recipe.InferenceChunk.text("x")) for _ in range(2))
        response = recipe.MessagesResponse("a", "b", 1, 2, 3)
        response.accumulate(first[0])
        with self.assertRaisesRegex(RuntimeError, "of another answer"):
            response.accumulate(second[0])

    def test_a_response_without_chunks_is_json_too(self):
        for kind in (recipe.ChatCompletionResponse, recipe.ResponsesResponse, recipe.MessagesResponse):
            self.assertEqual(json.loads(kind("a", "m", 1, 2, 0).to_json())["model"], "m")

    def test_what_the_codec_does_not_do_says_what_to_do_instead(self):
        for call, words in (
            (lambda: recipe.Tokenizer.from_pretrained("x"), "Tokenizer.from_file"),
            (recipe.ReqwestImageFetcher, "fetch"),
            (recipe.OpenCvImagePreprocessor, "preprocess"),
        ):
            with self.assertRaisesRegex(NotImplementedError, words):
                call()

    def test_a_file_that_is_no_tokenizer_is_a_runtime_error(self):
        for call in (lambda: recipe.Tokenizer.from_str("{}"), lambda: recipe.Tokenizer.from_file("no/such/file")):
            self.assertRaises(RuntimeError, call)
        conversation = recipe.Conversation([recipe.UserMessage("x")])
        with self.assertRaisesRegex(RuntimeError, "no tokenizer is attached"):
            recipe.DeepseekV4Encoding().encode(conversation)


class Threads(unittest.TestCase):
    def test_threads_share_a_tokenizer_and_a_conversation(self):
        tokens = tokenizer("v41-derived")
        encoding = recipe.DeepseekV41Encoding().with_tokenizer(tokens)
        conversation = recipe.Conversation([recipe.UserMessage("Straße 東京 " * 2000)])
        alone, found = encoding.encode(conversation), []

        def encode():
            for _ in range(5):
                found.append(encoding.encode(conversation))

        threads = [threading.Thread(target=encode) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), 20)
        self.assertTrue(all(ids == alone for ids in found))
        self.assertEqual(tokens.decode(alone), encoding.render_conversation(conversation).prompt)

    def test_encoding_lets_other_threads_run(self):
        if not V4_FILE.exists():
            raise unittest.SkipTest("the published tokenizer is not there: scripts/fetch-test-files fetches it")
        text = V4_FILE.read_text(encoding="utf-8")
        seen, done = [], threading.Event()

        def count():
            while not done.is_set():
                seen.append(None)
                time.sleep(0)  # gives the GIL back, which the main thread otherwise would not get for an hour

        # Switching by time alone would take the interval: an hour. Only a released GIL lets the other thread run.
        before = sys.getswitchinterval()
        thread = threading.Thread(target=count)
        thread.start()
        sys.setswitchinterval(3600)
        try:
            seen.clear()
            recipe.Tokenizer.from_str(text)
            self.assertGreater(len(seen), 0)
        finally:
            sys.setswitchinterval(before)
            done.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
