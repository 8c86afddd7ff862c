#include "fathom/recipe/conformance/dice.h"

namespace fathom::recipe {

std::string random_text(Dice& dice) {
  std::string out;
  const uint32_t parts = dice.below(6);
  for (uint32_t i = 0; i < parts; ++i) {
    switch (dice.below(10)) {
      case 0:
        out +=
            dice.pick_text({"<｜User｜>", "<think>", "</think>", "｜DSML｜", "<｜image｜>", "<｜end▁of▁sentence｜>"});
        break;
      case 1: out += dice.pick_text({"\n", "\n\n", " \n", "\t"}); break;
      case 2: out += dice.pick_text({"你好", "naïve", "👩‍🚀", "é", "日本語のテキスト", "\u2028"}); break;
      case 3:
        out += dice.pick_text({"{\"a\":1}", "[1,2]", "\"quoted\"", "back\\slash", "```json\n{}\n```", "<b>&amp;"});
        break;
      case 4: out += std::to_string(dice.below(1000000)); break;
      default: out += dice.pick_text({"the ", "fox ", "jumps", " over", "json ", "a", " ", "END"}); break;
    }
  }
  return out;
}

}  // namespace fathom::recipe
