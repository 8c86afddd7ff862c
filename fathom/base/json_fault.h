// fathom/base/json_fault.h
// Where a text stops being JSON, for the person who wrote it. The fast reader of json.cpp knows that something is
// wrong, seldom where: this reads the text once more, byte by byte, after it was refused.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

struct JsonFault {
  size_t byte = 0;   // offset of the first byte that cannot stand there; the text's length when it ends too early
  std::string what;  // "unexpected 'x' where a key in quotes or } should be", "the text ends inside an object"
};

/// Nothing when it is one JSON value in UTF-8 (RFC 8259), whatever its depth and the size of its numbers.
std::optional<JsonFault> find_json_fault(std::string_view text);

/// The fault in one sentence: "the text ends inside an object at byte 812"; with line and column (bytes, from 1) when
/// the text has several lines.
std::string describe(const JsonFault& fault, std::string_view text);

}  // namespace fathom
