// Constrained answers of the loop, on a model made of a hash whose tokens have spellings: always in the language, the
// same with any number of drafts, and one that fails fails alone (R-38).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/engine/loop_under_test.h"

namespace fathom {
namespace {

const std::vector<std::string>& spellings() {
  static const std::vector<std::string> tokens = {
      "{",   "<end>", "}",      "\"",         "a",        ":",  "b",   ",",        "1",   "2",
      "[",   "]",     "\"a\"",  "\"a\":",     "12",       "ab", "x\"", "</think>", "{\"", "free text",
      "b\"", "0",     "\"b\":", "<｜User｜>", "k>{\"a\"", "-",  "],",  "true"};
  return tokens;
}

grammar::Vocabulary vocabulary() { return *grammar::Vocabulary::make(spellings(), {1}); }

std::string text_of(std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) out += id == 1 ? "" : spellings()[size_t(id)];
  return out;
}

/// The longest tokens from the left.
std::vector<int32_t> ids_of(std::string_view text) {
  std::vector<int32_t> out;
  while (!text.empty()) {
    int32_t best = -1;
    for (size_t id = 0; id < spellings().size(); ++id) {
      if (text.starts_with(spellings()[id]) && (best < 0 || spellings()[id].size() > spellings()[size_t(best)].size()))
        best = int32_t(id);
    }
    check(best >= 0, "the text has tokens");
    out.push_back(best);
    text.remove_prefix(spellings()[size_t(best)].size());
  }
  return out;
}

grammar::Constraint constraint(grammar::Constraint::Kind kind, std::string text,
                               std::optional<std::string> starts_after = {}) {
  grammar::Constraint out;
  out.kind = kind;
  out.text = std::move(text);
  out.starts_after = std::move(starts_after);
  return out;
}
grammar::Constraint regex(std::string text) { return constraint(grammar::Constraint::Kind::regex, std::move(text)); }

constexpr const char* kSchema =
    R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer","minimum":-2,"maximum":212},)"
    R"("maxItems":6},"b":{"type":"string","maxLength":5}},"required":["a"],"additionalProperties":false})";
grammar::Constraint json() { return constraint(grammar::Constraint::Kind::json, kSchema); }

Settings settings_of(int drafts) {
  Settings settings;
  settings.shape.vocabulary = int64_t(spellings().size()) + 4;  // a model has rows that its tokenizer does not use
  settings.drafts = drafts;
  settings.vocabulary = vocabulary();
  return settings;
}

Request constrained(uint32_t name, grammar::Constraint of, int64_t max_tokens = 200) {
  Request request = greedy(name, 20 + name % 9, max_tokens);
  request.constraint = std::move(of);
  return request;
}

bool fits_the_schema(const std::string& text) {
  const auto tree = parse_json(text, "answer");
  if (!tree.ok() || !tree->is_object()) return false;
  const Json* list = tree->find("a");
  if (list == nullptr || !list->is_array() || list->items.size() > 6) return false;
  for (const Json& item : list->items) {
    const auto number = item.as_int64();
    if (!number || *number < -2 || *number > 212) return false;
  }
  const Json* b = tree->find("b");
  if (b != nullptr && (!b->is_string() || b->text.size() > 10)) return false;
  return tree->fields.size() == (b != nullptr ? 2u : 1u);
}

TEST(ConstrainedAnswers, AreInTheLanguageHoweverTheyAreDrawn) {
  for (const int drafts : {0, 1, 5}) {
    Loop loop(settings_of(drafts));
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 24; ++i) {
      Request request = constrained(i, json());
      request.sampling.temperature = i % 3 == 0 ? 0 : 1.f;
      request.sampling.top_p = i % 2 == 0 ? 1 : 0.9f;
      request.sampling.seed = i;
      request.sampling.presence_penalty = i % 5 == 0 ? 0.5f : 0;
      request.sampling.top_logprobs = i % 4 == 0 ? 2 : -1;
      request.sampling.logprobs_of = LogprobsOf::sampled;
      if (i % 3 == 2) request.verification = Verification::transparent;
      request.sampling.ignore_eos = i == 7;  // the constraint ends it all the same
      ids.push_back(loop.submit(request));
    }
    loop.finish();
    int64_t accepted = 0;
    for (const RequestId id : ids) {
      const Answer& answer = loop.answers[id];
      ASSERT_EQ(answer.finish->reason, FinishReason::stop) << text_of(answer.ids);
      EXPECT_EQ(answer.ids.back(), 1);
      EXPECT_TRUE(fits_the_schema(text_of(answer.ids))) << text_of(answer.ids);
      for (const TokenLogprob& token : answer.logprobs) EXPECT_GT(token.logprob, kNever);
      for (const int64_t n : answer.finish->usage.accepted) accepted += n;
    }
    if (drafts > 0) {
      EXPECT_GT(accepted, 24) << "drafts take part";
    }
  }
}

