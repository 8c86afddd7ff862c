// fathom/base/json_pointer.h
// The steps of a JSON Pointer ("/a~1b/0"): one key between two slashes. Pure. Source: RFC 6901, sections 3, 4 and 6.
#pragma once
#include <string>
#include <string_view>

namespace fathom {

/// The key as a step: ~ becomes ~0, / becomes ~1.
std::string pointer_step(std::string_view key);
/// The key that a step names. Other uses of ~ stand for themselves.
std::string key_of_step(std::string_view step);
/// The bytes of a text in which %XX stands for a byte, as pointers in URI fragments have it; other % stand for
/// themselves.
std::string percent_decoded(std::string_view text);

}  // namespace fathom
