// fathom/recipe/conformance/check_row.h
// Runs one row of a recipe vector file and compares with what the row expects. `fathom codec check` and the tests use
// it. Pure. Source: vectors/recipe/README.md, spec/codec-policy.md 6.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/recipe/conformance/json_difference.h"
#include "fathom/recipe/settings.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

/// What kinds of row there are; the keys of a row tell.
enum class RowKind { request, refusal, stream, splits, prompt_tokens, image };

/// Nothing: no recipe vector.
std::optional<RowKind> kind_of(const Json& row);

struct RowCheck {
  Policy policy = Policy::strict;
  /// The tokenizer that rows call by this name ("v4", "v41-derived"); null: not there, the row is skipped.
  std::function<const Tokenizer*(std::string_view name)> tokenizer;
};

struct RowVerdict {
  enum class Kind { agrees, differs, skipped };
  Kind kind = Kind::agrees;
  std::string why;                           // skipped: what is missing
  std::optional<JsonDifference> difference;  // differs; pointers start at `expect`
};

/// The same members as `row.expect` with the values that this codec gives. Clock values are 0, random call ids are
/// `call_NN_RANDOM`, texts that the row calls not normative are taken over. Errors: bad_input when the row itself
/// cannot be read; not_found when its tokenizer is not there.
Result<Json> observe(const Json& row, const RowCheck& check);

/// observe() against `expect`. Errors: bad_input as above.
Result<RowVerdict> check_row(const Json& row, const RowCheck& check);

/// The tokenizer.json that rows call "v41-derived", from the text of "v4" (vectors/recipe/README.md): three added
/// tokens are spelt otherwise. Errors: those of parse_json.
Result<std::string> derive_v41_json(std::string_view v4_json);
/// The same, opened. Errors: those of Tokenizer::parse.
Result<Tokenizer> derive_v41_tokenizer(std::string_view v4_json);

/// Where a policy expects something else than the rows say: changes to `expect`, by file ("streams") and row.
class Expectations {
 public:
  /// Lines of {"file", "name", "rule", "set": {pointer: value}}. Errors: bad_input with the line.
  static Result<Expectations> parse(std::string_view lines, std::string_view where);
  /// Changes `row.expect` if this row is listed. Errors: bad_input when a pointer leads nowhere.
  Result<void> amend(std::string_view file, Json& row) const;
  size_t size() const { return changes_.size(); }
  /// The rule that a row is listed under; empty: it is not listed.
  std::string_view rule(std::string_view file, std::string_view row) const;

 private:
  struct Entry {
    std::string rule;
    std::vector<JsonChange> changes;
  };
  std::map<std::pair<std::string, std::string>, Entry> changes_;
};

/// `options` of a row over the defaults. Errors: bad_input for a key or a value that is not known.
Result<ConversionOptions> read_row_options(const Json* options, Policy policy);

/// Replaces random call ids and clock values as the vectors do.
void normalise_answer(Json& value);

}  // namespace fathom::recipe