// R-38, jump-forward: what the grammar leaves no choice about is a draft that needs no luck.
TEST(ConstrainedAnswers, ForcedTokensAreDraftsThatAreAccepted) {
  Settings settings = settings_of(5);
  settings.shape.draft_noise = 100;  // the model's own drafts are worth nothing
  for (const float temperature : {0.f, 1.f}) {
    Loop loop(settings);
    Request request = constrained(3, regex("(1212121212|aaaaaaaaaa)true,true,true"));
    request.sampling.temperature = temperature;
    request.sampling.seed = 4;
    const Answer& answer = loop.answer(request);
    ASSERT_EQ(answer.finish->reason, FinishReason::stop);
    const Usage& usage = answer.finish->usage;
    int64_t accepted = 0;
    for (const int64_t n : usage.accepted) accepted += n;
    EXPECT_GT(accepted, usage.rounds) << text_of(answer.ids);
  }
}

TEST(ConstrainedAnswers, GreedyAndTransparentTextDoesNotDependOnDrafts) {
  std::map<int, std::vector<std::vector<int32_t>>> texts;
  for (const int drafts : {0, 1, 5}) {
    Loop loop(settings_of(drafts));
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 20; ++i) {
      Request request = constrained(i, i % 2 == 0 ? json() : regex("(a|b{1,3}1)*\"[12]+,(true|-0)"), 60);
      if (i >= 10) {
        request.sampling.temperature = 1;
        request.sampling.seed = i;
        request.verification = Verification::transparent;
      }
      ids.push_back(loop.submit(request));
    }
    loop.finish();
    for (const RequestId id : ids) texts[drafts].push_back(loop.answers[id].ids);
  }
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[5], texts[0]);
}

// Rejection under masks keeps the target's law: the same as without drafts. (R-29)
TEST(ConstrainedAnswers, SampledTextWithDraftsHasTheLawOfTheMaskedTarget) {
  const std::vector<std::string> language = {"aa", "ab", "ba", "bb", "a1", "b1"};
  Settings settings = settings_of(5);
  settings.shape.draft_noise = 4;
  settings.sequences = 32;
  settings.blocks = 64;
  Loop loop(settings);
  const std::vector<int32_t> prompt = prompt_of(3, 12);
  // Token by token; "ab" is also one token.
  const auto weights = [&](std::vector<int32_t> text, std::vector<int32_t> allowed) {
    std::vector<double> out;
    double sum = 0;
    text.insert(text.begin(), prompt.begin(), prompt.end());
    const auto logits = loop.model.logits_after(text);
    for (const int32_t id : allowed) sum += std::exp(double(logits[size_t(id)]));
    for (const int32_t id : allowed) out.push_back(std::exp(double(logits[size_t(id)])) / sum);
    return out;
  };
  const auto first = weights({}, {4, 6, 15}), behind_a = weights({4}, {4, 6, 8}), behind_b = weights({6}, {4, 6, 8});
  const std::vector<double> law = {first[0] * behind_a[0], first[0] * behind_a[1] + first[2],
                                   first[1] * behind_b[0], first[1] * behind_b[1],
                                   first[0] * behind_a[2], first[1] * behind_b[2]};
  std::vector<int64_t> seen(6, 0);
  constexpr uint64_t kRequests = 6'000;
  for (uint64_t submitted = 0; submitted < kRequests || !loop.loop.idle();) {
    while (submitted < kRequests && loop.loop.scheduler().waiting() < 64) {
      Request request;
      request.ids = prompt;
      request.constraint = regex("[ab][ab1]");
      request.sampling.top_p = 1;
      request.sampling.seed = submitted++ * 0x9E3779B97F4A7C15u;
      loop.submit(request);
    }
    for (const Event& event : loop.loop.step()) {
      std::vector<int32_t>& ids = loop.answers[event.request].ids;
      ids.insert(ids.end(), event.ids.begin(), event.ids.end());
      if (!event.finish) continue;
      const auto at = std::find(language.begin(), language.end(), text_of(ids));
      ASSERT_NE(at, language.end()) << text_of(ids);
      ++seen[size_t(at - language.begin())];
      loop.answers.erase(event.request);
    }
  }
  double distance = 0;  // chi-square of 5 degrees of freedom: above 20.5 once in a thousand
  for (size_t i = 0; i < 6; ++i) {
    const double want = law[i] * double(kRequests);
    distance += (double(seen[i]) - want) * (double(seen[i]) - want) / want;
  }
  EXPECT_LT(distance, 20.5);
}

