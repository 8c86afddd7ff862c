#include "fathom/recipe/token_spellings.h"

namespace fathom::recipe {
namespace {

struct Row {
  std::string_view name, spelling;
};
constexpr Row kRows[kSpecialTokens] = {
    {"bos", "<｜begin▁of▁sentence｜>"},
    {"eos", "<｜end▁of▁sentence｜>"},
    {"thinking_start", "<think>"},
    {"thinking_end", "</think>"},
    {"system", "<｜System｜>"},
    {"user", "<｜User｜>"},
    {"assistant", "<｜Assistant｜>"},
    {"latest_reminder", "<｜latest_reminder｜>"},
    {"dsml", "｜DSML｜"},
    {"image", "<｜image｜>"},
    {"ref", "<｜ref｜>"},
    {"ref_end", "<｜/ref｜>"},
    {"box", "<｜box｜>"},
    {"box_end", "<｜/box｜>"},
    {"point", "<｜point｜>"},
    {"point_end", "<｜/point｜>"},
    {"polygon", "<｜polygon｜>"},
    {"polygon_end", "<｜/polygon｜>"},
};

}  // namespace

std::string_view name_of(SpecialToken token) { return kRows[size_t(token)].name; }

TokenSpellings::TokenSpellings() {
  for (size_t i = 0; i < kSpecialTokens; ++i) spelling[i] = kRows[i].spelling;
}

}  // namespace fathom::recipe
