// Whether the model thinks, and how hard.
#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

using Word = RequestedEffort::Word;

std::optional<Effort> level_of(Word word) {
  switch (word) {
    case Word::none: return {};
    case Word::minimal:
    case Word::low: return Effort::low;
    case Word::medium:
    case Word::high: return Effort::high;
    case Word::xhigh: return Effort::xhigh;
    case Word::ultra:
    case Word::max: return Effort::max;
  }
  return {};
}

// The level whose number in the V4.1 line (50, 75, 100) is the largest that does not exceed this one.
Effort level_of(int64_t number) {
  if (number >= 100) return Effort::max;
  return number >= 75 ? Effort::high : Effort::low;
}

}  // namespace

std::optional<RequestedEffort> read_effort(const Field& field, Policy policy) {
  if (policy == Policy::lenient && field.is(Json::Kind::number)) {
    const auto json = field.optional_json();
    const auto number = json->as_int64();
    if (!number) {
      field.refuse("expected a word or an integer from 1 to 100, found " + json->text.substr(0, 40));
      return {};
    }
    return RequestedEffort{.word = {}, .number = number};
  }
  const auto word = field.optional_choice({"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"});
  if (!word) return {};
  return RequestedEffort{.word = Word(*word), .number = {}};
}

ThinkingSwitch read_thinking(const Field& field) {
  if (!field.present()) return ThinkingSwitch::unspecified;
  const int type = field["type"].choice({"adaptive", "enabled", "disabled"});
  (void)field["budget_tokens"].optional_long_count();  // judged, then ignored
  return type == 2 ? ThinkingSwitch::disabled : ThinkingSwitch::enabled;
}

Result<Thinking> resolve_thinking(ThinkingSwitch thinking, const std::optional<RequestedEffort>& effort,
                                  ModelVersion version, const ConversionOptions& options,
                                  std::string_view effort_path) {
  const RequestedEffort asked = effort.value_or(RequestedEffort());
  const auto& number = asked.number;
  const auto& word = asked.word;
  if (number) {
    if (version == ModelVersion::v4) {
      return convert_error("Integer reasoning_effort needs DeepSeek-V4.1-Flash", std::string(effort_path));
    }
    if (*number < 1 || *number > 100) {
      return convert_error("Invalid reasoning_effort value, the valid range of reasoning_effort is [1, 100]",
                           std::string(effort_path));
    }
  }
  bool on = options.default_thinking;
  switch (thinking) {
    case ThinkingSwitch::disabled: on = false; break;
    case ThinkingSwitch::enabled: on = true; break;
    case ThinkingSwitch::unspecified:
      if (word) on = *word != Word::none;
      if (number) on = true;
      break;
  }
  Thinking result{.on = on, .effort = {}, .number = {}};
  if (!on) return result;
  if (number) {
    result.effort = level_of(*number);
    result.number = int(*number);
  } else {
    result.effort = level_of(word.value_or(Word::high)).value_or(Effort::high);
  }
  return result;
}

}  // namespace fathom::recipe
