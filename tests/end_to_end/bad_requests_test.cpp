// Nothing a request contains can end the process: 10,000 random bad requests among good ones. Each is refused with an
// error that names the field, or runs to its end; the good ones keep their text, and memory stays where it is.
// Source: spec/engine.md 2.1, 18; R-38 (one bad grammar fails one request).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>

#include "fathom/base/philox.h"
#include "fathom/base/test_size.h"
#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

constexpr int64_t kContext = 512;
constexpr int32_t kVocabulary = 2'880;  // of the miniature; beyond it nothing is a token

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  check(file && std::fscanf(file, "%ld %ld", &pages, &resident) == 2, "/proc/self/statm is readable");
  std::fclose(file);
  return int64_t(resident) * sysconf(_SC_PAGESIZE);
}

/// Choices that a seed names.
class Dice {
 public:
  explicit Dice(uint32_t name) : name_(name) {}
  uint32_t next() { return philox(20'261'130, {name_, next_++, 5, 0})[0]; }
  uint32_t below(uint32_t n) { return next() % n; }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T>
  T any(std::initializer_list<T> values) {
    return *(values.begin() + below(uint32_t(values.size())));
  }

 private:
  uint32_t name_, next_ = 0;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

int32_t bad_id(Dice& dice) {
  return dice.any({-1, -2, kVocabulary, kVocabulary + 1, 1 << 20, std::numeric_limits<int32_t>::max(),
                   std::numeric_limits<int32_t>::min(), int32_t(kVocabulary + dice.below(1u << 30))});
}
float bad_number(Dice& dice) { return dice.any({kNan, -kNan, kInfinity, -kInfinity, -1.0f, -1e-30f, -3e38f}); }
float odd_number(Dice& dice) {  // large, tiny: allowed where a positive number is
  return dice.any({1e-38f, 1e-6f, 3e38f, 1e30f, 1.0f, 1e-45f});
}
std::string noise(Dice& dice, uint32_t longest) {
  std::string out;
  for (uint32_t n = dice.below(longest + 1); n > 0; --n)
    out += char(dice.one_in(4) ? dice.below(256) : 32 + dice.below(95));
  return out;
}

std::string hostile_schema(Dice& dice) {
  static const std::string deep = [] {
    std::string out;
    for (int i = 0; i < 3'000; ++i) out += R"({"items":)";
    out += "{}";
    return out + std::string(3'000, '}');
  }();
  return dice.any<std::string>({"",
                                "{",
                                "[]",
                                "5",
                                "null",
                                "true",
                                "\xff",
                                R"({"type":"nothing"})",
                                R"({"type":5})",
                                R"({"$ref":"#"})",
                                R"({"$ref":"http://example.org"})",
                                R"({"not":{}})",
                                R"({"enum":[]})",
                                R"({"patternProperties":{"^x":{}}})",
                                R"({"type":"array","items":{"$ref":"#"},"minItems":1})",
                                R"({"type":"string","pattern":"("})",
                                R"({"type":"string","minLength":10,"maxLength":2})",
                                R"({"type":"integer","minimum":1e400})",
                                R"({"minimum":5,"maximum":1,"type":"number"})",
                                R"({"type":"string","maxLength":99999999999999999999})",
                                R"({"allOf":[{"type":"string"},{"type":"integer"}]})",
                                R"({"type":"object","required":["x"],"properties":{}})",
                                R"({"const":"a","enum":["b"]})",
                                R"({"type":"string","pattern":"^(a{1,100}){1,100}$"})",
                                deep,
                                noise(dice, 40)});
}
std::string hostile_expression(Dice& dice) {
  return dice.any<std::string>({"(", "[", "a{5,2}", "a{99999}", "(?=x)", "\\", "*", "(((((((((a*)*)*)*)*)*)*)*)*",
                                "[z-a]", "a|", "\\p{L}+", "(a|a)*b", "^$", "x{0}", noise(dice, 30)});
}
std::string hostile_grammar(Dice& dice) {
  return dice.any<std::string>({"", "root", "root ::=", "root ::= root", "root ::= root root | \"a\"", "x ::= \"a\"",
                                "root ::= (([a-z ]+)+)+", "root ::= y", "root ::= \"", "root ::= [", "root ::= [z-a]",
                                "root ::= \"a\"{5,2}", "root ::= (\"a\"{1,1000}){1,1000}", "root ::= \"\"",
                                "root ::= a\na ::= b\nb ::= a", "root ::= Regex(\"a\")", "root ::= (?= \"a\")",
                                noise(dice, 60)});
}

grammar::Constraint hostile_constraint(Dice& dice) {
  using Kind = grammar::Constraint::Kind;
  grammar::Constraint out;
  out.kind = dice.any({Kind::json, Kind::json, Kind::regex, Kind::ebnf, Kind::tool_call, Kind::tool_call_required});
  if (out.kind == Kind::json) out.text = hostile_schema(dice);
  if (out.kind == Kind::regex) out.text = hostile_expression(dice);
  if (out.kind == Kind::ebnf) out.text = hostile_grammar(dice);
  if (dice.one_in(3))
    out.starts_after = dice.any<std::string>({"", "</think>", noise(dice, 20), std::string(500, 'a')});
  if (out.kind != Kind::tool_call && out.kind != Kind::tool_call_required) return out;
  if (!dice.one_in(4)) out.markup = {"｜DSML｜", " calls", " "};
  for (uint32_t i = dice.below(4); i > 0; --i) {
    const auto parameters = parse_json(hostile_schema(dice), "parameters");
    out.tools.push_back({dice.any<std::string>({"f", "f", "", noise(dice, 30), "a\"b"}),
                         parameters.ok() ? *parameters : Json::object(), dice.one_in(2)});
  }
  return out;
}

/// A request that would run, and what is then done to it: `fields` are those that an error may name; empty: none may.
struct Bad {
  Request request;
  std::set<std::string> fields;
  bool constrained = false;
};

void spoil(Dice& dice, Bad& bad) {
  Request& request = bad.request;
  Sampling& s = request.sampling;
  const auto number = [&](const char* field, float& value, bool zero_is_odd) {
    if (dice.one_in(6)) {
      value = odd_number(dice);
      if (zero_is_odd) value = std::min(value, 1.0f);
    } else {
      value = bad_number(dice);
      bad.fields.insert(field);
    }
  };
  switch (dice.below(24)) {
    case 0: request.ids.clear(), bad.fields.insert("ids"); break;
    case 1: request.ids[dice.below(uint32_t(request.ids.size()))] = bad_id(dice), bad.fields.insert("ids"); break;
    case 2: request.ids.resize(size_t(kContext) + dice.below(2'000), 5), bad.fields.insert("ids"); break;
    case 3: number("temperature", s.temperature, false); break;
    case 4: number("top_p", s.top_p, true); break;
    case 5: number("min_p", s.min_p, true); break;
    case 6: s.top_k = dice.any({-1, std::numeric_limits<int32_t>::min()}), bad.fields.insert("top_k"); break;
    case 7:
      s.top_logprobs = dice.any({-2, 1'001, std::numeric_limits<int32_t>::max()});
      bad.fields.insert("top_logprobs");
      break;
    case 8: s.presence_penalty = dice.any({kNan, kInfinity, -kInfinity}), bad.fields.insert("presence_penalty"); break;
    case 9: s.frequency_penalty = dice.any({kNan, kInfinity}), bad.fields.insert("frequency_penalty"); break;
    case 10: number("repetition_penalty", s.repetition_penalty, false); break;
    case 11:
      s.logit_bias.emplace_back(dice.one_in(2) ? bad_id(dice) : 7, dice.any({kNan, kInfinity})),
          bad.fields.insert("logit_bias");
      break;
    case 12:  // everything is forbidden
      for (int32_t id = 0; id < kVocabulary; ++id) s.logit_bias.emplace_back(id, -kInfinity);
      bad.fields.insert("logit_bias");
      break;
    case 13: s.max_tokens = dice.any({int64_t(-1), -kHuge}), bad.fields.insert("max_tokens"); break;
    case 14:
      s.max_total_tokens = dice.any({int64_t(-1), int64_t(1), -kHuge}), bad.fields.insert("max_total_tokens");
      break;
    case 15: s.min_tokens = dice.any({int64_t(-1), -kHuge}), bad.fields.insert("min_tokens"); break;
    case 16: s.first_n_token_no_eos = dice.any({int64_t(-5), -kHuge}), bad.fields.insert("first_n_token_no_eos"); break;
    case 17:
      s.golden_token_ids = {5, bad_id(dice)};
      if (s.golden_token_ids[1] == -1) s.golden_token_ids[1] = -2;
      bad.fields.insert("golden_token_ids");
      break;
    case 18: s.stop_ids = {7, bad_id(dice)}, bad.fields.insert("stop_ids"); break;
    case 19: s.top_p = dice.any({0.0f, 1.5f}), bad.fields.insert("top_p"); break;
    case 20:
      request.drafts = dice.any({-1, 9, 1'000, std::numeric_limits<int32_t>::min()}), bad.fields.insert("drafts");
      break;
    case 21:
      (dice.one_in(2) ? request.first_token_seconds : request.between_tokens_seconds) =
          dice.any({double(kNan), double(kInfinity), -1.0, 0.0, 1e300, -1e300});
      bad.fields.insert("first_token_seconds"), bad.fields.insert("between_tokens_seconds");
      break;
    case 22: request.constraint = hostile_constraint(dice), bad.constrained = true; break;
    default:  // odd, and allowed
      request.priority = dice.any({std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), -1, 1'000});
      request.tenant = noise(dice, 200);
      if (dice.one_in(2)) request.cache_salt = noise(dice, 200);
      s.seed = dice.any({uint64_t(0), ~uint64_t(0)});
      s.min_tokens = dice.any({int64_t(0), kHuge});
      s.first_n_token_no_eos = dice.any({int64_t(0), kHuge});
      s.max_total_tokens = dice.any({int64_t(0), kHuge, kContext});
      s.top_logprobs = dice.any({-1, 0, 20, 1'000});
      s.top_k = std::numeric_limits<int32_t>::max();
      s.logprobs_of = dice.any({LogprobsOf::raw, LogprobsOf::sampled});
      s.ignore_eos = dice.one_in(2);
      s.presence_penalty = dice.any({0.0f, 3e38f, -3e38f});
      request.replay = dice.any({ReplayMode::off, ReplayMode::mask, ReplayMode::compact, ReplayMode::halo});
      request.verification = dice.any({Verification::rejection, Verification::transparent});
      request.prompt_logprobs = dice.one_in(4);
      break;
  }
}

Bad make_bad(uint32_t name) {
  Dice dice(name);
  Bad out;
  for (uint32_t n = 1 + dice.below(12); n > 0; --n) out.request.ids.push_back(int32_t(23 + dice.below(2'800)));
  out.request.sampling.max_tokens = 1 + dice.below(2);
  out.request.sampling.temperature = dice.any({0.0f, 1.0f});
  spoil(dice, out);
  while (dice.one_in(4)) {
    if (out.request.ids.empty()) break;
    spoil(dice, out);
  }
  if (out.request.sampling.max_tokens == 0) out.request.sampling.max_tokens = 3;
  return out;
}

/// A good request, again and again: its text is known.
Request make_good(uint32_t which) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < 60 + 10 * which; ++i) ids.push_back(int32_t(23 + philox(which, {i, 6, 0, 0})[0] % 2'800));
  return greedy(std::move(ids), 25);
}

EngineOptions options() {
  EngineOptions out;
  out.backend = "cpu";
  out.context = kContext;
  out.sequences = 24;
  out.drafts = 2;
  out.most_blocks = 48;
  auto vocabulary = grammar::Vocabulary::make(miniature().tokenizer, {1});
  check(vocabulary.ok(), "the miniature has a vocabulary");
  out.vocabulary = *vocabulary;
  out.grammar.cache_bytes = int64_t(256) << 10;  // full before memory is looked at
  return out;
}

bool names_a_field(const Error& error, const Bad& bad) {
  if (error.where.empty()) return false;
  const std::string field = error.where.substr(0, error.where.find('['));
  return bad.fields.contains(field) || bad.constrained;
}

TEST(BadRequests, TenThousandAreAnsweredAndHarmNothing) {
  constexpr uint32_t kGood = 3;
  Engine engine = open_engine(options());
  ASSERT_EQ(engine.config().vocab_size, kVocabulary);
  std::vector<std::vector<int32_t>> want;
  for (uint32_t i = 0; i < kGood; ++i) {
    const RequestId id = submit(engine, make_good(i));
    want.push_back(run(engine).at(id).ids);
  }

  const uint32_t counted = by_test_size(1'000, 10'000, 200'000), warm_up = by_test_size(1'000, 10'000, 10'000);
  const uint32_t requests = warm_up + counted;  // the first ones fill caches, and are judged all the same
  std::map<RequestId, Bad> open;
  std::map<RequestId, std::pair<uint32_t, std::vector<int32_t>>> good;  // which, and its text so far
  int64_t refused = 0, failed = 0, finished = 0, compared = 0, before = 0;
  for (uint32_t next = 0; next < requests || !engine.idle();) {
    for (uint32_t i = 0; i < kGood && good.size() < kGood && next < requests; ++i) {
      const RequestId id = submit(engine, make_good(i));
      good[id] = {i, {}};
    }
    while (next < requests && open.size() < 20) {
      Bad bad = make_bad(next++);
      const auto id = engine.submit(bad.request);
      if (id.ok()) {
        open.emplace(*id, std::move(bad));
        continue;
      }
      ++refused;
      ASSERT_TRUE(names_a_field(id.error(), bad)) << "request " << next - 1 << ": " << to_string(id.error());
    }
    for (const Event& event : engine.step()) {
      if (const auto one = good.find(event.request); one != good.end()) {
        auto& [which, ids] = one->second;
        ids.insert(ids.end(), event.ids.begin(), event.ids.end());
        if (!event.finish) continue;
        ASSERT_EQ(ids, want[which]) << "beside request " << next;
        ++compared;
        good.erase(one);
        continue;
      }
      if (!event.finish) continue;
      const auto one = open.find(event.request);
      ASSERT_NE(one, open.end());
      if (event.finish->reason == FinishReason::failed) {
        ++failed;
        ASSERT_TRUE(event.finish->error && names_a_field(*event.finish->error, one->second));
      } else {
        ASSERT_TRUE(event.finish->reason == FinishReason::stop || event.finish->reason == FinishReason::length);
        ++finished;
      }
      open.erase(one);
    }
    if (before == 0 && next > warm_up) before = resident_bytes();
  }
  EXPECT_EQ(refused + failed + finished, int64_t(requests));
  EXPECT_GT(refused, requests / 2);
  EXPECT_GT(finished, requests / 20);
  EXPECT_GT(failed, 0);
  EXPECT_GT(compared, by_test_size(2, 8, 8));
  RecordProperty("refused", std::to_string(refused));
  RecordProperty("failed", std::to_string(failed));
  RecordProperty("finished", std::to_string(finished));
  const std::string sanitizers = FATHOM_SANITIZED;
  if (is_set("FATHOM_BRIEF")) GTEST_SKIP() << "memory is not measured in a brief run";
  if (!sanitizers.empty()) GTEST_SKIP() << "memory is not measured under " << sanitizers << ": freed bytes are kept";
  EXPECT_LE(double(resident_bytes()), double(before) * 1.02);
}

}  // namespace
}  // namespace fathom
