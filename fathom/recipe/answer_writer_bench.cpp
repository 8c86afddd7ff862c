// What one delta costs a writer: the event of a one-token chunk. The buffer is cleared as the service does when it has
// sent it.
#include <benchmark/benchmark.h>

#include "fathom/recipe/answer_writer.h"

namespace fathom::recipe {
namespace {

template <class Form>
Form form_of() {
  Form form;
  form.identity = {"chatcmpl-0123456789abcdef", "DeepSeek-V4.1-Flash", 1796000000};
  return form;
}

template <class Writer, class Form>
void deltas(benchmark::State& state, Delta delta) {
  Writer writer(form_of<Form>());
  WireEvents out;
  writer.start({}, out);
  if (delta.kind == Delta::Kind::arguments) writer.write({Delta::Kind::call, 0, "f", "call_00_a", {}}, out);
  // Warm: buffers have their size, and what accumulates (Responses) has room for the run.
  for (int i = 0; i < 1000; ++i) {
    out.clear();
    writer.write(delta, out);
  }
  for (auto _ : state) {
    out.clear();
    writer.write(delta, out);
    benchmark::DoNotOptimize(out.text.data());
  }
}

const Delta kContent{Delta::Kind::content, 0, " forward", "", {}};
const Delta kArguments{Delta::Kind::arguments, 0, " \\\"quoted\\\"", "", {}};

void chat_content(benchmark::State& state) { deltas<ChatCompletionsWriter, ChatCompletionsForm>(state, kContent); }
void chat_arguments(benchmark::State& state) { deltas<ChatCompletionsWriter, ChatCompletionsForm>(state, kArguments); }
void messages_content(benchmark::State& state) { deltas<MessagesWriter, MessagesForm>(state, kContent); }
void messages_arguments(benchmark::State& state) { deltas<MessagesWriter, MessagesForm>(state, kArguments); }
void responses_content(benchmark::State& state) { deltas<ResponsesWriter, ResponsesForm>(state, kContent); }
void responses_arguments(benchmark::State& state) { deltas<ResponsesWriter, ResponsesForm>(state, kArguments); }

BENCHMARK(chat_content);
BENCHMARK(chat_arguments);
BENCHMARK(messages_content);
BENCHMARK(messages_arguments);
BENCHMARK(responses_content);
BENCHMARK(responses_arguments);

}  // namespace
}  // namespace fathom::recipe
