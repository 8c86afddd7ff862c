// Whatever a constraint says, the answer is a grammar or an error with a place, soon.
#include <cstdint>

#include "fathom/base/check.h"
#include "fathom/grammar/constraint_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  using namespace fathom::grammar;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Constraint constraint;
  constraint.kind = Constraint::Kind(data[0] % 5);
  constraint.text = text;
  if (data[0] % 5 >= 3) {
    constraint.markup = {"｜DSML｜", " calls", " "};
    const auto parameters = parse_json(text, "parameters");
    if (!parameters) return 0;
    constraint.tools = {{"f", *parameters, true}, {"g", *parameters, false}};
  }
  const auto grammar = grammar_of(constraint);
  check(grammar.ok() || (!grammar.error().where.empty() && !grammar.error().message.empty()), "an error names a place");
  return 0;
}
