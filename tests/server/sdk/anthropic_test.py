"""The official `anthropic` package against the running program: what its users do, and how its exceptions come out."""
import unittest

import anthropic

from sdk_server import ALARM, FOX, MODEL, SUM, needs_server, open_client, server_of

setUpModule = needs_server
OFF = {"type": "disabled"}
GREEDY = {"temperature": 0}  # these packages have no parameter of that name any more
TOOL = {"name": "set_alarm", "description": "Sets an alarm.", "input_schema": ALARM["function"]["parameters"]}


def client(**more):
    return open_client(anthropic.Anthropic, base_url=server_of().url, **more)


def ask(text=SUM, **more):
    return client().messages.create(**(dict(model=MODEL, max_tokens=60, thinking=OFF, extra_body=GREEDY, messages=[{"role": "user", "content": text}]) | more))


class Messages(unittest.TestCase):
    def test_a_whole_message(self):
        message = ask()
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", MODEL))
        self.assertTrue(message.id.startswith("msg_"))
        self.assertIn("82", message.content[0].text)
        self.assertEqual(message.stop_reason, "end_turn")

    def test_usage(self):
        usage = ask().usage
        self.assertGreater(usage.output_tokens, 0)
        self.assertEqual(usage.cache_creation_input_tokens, 0)

    def test_input_tokens_leave_out_what_was_cached(self):
        ask(FOX)
        usage = ask(FOX).usage
        self.assertGreaterEqual(usage.cache_read_input_tokens, 128)
        counted = client().messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": FOX}], thinking=OFF)
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_raw_events_of_a_stream(self):
        kinds = [event.type for event in ask(stream=True)]
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))
        self.assertLess(kinds.index("content_block_start"), kinds.index("content_block_delta"))
        self.assertIn("message_delta", kinds)

    def test_the_stream_helper(self):
        with client().messages.stream(model=MODEL, max_tokens=60, thinking=OFF, extra_body=GREEDY, messages=[{"role": "user", "content": SUM}]) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, final.content[0].text)
        self.assertIn("82", text)
        self.assertEqual(final.stop_reason, "end_turn")
        self.assertGreater(final.usage.output_tokens, 0)

    def test_a_stream_tells_cached_tokens_at_its_end(self):
        ask(FOX)
        with client().messages.stream(model=MODEL, max_tokens=8, thinking=OFF, extra_body=GREEDY, messages=[{"role": "user", "content": FOX}]) as stream:
            final = stream.get_final_message()
        self.assertGreaterEqual(final.usage.cache_read_input_tokens, 128)

    def test_a_stream_that_is_left_early(self):
        with client().messages.stream(model=MODEL, max_tokens=4000, messages=[{"role": "user", "content": "Count."}]) as stream:
            next(iter(stream))
        self.assertTrue(server_of().becomes_idle())

    def test_thinking_is_a_block_of_its_own(self):
        message = ask(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000, extra_body={})
        self.assertEqual([block.type for block in message.content], ["thinking", "text"])
        self.assertTrue(message.content[0].thinking)
        self.assertTrue(message.content[0].signature)

    def test_thinking_streams(self):
        with client().messages.stream(model=MODEL, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}, messages=[{"role": "user", "content": SUM}]) as stream:
            kinds = {event.delta.type for event in stream if event.type == "content_block_delta"}
            final = stream.get_final_message()
        self.assertLessEqual({"thinking_delta", "text_delta", "signature_delta"}, kinds)
        self.assertEqual(final.content[0].type, "thinking")

    def test_thinking_goes_back_with_the_history(self):
        first = ask(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000, extra_body={})
        history = [{"role": "user", "content": SUM}, {"role": "assistant", "content": first.content}, {"role": "user", "content": SUM}]
        self.assertTrue(ask(messages=history).content[0].text)

    def test_effort_by_output_config(self):
        self.assertEqual(ask(thinking=anthropic.omit, output_config={"effort": "low"}, max_tokens=2000, extra_body={}).stop_reason, "end_turn")

    def test_max_tokens(self):
        self.assertEqual(ask(max_tokens=1).stop_reason, "max_tokens")

    def test_stop_sequences(self):
        message = ask(stop_sequences=["2"])
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", "2"))
        self.assertNotIn("2", message.content[0].text)

    def test_system_as_text_and_as_blocks(self):
        for system in ("Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]):
            self.assertTrue(ask(system=system).content[0].text)

    def test_content_as_blocks(self):
        self.assertIn("82", ask([{"type": "text", "text": SUM}]).content[0].text)

    def test_a_history(self):
        history = [{"role": "user", "content": SUM}, {"role": "assistant", "content": "82"}, {"role": "user", "content": SUM}]
        self.assertIn("82", ask(messages=history).content[0].text)

    def test_a_tool_call_and_its_result(self):
        first = ask("Set an alarm for 04:37.", tools=[TOOL], tool_choice={"type": "tool", "name": "set_alarm"}, max_tokens=200)
        self.assertEqual(first.stop_reason, "tool_use")
        call = next(block for block in first.content if block.type == "tool_use")
        self.assertEqual(call.name, "set_alarm")
        history = [{"role": "user", "content": "Set an alarm for 04:37."}, {"role": "assistant", "content": first.content},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"}]}]
        self.assertTrue(ask(messages=history, tools=[TOOL], max_tokens=200).content)

    def test_a_tool_call_streams(self):
        with client().messages.stream(model=MODEL, max_tokens=200, thinking=OFF, extra_body=GREEDY, tools=[TOOL], tool_choice={"type": "tool", "name": "set_alarm"},
                                      messages=[{"role": "user", "content": "Set an alarm for 04:37."}]) as stream:
            final = stream.get_final_message()
        call = next(block for block in final.content if block.type == "tool_use")
        self.assertEqual(call.name, "set_alarm")
        self.assertIsInstance(call.input, dict)

    def test_tool_choice_none(self):
        self.assertTrue(all(b.type != "tool_use" for b in ask("Set an alarm for 04:37.", tools=[TOOL], tool_choice={"type": "none"}).content))

    def test_count_tokens_counts_tools_and_system(self):
        plain = client().messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": SUM}]).input_tokens
        more = client().messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": SUM}], system="Be brief.", tools=[TOOL]).input_tokens
        self.assertGreater(more, plain + 20)

    def test_models(self):
        self.assertIn(MODEL, [model.id for model in client().models.list()])
        self.assertEqual(client().models.retrieve(MODEL).id, MODEL)

    def test_request_ids(self):
        self.assertTrue(ask()._request_id)


class Errors(unittest.TestCase):
    def test_bad_request_error(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            ask(extra_body={"temperature": 5})
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")

    def test_an_empty_conversation(self):
        with self.assertRaises(anthropic.BadRequestError):
            ask(messages=[])

    def test_an_unknown_model(self):
        with self.assertRaises(anthropic.BadRequestError):
            ask(model="claude-none")

    def test_a_prompt_that_is_too_long(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            ask(" zebra" * 9000)
        self.assertIn("maximum context length", str(caught.exception))

    def test_an_image_is_refused(self):
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        with self.assertRaises(anthropic.BadRequestError):
            ask([{"type": "image", "source": source}])

    def test_authentication_error(self):
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            open_client(anthropic.Anthropic, base_url=server_of("keys").url, api_key="wrong-key").messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "hi"}])
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")

    def test_a_key_is_accepted(self):
        good = open_client(anthropic.Anthropic, base_url=server_of("keys").url, api_key="secret-of-alice")
        self.assertTrue(good.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "hi"}]).id)

    def test_rate_limit_error(self):
        limited = open_client(anthropic.Anthropic, base_url=server_of("keys").url, api_key="secret-of-dan")
        with self.assertRaises(anthropic.RateLimitError) as caught:
            for _ in range(4):
                limited.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "hi"}])
        self.assertEqual(caught.exception.body["error"]["type"], "rate_limit_error")

    def test_not_found_error(self):
        with self.assertRaises(anthropic.NotFoundError):
            client().models.retrieve("claude-none")

    def test_timeout_error(self):
        with self.assertRaises(anthropic.APITimeoutError):
            client(timeout=0.05).messages.create(model=MODEL, max_tokens=2000, messages=[{"role": "user", "content": FOX * 3}])
        self.assertTrue(server_of().becomes_idle())


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_eight_streams_at_once(self):
        import asyncio
        async with open_client(anthropic.AsyncAnthropic, base_url=server_of().url) as many:
            async def one():
                async with many.messages.stream(model=MODEL, max_tokens=60, thinking=OFF, extra_body=GREEDY, messages=[{"role": "user", "content": SUM}]) as stream:
                    return "".join([text async for text in stream.text_stream])
            answers = await asyncio.gather(*(one() for _ in range(8)))
        self.assertEqual(len(set(answers)), 1)
        self.assertIn("82", answers[0])


if __name__ == "__main__":
    unittest.main()
