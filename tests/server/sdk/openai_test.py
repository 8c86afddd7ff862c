"""The official `openai` package against the running program: what its users do, and how its exceptions come out."""
import json
import unittest

import openai
from pydantic import BaseModel

from sdk_server import ALARM, FOX, MODEL, PLAIN, SUM, needs_server, open_client, server_of

setUpModule = needs_server


def client(**more):
    return open_client(openai.OpenAI, base_url=server_of().url + "/v1", **more)


def ask(text=SUM, **more):
    return client().chat.completions.create(**(dict(model=MODEL, messages=[{"role": "user", "content": text}], temperature=0,
                                                     max_tokens=60, extra_body=PLAIN) | more))


class Sum(BaseModel):
    value: int
    certain: bool


class ChatCompletions(unittest.TestCase):
    def test_a_whole_answer(self):
        answer = ask()
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.model, MODEL)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn("82", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_usage_adds_up(self):
        usage = ask().usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertGreater(usage.completion_tokens, 0)

    def test_usage_tells_cached_tokens(self):
        ask(FOX)
        usage = ask(FOX).usage
        self.assertGreaterEqual(usage.prompt_tokens_details.cached_tokens, 128)

    def test_a_stream_joins_to_the_whole_answer(self):
        chunks = list(ask(stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        self.assertEqual(text, ask().choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["stop"])

    def test_all_chunks_share_id_and_model(self):
        chunks = list(ask(stream=True))
        self.assertEqual({(c.id, c.model, c.object) for c in chunks}, {(chunks[0].id, MODEL, "chat.completion.chunk")})

    def test_stream_options_include_usage(self):
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)
        self.assertIsNone(chunks[0].usage)

    def test_the_stream_helper_collects(self):
        with client().chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": SUM}], temperature=0, extra_body=PLAIN) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertIn("82", final.choices[0].message.content)

    def test_a_stream_that_is_closed_early(self):
        stream = ask("Count.", stream=True, max_tokens=2000)
        next(iter(stream))
        stream.close()
        self.assertTrue(server_of().becomes_idle())

    def test_reasoning_comes_apart(self):
        answer = ask(extra_body={"thinking": {"type": "enabled"}}, seed=1, max_tokens=400)
        self.assertTrue(answer.choices[0].message.reasoning_content)
        self.assertIn("82", answer.choices[0].message.content)
        self.assertGreater(answer.usage.completion_tokens_details.reasoning_tokens, 0)

    def test_reasoning_effort_by_name(self):
        for effort in ("none", "low", "medium", "high"):
            with self.subTest(effort):
                self.assertEqual(ask(reasoning_effort=effort, extra_body={}, max_tokens=400).choices[0].finish_reason, "stop")

    def test_reasoning_streams_before_the_answer(self):
        chunks = list(ask(extra_body={"thinking": {"type": "enabled"}}, seed=1, max_tokens=400, stream=True))
        kinds = ["r" if getattr(c.choices[0].delta, "reasoning_content", None) else "c" for c in chunks
                 if getattr(c.choices[0].delta, "reasoning_content", None) or c.choices[0].delta.content]
        self.assertEqual(kinds, sorted(kinds, reverse=True))
        self.assertIn("r", kinds)

    def test_max_tokens_ends_with_length(self):
        answer = ask(max_tokens=1)
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 1))

    def test_max_completion_tokens(self):
        self.assertEqual(ask(max_tokens=openai.omit, max_completion_tokens=1).choices[0].finish_reason, "length")

    def test_stop_as_text_and_as_list(self):
        whole = ask().choices[0].message.content
        for stop in ("8", ["2", "8"]):
            answer = ask(stop=stop)
            self.assertLess(len(answer.choices[0].message.content), len(whole))
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            self.assertNotIn("8", answer.choices[0].message.content)

    def test_a_seed_repeats(self):
        first, second = (ask("Hello!", temperature=1, seed=5).choices[0].message.content for _ in range(2))
        self.assertEqual(first, second)

    def test_penalties_are_taken(self):
        self.assertEqual(ask(frequency_penalty=0.1, presence_penalty=-0.1).object, "chat.completion")

    def test_logprobs(self):
        content = ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual(len(content[0].top_logprobs), 2)
        self.assertLessEqual(content[0].logprob, 0)
        self.assertEqual(bytes(content[0].bytes).decode(), content[0].token)

    def test_logprobs_stream(self):
        chunks = list(ask(logprobs=True, stream=True))
        self.assertTrue(any(c.choices[0].logprobs for c in chunks))

    def test_a_system_message_and_a_history(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SUM},
                    {"role": "assistant", "content": "82"}, {"role": "user", "content": SUM}]
        self.assertIn("82", ask(messages=messages).choices[0].message.content)

    def test_content_as_parts(self):
        self.assertIn("82", ask([{"type": "text", "text": SUM}]).choices[0].message.content)

    def test_a_developer_message(self):
        messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": SUM}]
        self.assertTrue(ask(messages=messages).choices[0].message.content)

    def test_a_tool_call(self):
        choice = ask("Set an alarm for 04:37.", tools=[ALARM], tool_choice="required", max_tokens=200).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.message.tool_calls[0].function.name, "set_alarm")
        self.assertEqual(set(json.loads(choice.message.tool_calls[0].function.arguments)), {"hour", "minute"})

    def test_a_full_loop_with_a_tool(self):
        messages = [{"role": "user", "content": "Set an alarm for 04:37."}]
        first = ask(messages=messages, tools=[ALARM], tool_choice="required", max_tokens=200).choices[0].message
        messages += [first, {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "ok"}]
        last = ask(messages=messages, tools=[ALARM], max_tokens=200).choices[0]
        self.assertTrue(last.message.content or last.message.tool_calls)

    def test_a_named_tool(self):
        other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object", "properties": {}}}}
        choice = ask("Hello!", tools=[other, ALARM], tool_choice={"type": "function", "function": {"name": "set_alarm"}}, max_tokens=200).choices[0]
        self.assertEqual(choice.message.tool_calls[0].function.name, "set_alarm")

    def test_tool_choice_none_makes_no_call(self):
        self.assertFalse(ask("Set an alarm for 04:37.", tools=[ALARM], tool_choice="none").choices[0].message.tool_calls)

    def test_a_tool_call_streams(self):
        chunks = list(ask("Set an alarm for 04:37.", tools=[ALARM], tool_choice="required", max_tokens=200, stream=True))
        calls = [d for c in chunks for d in (c.choices[0].delta.tool_calls or [])]
        self.assertEqual(calls[0].function.name, "set_alarm")
        self.assertEqual(set(json.loads("".join(d.function.arguments or "" for d in calls))), {"hour", "minute"})
        self.assertEqual(chunks[-1].choices[0].finish_reason, "tool_calls")

    def test_structured_output_by_schema(self):
        schema = {"name": "sum", "strict": True, "schema": {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"], "additionalProperties": False}}
        answer = ask(response_format={"type": "json_schema", "json_schema": schema}, max_tokens=200)
        self.assertIsInstance(json.loads(answer.choices[0].message.content)["value"], int)

    def test_parse_gives_a_pydantic_model(self):
        answer = client().chat.completions.parse(model=MODEL, messages=[{"role": "user", "content": SUM}], response_format=Sum, temperature=0, max_tokens=200, extra_body=PLAIN)
        self.assertIsInstance(answer.choices[0].message.parsed, Sum)

    def test_json_mode(self):
        answer = ask("Give me a json object.", response_format={"type": "json_object"}, max_tokens=300)
        if answer.choices[0].finish_reason == "stop":
            json.loads(answer.choices[0].message.content)

    def test_raw_response_has_a_request_id(self):
        raw = client().chat.completions.with_raw_response.create(model=MODEL, messages=[{"role": "user", "content": SUM}], max_tokens=1)
        self.assertTrue(raw.headers["x-request-id"])
        self.assertTrue(ask()._request_id)


class Errors(unittest.TestCase):
    def test_bad_request_error_with_param_and_code(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(temperature=5)
        self.assertEqual((caught.exception.status_code, caught.exception.type), (400, "invalid_request_error"))
        self.assertIn("temperature", caught.exception.message)

    def test_context_length_exceeded(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(" zebra" * 9000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_an_unknown_model(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(model="gpt-none")
        self.assertEqual(caught.exception.param, "model")

    def test_n_above_one(self):
        with self.assertRaises(openai.BadRequestError):
            ask(n=2)

    def test_an_image_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}])
        self.assertIn("image", caught.exception.message)

    def test_a_bad_schema(self):
        with self.assertRaises(openai.BadRequestError):
            ask(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "none"}}})

    def test_authentication_error(self):
        with self.assertRaises(openai.AuthenticationError):
            open_client(openai.OpenAI, base_url=server_of("keys").url + "/v1", api_key="wrong-key").models.list()

    def test_not_found_error(self):
        with self.assertRaises(openai.NotFoundError):
            client().models.retrieve("gpt-none")

    def test_rate_limit_error_and_its_retry_after(self):
        limited = open_client(openai.OpenAI, base_url=server_of("keys").url + "/v1", api_key="secret-of-carl")
        with self.assertRaises(openai.RateLimitError) as caught:
            for _ in range(4):
                limited.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello!"}], max_tokens=1)
        self.assertGreaterEqual(int(caught.exception.response.headers["retry-after"]), 1)

    def test_a_key_is_accepted(self):
        good = open_client(openai.OpenAI, base_url=server_of("keys").url + "/v1", api_key="secret-of-alice")
        self.assertTrue(good.models.list().data)


