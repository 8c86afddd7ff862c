#include "fathom/recipe/conformance/random_answer.h"

namespace fathom::recipe {
namespace {

/// Writes one answer. `v41` spells markup " calls" and " invoke".
class Author {
 public:
  explicit Author(uint64_t seed) : dice_(seed, 100) {}

  std::string write() {
    v41_ = !dice_.one_in(3);
    if (!dice_.one_in(4)) out_ += newlines() + random_text(dice_) + newlines() + (dice_.one_in(12) ? "" : "</think>");
    if (dice_.one_in(6))
      out_ += json();
    else
      out_ += newlines() + random_text(dice_);
    if (dice_.one_in(2)) block();
    if (dice_.one_in(8)) out_ += random_text(dice_);
    while (dice_.one_in(12)) {  // more of both, though a block ends an answer
      out_ += marker_text();
      block();
    }
    while (dice_.one_in(3)) insert();
    if (dice_.one_in(6)) cut();
    return out_;
  }

 private:
  std::string newlines() { return std::string(dice_.one_in(3) ? dice_.below(3) : 0, '\n'); }
  std::string separator() { return v41_ != dice_.one_in(40) ? " " : ""; }

  std::string json() {
    const std::string inner(dice_.pick_text({"{\"a\":1}", "[1, 2]", "{}", "{\"s\":\"}\"}", "5"}));
    switch (dice_.below(4)) {
      case 0: return "```json\n" + inner + "\n```";
      case 1: return "```\n" + inner + "\n```";
      case 2: return "Here: " + inner + " done";
      default: return inner;
    }
  }

  void block() {
    out_ += newlines();
    if (!dice_.one_in(10)) {
      out_ += dice_.one_in(15) ? "<｜DSML｜ toolcalls>" : v41_ ? "<｜DSML｜ calls>" : "<｜DSML｜tool_calls>";
    }
    for (uint32_t i = dice_.below(3) + 1; i > 0; --i) call();
    if (!dice_.one_in(10)) out_ += v41_ ? "\n</｜DSML｜ calls>" : "\n</｜DSML｜tool_calls>";
  }

  void call() {
    const std::string name(dice_.pick_text({"get_weather", "search", "unknown", "f", "g", "f\\g", "", "ns::get_weather",
                                            "ns__search", "apply_patch", "apply_patch", "tool_search", "名"}));
    out_ += "\n<｜DSML｜" + separator() + "invoke ";
    if (name == "apply_patch" && !dice_.one_in(6)) return patch();
    if (dice_.one_in(15)) out_ += attribute();
    if (!dice_.one_in(15)) out_ += "name=\"" + name + "\"";
    if (dice_.one_in(20)) out_ += attribute();
    if (dice_.one_in(20)) out_ += odd_name();
    out_ += tag_end() + "\n";
    for (uint32_t i = dice_.below(4); i > 0; --i) parameter();
    if (dice_.one_in(15)) out_ += R"({"city":"x"})";
    if (!dice_.one_in(20)) out_ += "</｜DSML｜" + separator() + "invoke>";
  }

  /// What the tool apply_patch takes: one text.
  void patch() {
    out_ += "name=\"apply_patch\">\n<｜DSML｜" + separator() + "parameter name=\"input\" string=\"true\">";
    out_ += dice_.pick_text({"*** Begin Patch\n+\"a\\n\"\n*** End Patch", "\"\\/\b", "", "é\u2028😀"});
    out_ += random_text(dice_);
    out_ += "</｜DSML｜" + separator() + "parameter>\n</｜DSML｜" + separator() + "invoke>";
  }