TEST(ConstrainedAnswers, PreemptionChangesNothing) {
  const auto run = [&](bool preempt) {
    Settings settings = settings_of(5);
    settings.prefix_cache = true;
    Loop loop(settings);
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 8; ++i) ids.push_back(loop.submit(constrained(i, json())));
    // Every third step in which something runs ends with a preemption: before that grammars are compiled, in whatever
    // time their threads are given.
    size_t turn = 0;
    for (int steps = 0, running = 0; !loop.loop.idle() && steps < 100'000; ++steps) {
      loop.step();
      Scheduler& scheduler = loop.loop.scheduler();
      if (!preempt || scheduler.running() == 0 || ++running % 3 != 1) continue;
      for (int tried = 0; tried < 8 && !scheduler.preempt(ids[turn++ % 8]); ++tried) {
      }
    }
    std::vector<std::vector<int32_t>> out;
    int64_t preemptions = 0;
    for (const RequestId id : ids) {
      out.push_back(loop.answers[id].ids);
      preemptions += loop.answers[id].finish->usage.preemptions;
    }
    EXPECT_EQ(preemptions > 0, preempt);
    return out;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(ConstrainedAnswers, AnAnswerThatIsCutOffIsTheBeginningOfOne) {
  Loop loop(settings_of(5));
  const Answer& answer = loop.answer(constrained(3, regex("(ab){50}"), 9));
  EXPECT_EQ(answer.finish->reason, FinishReason::length);
  const std::string text = text_of(answer.ids);
  for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(text[i], i % 2 == 0 ? 'a' : 'b');
}

TEST(ConstrainedAnswers, AWholeTextEndsBeforeTheLeastLength) {
  for (const int drafts : {0, 5}) {
    Loop loop(settings_of(drafts));
    Request request = constrained(5, regex("ab12"));
    request.sampling.min_tokens = 50;
    request.sampling.first_n_token_no_eos = 50;
    const Answer& answer = loop.answer(request);
    EXPECT_EQ(text_of(answer.ids), "ab12");
    EXPECT_EQ(answer.finish->reason, FinishReason::stop);
  }
}

TEST(ConstrainedAnswers, AStopTokenComesOnlyWhereTheTextIsWhole) {
  for (const int drafts : {0, 5}) {
    Loop loop(settings_of(drafts));
    for (uint32_t i = 0; i < 10; ++i) {
      Request request = constrained(i, regex("[ab]{4}1*"));
      request.sampling.stop_ids = {6, 23};  // "b", which the text may contain, and a role
      const Answer& answer = loop.answer(request);
      ASSERT_EQ(answer.finish->reason, FinishReason::stop);
      std::string text = text_of(std::span(answer.ids).first(answer.ids.size() - 1));
      EXPECT_GE(text.size(), 4u) << text;
      EXPECT_EQ(text.find_first_not_of("ab"), text.find('1'));
    }
  }
}

// ------------------------------------------------------------------------------------------------------- struct-01
TEST(ConstrainedAnswers, Struct01StartsAfterTheThinkingPart) {
  const char* shared = std::getenv("FATHOM_SHARED");
  const std::string path = shared ? std::string(shared) + "/cases/cases.jsonl" : "cases.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
  const std::string cases = *read_file(path, int64_t(64) << 20);
  const size_t begin = cases.find(R"({"id": "struct-01")");
  ASSERT_NE(begin, std::string::npos);
  const auto given = parse_json(cases.substr(begin, cases.find('\n', begin) - begin), path);
  ASSERT_TRUE(given.ok());
  std::string script;
  for (const Json& part : given->find("input")->find("scripted_preferences")->items) script += part.text;
  const std::string schema = to_string(*given->find("input")->find("schema"));

  for (const int drafts : {0, 1, 5}) {
    Loop loop(settings_of(drafts));
    Request request = constrained(9, constraint(grammar::Constraint::Kind::json, schema, std::string("</think>")));
    std::vector<int32_t> text = request.ids;
    std::vector<int32_t> wanted = ids_of(script);
    wanted.push_back(1);
    for (const int32_t id : wanted) {
      loop.model.preferred[FakeModel::hash_of(text)] = id;
      text.push_back(id);
    }
    const Answer& answer = loop.answer(request);
    const std::string said = text_of(answer.ids);
    const size_t end = said.find("</think>");
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(said.substr(0, end), given->find("expected")->find("reasoning_content")->text);
    EXPECT_EQ(said.substr(end + 8), given->find("expected")->find("content")->text);
    EXPECT_EQ(name_of(answer.finish->reason), given->find("expected")->find("finish_reason")->text);
  }
}

TEST(ConstrainedAnswers, TheThinkingPartCannotEndTheAnswer) {
  for (const int drafts : {0, 5}) {
    Loop loop(settings_of(drafts));
    Request request = constrained(9, constraint(grammar::Constraint::Kind::regex, "[ab]1", std::string("</think>")));
    std::vector<int32_t> text = request.ids;
    loop.model.preferred[FakeModel::hash_of(text)] = 1;  // the end, which may not come
    request.sampling.logit_bias = {{17, 5.f}};
    const Answer& answer = loop.answer(request);
    ASSERT_EQ(answer.finish->reason, FinishReason::stop);
    const std::string said = text_of(answer.ids), mark = "</think>";
    ASSERT_NE(said.find(mark), std::string::npos) << said;
    const std::string rest = said.substr(said.find(mark) + mark.size());
    EXPECT_TRUE(rest == "a1" || rest == "b1") << rest;
  }
}

// ---------------------------------------------------------------------------------------------------------- failures
TEST(ConstrainedAnswers, WhatCannotBeEnforcedIsRefusedByKeywordAndPath) {
  Loop loop(settings_of(5));
  const auto refused = loop.loop.submit(constrained(
      1, constraint(grammar::Constraint::Kind::json, R"({"properties":{"a":{"patternProperties":{"^x":{}}}}})")));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_EQ(refused.error().where, "properties.a.patternProperties");
  EXPECT_NE(refused.error().message.find("patternProperties"), std::string::npos);
  EXPECT_TRUE(loop.loop.idle());
  Settings without = settings_of(5);
  without.vocabulary.reset();
  Loop blind(without);
  EXPECT_EQ(blind.loop.submit(constrained(1, json())).error().code, ErrorCode::usage);
}

TEST(ConstrainedAnswers, OneBadGrammarFailsOneRequest) {
  const auto large = json(), small = regex("ab12");
  const auto bytes = [](const grammar::Constraint& of) { return grammar::compile(of, vocabulary())->bytes(); };
  ASSERT_GT(bytes(large), bytes(small) + 1'000);
  Settings settings = settings_of(5);
  settings.grammar.limits.bytes = (bytes(large) + bytes(small)) / 2;
  Loop loop(settings);
  const RequestId bad = loop.submit(constrained(1, large)), good = loop.submit(constrained(2, small));
  const RequestId plain = loop.submit(greedy(3, 20, 10));
  loop.finish();
  EXPECT_EQ(loop.answers[bad].finish->reason, FinishReason::failed);
  EXPECT_EQ(loop.answers[bad].finish->error->code, ErrorCode::out_of_memory);
  EXPECT_TRUE(loop.answers[bad].ids.empty());
  EXPECT_EQ(text_of(loop.answers[good].ids), "ab12");
  EXPECT_FALSE(loop.answers[plain].finish->error.has_value());
}

// Many answers with a grammar each, and memory for two: the others wait until answers end, and all of them come. One
// whose grammar alone is larger than all may be fails alone.
TEST(ConstrainedAnswers, GrammarsOfRunningAnswersStayWithinTheirMemory) {
  Settings settings = settings_of(5);
  const auto of = [](int n) { return regex("a{" + std::to_string(20 + n) + "}1"); };
  int64_t most = 0;
  for (int n = 0; n < 12; ++n) most = std::max(most, grammar::compile(of(n), vocabulary())->bytes());
  ASSERT_GT(grammar::compile(json(), vocabulary())->bytes(), most);
  settings.grammar.limits.bytes = most;
  settings.grammar.most_bytes = 2 * most;
  Metrics metrics;
  EngineStatistics statistics(metrics, nullptr, {.line_every = 1});
  settings.statistics = &statistics;
  Loop loop(settings);
  std::vector<RequestId> ids;
  for (int n = 0; n < 12; ++n) ids.push_back(loop.submit(constrained(uint32_t(n), of(n))));
  const RequestId large = loop.submit(constrained(20, json())), plain = loop.submit(greedy(21, 20, 10));
  const Gauge& held =
      metrics.gauge("fathom_engine_grammar_bytes", "Memory of compiled grammars, cached or of running answers.");
  double seen = 0;
  while (!loop.loop.idle()) {
    loop.step();
    seen = std::max(seen, held.value());
    // These answers are made in an instant: threads of the pool that get no processor would always come too late.
    if (seen <= double(most)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(seen, double(most)) << "more than one at a time";
  EXPECT_LE(seen, double(2 * most));
  for (int n = 0; n < 12; ++n) {
    const Answer& answer = loop.answers[ids[size_t(n)]];
    EXPECT_FALSE(answer.finish->error.has_value()) << to_string(*answer.finish->error);
    EXPECT_EQ(text_of(answer.ids), std::string(size_t(20 + n), 'a') + "1");
  }
  EXPECT_EQ(loop.answers[large].finish->error->code, ErrorCode::out_of_memory);
  EXPECT_FALSE(loop.answers[plain].finish->error.has_value());
}

TEST(ConstrainedAnswers, ALateGrammarFailsItsRequestAndTheLoopDoesNotSpin) {
  Settings settings = settings_of(5);
  settings.grammar.threads = 0;  // nobody compiles
  settings.grammar.longest_wait = std::chrono::milliseconds(50);
  Loop loop(settings);
  const RequestId late = loop.submit(constrained(1, json())), given_up = loop.submit(constrained(2, json()));
  loop.loop.cancel(given_up);
  int steps = 0;
  for (; !loop.loop.idle(); ++steps) {
    ASSERT_LT(steps, 200);
    loop.step();
  }
  EXPECT_EQ(loop.answers[late].finish->reason, FinishReason::failed);
  EXPECT_EQ(loop.answers[given_up].finish->reason, FinishReason::cancelled);
}

TEST(ConstrainedAnswers, WhatLeavesNoTokenFailsAlone) {
  for (const int drafts : {0, 5}) {
    Loop loop(settings_of(drafts));
    Request at_once = constrained(1, regex("ab?1")), later = constrained(2, regex("a{3}1")),
            forced = constrained(4, regex("a{9}"));
    at_once.sampling.logit_bias = {{4, -INFINITY}, {15, -INFINITY}};
    later.sampling.logit_bias = {{8, -INFINITY}};
    forced.sampling.golden_token_ids = {4, 4, 9};
    const RequestId first = loop.submit(at_once), second = loop.submit(later), third = loop.submit(forced);
    const RequestId good = loop.submit(constrained(3, json()));
    loop.finish();
    for (const RequestId id : {first, second, third}) {
      EXPECT_EQ(loop.answers[id].finish->reason, FinishReason::failed);
      EXPECT_EQ(loop.answers[id].finish->error->where, "constraint");
    }
    EXPECT_EQ(text_of(loop.answers[second].ids), "aaa");
    EXPECT_TRUE(fits_the_schema(text_of(loop.answers[good].ids)));
  }
}

}  // namespace
}  // namespace fathom