class Responses(unittest.TestCase):
    def ask(self, text=SUM, **more):
        return client().responses.create(**(dict(model=MODEL, input=text, temperature=0, max_output_tokens=60, reasoning={"effort": "none"}) | more))

    def test_a_whole_response(self):
        response = self.ask()
        self.assertEqual((response.object, response.status), ("response", "completed"))
        self.assertIn("82", response.output_text)
        self.assertEqual(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)

    def test_a_stream_ends_with_the_whole_response(self):
        events = list(self.ask(stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(deltas, events[-1].response.output_text)
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))

    def test_the_stream_helper(self):
        with client().responses.stream(model=MODEL, input=SUM, temperature=0, reasoning={"effort": "none"}, max_output_tokens=60) as stream:
            for _ in stream:
                pass
            self.assertIn("82", stream.get_final_response().output_text)

    def test_instructions_and_messages(self):
        self.assertIn("82", self.ask([{"role": "user", "content": SUM}], instructions="Be brief.").output_text)

    def test_reasoning_is_an_item(self):
        response = self.ask(reasoning={"effort": "low"}, max_output_tokens=400)
        self.assertEqual([item.type for item in response.output], ["reasoning", "message"])
        self.assertGreater(response.usage.output_tokens_details.reasoning_tokens, 0)

    def test_incomplete_for_its_limit(self):
        response = self.ask(max_output_tokens=1)
        self.assertEqual((response.status, response.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_a_function_call_and_its_output(self):
        tool = {"type": "function", "name": "set_alarm", "strict": True, "parameters": ALARM["function"]["parameters"]}
        first = self.ask("Set an alarm for 04:37.", tools=[tool], tool_choice="required", max_output_tokens=200)
        call = next(item for item in first.output if item.type == "function_call")
        self.assertEqual(set(json.loads(call.arguments)), {"hour", "minute"})
        history = [{"role": "user", "content": "Set an alarm for 04:37."}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}]
        self.assertEqual(self.ask(history, tools=[tool], max_output_tokens=200).status, "completed")

    def test_a_function_call_streams(self):
        tool = {"type": "function", "name": "set_alarm", "strict": True, "parameters": ALARM["function"]["parameters"]}
        events = list(self.ask("Set an alarm for 04:37.", tools=[tool], tool_choice="required", max_output_tokens=200, stream=True))
        kinds = {e.type for e in events}
        self.assertLessEqual({"response.function_call_arguments.delta", "response.function_call_arguments.done"}, kinds)

    def test_parse_gives_a_pydantic_model(self):
        response = client().responses.parse(model=MODEL, input=SUM, text_format=Sum, temperature=0, reasoning={"effort": "none"}, max_output_tokens=200)
        self.assertIsInstance(response.output_parsed, Sum)

    def test_previous_response_id(self):
        first = self.ask()
        second = self.ask("And 1 more?", previous_response_id=first.id)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens + 5)

    def test_retrieve_and_delete(self):
        first = self.ask()
        self.assertEqual(client().responses.retrieve(first.id).output_text, first.output_text)
        client().responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            client().responses.retrieve(first.id)

    def test_a_previous_response_that_is_not_there(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(previous_response_id="resp_none")
        self.assertEqual(caught.exception.param, "previous_response_id")

    def test_cached_tokens(self):
        self.ask(FOX)
        self.assertGreaterEqual(self.ask(FOX).usage.input_tokens_details.cached_tokens, 128)


class CompletionsAndModels(unittest.TestCase):
    def test_a_text_is_continued(self):
        answer = client().completions.create(model=MODEL, prompt="Hello", max_tokens=4, temperature=0)
        self.assertEqual(answer.object, "text_completion")
        self.assertTrue(answer.choices[0].text)

    def test_a_completion_streams(self):
        chunks = list(client().completions.create(model=MODEL, prompt="Hello", max_tokens=4, temperature=0, stream=True))
        whole = client().completions.create(model=MODEL, prompt="Hello", max_tokens=4, temperature=0)
        self.assertEqual("".join(c.choices[0].text for c in chunks), whole.choices[0].text)

    def test_logprobs_of_a_completion(self):
        answer = client().completions.create(model=MODEL, prompt="Hello", max_tokens=3, temperature=0, logprobs=2)
        self.assertEqual(len(answer.choices[0].logprobs.token_logprobs), len(answer.choices[0].logprobs.tokens))

    def test_models_list_and_retrieve(self):
        names = [model.id for model in client().models.list()]
        self.assertIn(MODEL, names)
        self.assertEqual(client().models.retrieve(MODEL).id, MODEL)


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_sixteen_at_once(self):
        import asyncio
        async with open_client(openai.AsyncOpenAI, base_url=server_of().url + "/v1") as many:
            async def one():
                answer = await many.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": SUM}], temperature=0, max_tokens=60, extra_body=PLAIN)
                return answer.choices[0].message.content
            answers = await asyncio.gather(*(one() for _ in range(16)))
        self.assertEqual(len(set(answers)), 1)

    async def test_a_cancelled_task_frees_the_engine(self):
        import asyncio
        async with open_client(openai.AsyncOpenAI, base_url=server_of().url + "/v1") as many:
            task = asyncio.create_task(many.completions.create(model=MODEL, prompt="Count.", max_tokens=4000, extra_body={"ignore_eos": True}))
            await asyncio.sleep(0.5)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        self.assertTrue(server_of().becomes_idle())


class Timeouts(unittest.TestCase):
    def test_a_client_that_loses_patience(self):
        with self.assertRaises(openai.APITimeoutError):
            client(timeout=0.5).completions.create(model=MODEL, prompt="Count.", max_tokens=6000, extra_body={"ignore_eos": True})
        self.assertTrue(server_of().becomes_idle())

    def test_a_client_retries_when_the_server_has_no_time(self):
        # The limited key: 429 with Retry-After, and the client comes back by itself.
        retrying = open_client(openai.OpenAI, base_url=server_of("keys").url + "/v1", api_key="secret-of-fay", max_retries=3)
        for _ in range(3):
            self.assertTrue(retrying.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello!"}], max_tokens=1).id)


if __name__ == "__main__":
    unittest.main()
