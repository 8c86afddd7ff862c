#include "fathom/recipe/conformance/check_row.h"

namespace fathom::recipe {
namespace {

Error unknown(const std::string& key) {
  return Error{ErrorCode::bad_input, "unknown option or value", "options." + key,
               "vectors/recipe/README.md lists the conversion options"};
}

bool read_web_search(const Json& value, ConversionOptions::WebSearch& out) {
  if (value.text != "Drop" && value.text != "Reject") return false;
  out = value.text == "Drop" ? ConversionOptions::WebSearch::drop : ConversionOptions::WebSearch::reject;
  return true;
}

bool read_bound(const Json& value, uint32_t& out) {
  const auto bound = value.as_int64();
  if (!bound || *bound < 0 || *bound > UINT32_MAX) return false;
  out = uint32_t(*bound);
  return true;
}

bool read_spellings(const Json& value, TokenSpellings& out) {
  for (const auto& [kind, spelling] : value.fields) {
    bool known = false;
    for (int i = 0; i < kSpecialTokens; ++i) {
      if (name_of(SpecialToken(i)) != kind) continue;
      out[SpecialToken(i)] = spelling.text;
      known = true;
    }
    if (!known || !spelling.is_string()) return false;
  }
  return value.is_object();
}

bool read_aliases(const Json& value, ConversionOptions& out) {
  for (const auto& [name, version] : value.fields) {
    if (version.text != "v4" && version.text != "v41" && version.text != "v4.1") return false;
    out.models.emplace_back(name, version.text == "v4" ? ModelVersion::v4 : ModelVersion::v41);
  }
  return value.is_object();
}

}  // namespace

Result<ConversionOptions> read_row_options(const Json* options, Policy policy) {
  ConversionOptions out;
  out.policy = policy;
  if (options == nullptr) return out;
  for (const auto& [key, value] : options->fields) {
    bool good = false;
    if (key == "default_thinking_mode") {
      good = value.as_bool().has_value();
      out.default_thinking = value.boolean;
    } else if (key == "reasoning_content_behavior") {
      good = value.text == "FillEmpty" || value.text == "Reject";
      out.reject_missing_reasoning = value.text == "Reject";
    } else if (key == "responses_web_search") {
      good = read_web_search(value, out.responses_web_search);
    } else if (key == "messages_web_search") {
      good = read_web_search(value, out.messages_web_search);
    } else if (key == "thinking_max_tokens_upper_bound") {
      good = read_bound(value, out.thinking_max_tokens);
    } else if (key == "non_thinking_max_tokens_upper_bound") {
      good = read_bound(value, out.non_thinking_max_tokens);
    } else if (key == "special_tokens") {
      good = read_spellings(value, out.spellings);
    } else if (key == "model_aliases") {
      good = read_aliases(value, out);
    }
    if (!good) return unknown(key);
  }
  return out;
}

}  // namespace fathom::recipe