  void parameter() {
    const std::string key(dice_.pick_text({"city", "days", "k", "k", "two words", "k\\", "q\"", "名"}));
    out_ += "<｜DSML｜" + separator() + "parameter " + (dice_.one_in(15) ? odd_name() : "name=\"" + key + "\"");
    if (dice_.one_in(15)) out_ += attribute();
    const bool text = dice_.one_in(2);
    switch (dice_.below(12)) {
      case 0: break;
      case 1: out_ += "  string=\"maybe\""; break;
      case 2: out_ += " x=\"1\" string=\"" + std::string(text ? "true" : "false") + "\""; break;
      default: out_ += std::string(" string=\"") + (text ? "true" : "false") + "\""; break;
    }
    out_ += tag_end();
    out_ += text ? dice_.one_in(4) ? marker_text() : random_text(dice_)
                 : std::string(dice_.pick_text({"3",
                                                "1.0",
                                                "true",
                                                "null",
                                                "[1, {\"a\": 2}]",
                                                "{\"k\":\"</x>\"}",
                                                "{\"a\": [1, 2.50]}",
                                                "NaN",
                                                "",
                                                "5x",
                                                "{oops",
                                                "[1",
                                                " 7 ",
                                                "\n",
                                                "\"",
                                                "\\",
                                                "<b>",
                                                "12345678901234567890123",
                                                "\x01",
                                                "😀"}));
    out_ += "</｜DSML｜" + separator() + "parameter>\n";
  }

  /// Attributes that no tag should have, and spellings of those it should.
  std::string attribute() {
    return std::string(dice_.pick_text({" string=\"true\"", " string=\"false\"", " string=false", " string=\"maybe\"",
                                        " id=\"1\" ", " x", "\t", "/", " "}));
  }
  std::string odd_name() {
    return std::string(
        dice_.pick_text({"name = \"k\"", "name=\"a\"b\"", "name=n", "name", "name=\"q k\\\"", "name=\"é\""}));
  }
  std::string tag_end() { return dice_.one_in(40) ? "" : ">"; }

  /// Beginnings of markers, and what looks like them.
  std::string marker_text() {
    return std::string(dice_.pick_text({"<",
                                        "</",
                                        "｜",
                                        "</thi",
                                        "</think>",
                                        "<think>",
                                        "<｜DSML",
                                        "<｜DSML｜",
                                        "</｜DSML｜",
                                        "</｜DSML｜ calls>",
                                        "</｜DSML｜ invoke>",
                                        "``",
                                        "\n```",
                                        "```json\n",
                                        "{",
                                        "}",
                                        "]",
                                        "[1]",
                                        "END",
                                        "E",
                                        "STOP",
                                        "ST",
                                        "OP",
                                        "ab",
                                        "fo",
                                        "\n",
                                        "\n\n",
                                        " ",
                                        "\"",
                                        "\u007f",
                                        "\u0001",
                                        "invoke name=\"x\">",
                                        "name=\"",
                                        "true\">",
                                        "true>",
                                        " string=\"false\">",
                                        "，"}));
  }
  void insert() { out_.insert(any_place(), marker_text()); }

  /// Ends the answer somewhere else.
  void cut() { out_.resize(any_place()); }

  /// Before a character.
  size_t any_place() {
    if (out_.empty()) return 0;
    size_t at = dice_.below(uint32_t(out_.size()));
    while (at > 0 && (uint8_t(out_[at]) & 0xC0) == 0x80) --at;
    return at;
  }

  Dice dice_;
  bool v41_ = true;
  std::string out_;
};

}  // namespace

std::string random_answer(uint64_t seed) { return Author(seed).write(); }

void damage_bytes(Dice& dice, std::string& text) {
  if (dice.one_in(3) && !text.empty()) text.erase(dice.below(uint32_t(text.size())), 1 + dice.below(4));
  if (dice.one_in(5)) text.resize(dice.below(uint32_t(text.size()) + 1));
  if (dice.one_in(20)) text.insert(dice.below(uint32_t(text.size()) + 1), 1, char(uint8_t(0x80 + dice.below(128))));
}

std::vector<std::string> random_pieces(Dice& dice, const std::string& text, bool inside_characters) {
  std::vector<std::string> out;
  const uint32_t longest = dice.pick({1u, 2u, 5u, 40u});
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.size(), at + 1 + dice.below(longest));
    while (!inside_characters && end < text.size() && (uint8_t(text[end]) & 0xC0) == 0x80) ++end;
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

}  // namespace fathom::recipe
