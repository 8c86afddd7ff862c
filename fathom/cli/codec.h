// fathom/cli/codec.h
// What the parts of `fathom codec` share: its options. One file a verb group; contract: design/cli.md 5.
#pragma once
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cli/option.h"
#include "fathom/recipe/codec.h"

namespace fathom::cli {

struct CodecSettings {
  std::vector<std::string> words;  // VERB [FILE...]
  std::string api = "chat", policy = "default", tokenizer;
  std::string request;             // parse: the request that the answer belongs to
  std::string finish = "stop";     // parse: why the model stopped
  bool ids = false;                // parse: stdin holds token ids
  bool stream = false;             // parse: events instead of the body
  int64_t chunk = 0;               // parse: bytes or ids fed at once; 0: all
  bool all = false;                // check: every row that differs
  std::string expectations;        // check: what a policy expects otherwise
  int64_t count = 1000, seed = 1;  // fuzz
  bool print_inputs = false;       // fuzz: show what would be tried

  std::string verb() const { return words.empty() ? "" : words[0]; }
  recipe::ConversionOptions options() const;
};

/// `codec check FILE...`: vector files. Exit 1 when a row differs.
Result<int> run_codec_check(const CodecSettings& settings, const Common& common);
/// `codec fuzz`: random requests, answers and cuts against the codec's own laws. Exit 1 when one is broken.
Result<int> run_codec_fuzz(const CodecSettings& settings, const Common& common);

/// JSON over several lines, two blanks a level; short values stay on one line.
std::string indented(const Json& value);

}  // namespace fathom::cli
