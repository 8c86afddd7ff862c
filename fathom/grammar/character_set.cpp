#include <algorithm>

#include "fathom/grammar/grammar_builder.h"

namespace fathom::grammar {

void append_utf8(std::string& out, uint32_t character) {
  const auto tail = [&](int shift) { out += char(0x80 | ((character >> shift) & 0x3f)); };
  if (character < 0x80) {
    out += char(character);
  } else if (character < 0x800) {
    out += char(0xc0 | (character >> 6));
    tail(0);
  } else if (character < 0x10000) {
    out += char(0xe0 | (character >> 12));
    tail(6);
    tail(0);
  } else {
    out += char(0xf0 | (character >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::vector<uint32_t> characters_of(std::string_view text) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = uint8_t(text[i]);
    const int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    uint32_t character = more == 0 ? lead : lead & (0x3fu >> more);
    for (int k = 1; k <= more && i + size_t(k) < text.size(); ++k) {
      character = character << 6 | (uint8_t(text[i + size_t(k)]) & 0x3f);
    }
    out.push_back(character);
    i += size_t(more) + 1;
  }
  return out;
}

CharacterSet normal(CharacterSet set) {
  std::sort(set.begin(), set.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  CharacterSet joined;
  for (const CharacterRange& range : set) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  return without(joined, {{0xd800, 0xdfff}});
}

CharacterSet without(const CharacterSet& set, const CharacterSet& removed) {
  CharacterSet out;
  for (CharacterRange range : set) {
    bool left = true;
    for (const CharacterRange& hole : removed) {
      if (hole.last < range.first || hole.first > range.last) continue;
      if (hole.first > range.first) out.push_back({range.first, hole.first - 1});
      if (hole.last >= range.last) {
        left = false;
        break;
      }
      range.first = hole.last + 1;
    }
    if (left) out.push_back(range);
  }
  return out;
}

CharacterSet complement(const CharacterSet& set) { return without({{0, 0xd7ff}, {0xe000, 0x10ffff}}, set); }

bool contains(const CharacterSet& set, uint32_t character) {
  return std::any_of(set.begin(), set.end(),
                     [&](const CharacterRange& range) { return range.first <= character && character <= range.last; });
}

}  // namespace fathom::grammar
