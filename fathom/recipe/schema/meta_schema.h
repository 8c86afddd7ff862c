// fathom/recipe/schema/meta_schema.h
// The meta-schemas of JSON Schema drafts 4, 6, 7, 2019-09 and 2020-12 as one table of keywords, and the check of a
// schema against it. The first fault is the one that a validator of the published meta-schemas meets: vocabulary by
// vocabulary, within one in the order of the schema's keys, depth first. Cost: linear in the schema.
// Source: spec/codec-policy.md 5; the published meta-schemas.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/json.h"

namespace fathom::recipe::schema {

enum class Draft : uint8_t { d4 = 1, d6 = 2, d7 = 4, d2019 = 8, d2020 = 16 };

/// What `$schema` names ("http" or "https", with or without a "#" behind it); nothing for an unknown one.
std::optional<Draft> draft_of(std::string_view uri);

/// What the value of a keyword has to be.
enum class Rule : uint8_t {
  schema,             // one schema
  schema_map,         // an object of schemas
  pattern_map,        // … whose keys are regular expressions
  schema_array,       // at least one schema
  schema_or_array,    // a schema or at least one of them
  boolean_or_schema,  // true, false or a schema: draft 4, where those are no schemas
  dependencies,       // an object of schemas or lists of names
  string,
  pattern,
  uri_reference,
  uri,
  identifier,  // a URI reference without a fragment
  anchor,
  boolean,
  number,
  positive,  // a number > 0
  count,     // an integer >= 0
  names,     // an array of different strings
  names_map,
  type,
  array,
  vocabulary,
};

/// The rule of a keyword in a draft; nothing when the draft does not know it.
std::optional<Rule> rule_of(std::string_view keyword, Draft draft);

/// A value at fault; the message is the value (or the name of the pair that it belongs to) and then the phrase.
struct Fault {
  const Json* value = nullptr;
  std::string phrase;                    // " is not of type \"string\""; or the whole message when `bare`
  std::optional<std::string_view> name;  // stands in for the value
  bool bare = false;
};
std::optional<Fault> find_meta_fault(const Json& value, Draft draft);

}  // namespace fathom::recipe::schema
