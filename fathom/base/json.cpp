#include "fathom/base/json_values.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "fathom/base/json_fault.h"

namespace fathom {
namespace {

namespace od = simdjson::ondemand;

constexpr const char* kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// The key and index steps from the root to where reading failed. Written only while a failed read unwinds, innermost
// step first, so that a good body pays nothing for it.
struct FaultPath {
  std::vector<std::string> steps;
  std::string escape;  // the unpaired surrogate, as it was spelt

  void key(std::string_view name) {
    std::string step;
    append_path_key(step, name);
    steps.push_back(std::move(step));
  }
  void index(size_t i) { steps.push_back("[" + std::to_string(i) + "]"); }
  std::string text() const {
    std::string path;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      if (!path.empty() && step->front() != '[') path += '.';
      path += *step;
    }
    return path;
  }
};

// The first escape of a high surrogate without its low one, or the other way round, in a quoted string.
std::string_view unpaired_surrogate(std::string_view quoted) {
  const auto unit = [&](size_t at) -> unsigned {  // of "\uXXXX" at `at`, else 0
    if (at + 6 > quoted.size() || quoted[at] != '\\' || quoted[at + 1] != 'u') return 0;
    unsigned value = 0;
    const char* end = quoted.data() + at + 6;
    return std::from_chars(quoted.data() + at + 2, end, value, 16).ptr == end ? value : 0;
  };
  for (size_t i = 1; i + 1 < quoted.size() && quoted[i] != '"'; ++i) {
    if (quoted[i] != '\\') continue;
    const unsigned first = unit(i);
    const unsigned second = first >= 0xd800 && first < 0xdc00 ? unit(i + 6) : 0;
    const bool paired = second >= 0xdc00 && second < 0xe000;
    if (first >= 0xd800 && first < 0xe000 && !paired) return quoted.substr(i, 6);
    i += paired ? 11 : 1;
  }
  return "";
}

struct Reader {
  int depth_limit;
  bool finite;
  const char* end;      // of the text
  int64_t values_left;  // below 0: there were too many
  FaultPath fault = {};

  simdjson::error_code string(simdjson::simdjson_result<std::string_view> got, std::string& out) {
    std::string_view view;
    if (const auto error = std::move(got).get(view)) return error;
    out.assign(view);
    return simdjson::SUCCESS;
  }

  // The places of an object's keys: the first few are compared one by one, beyond that a table of indices is kept. The
  // keys themselves stand in the object only.
  class Keys {
   public:
    explicit Keys(const Json& object) : object_(&object) {}

    // The place of the field that has the same key as the last one: an earlier one, or the last itself.
    size_t place_of_last() {
      constexpr size_t kFew = 16;
      const auto& fields = object_->fields;
      const size_t last = fields.size() - 1;
      if (last < kFew) {
        for (size_t i = 0; i < last; ++i) {
          if (fields[i].first == fields[last].first) return i;
        }
        return last;
      }
      if (!table_) {
        table_.emplace(2 * kFew, Hash{object_}, Equal{object_});
        for (size_t i = 0; i < last; ++i) table_->insert(i);
      }
      return *table_->insert(last).first;
    }

   private:
    struct Hash {
      const Json* object;
      size_t operator()(size_t i) const { return std::hash<std::string_view>{}(object->fields[i].first); }
    };
    struct Equal {
      const Json* object;
      bool operator()(size_t a, size_t b) const { return object->fields[a].first == object->fields[b].first; }
    };
    const Json* object_;
    std::optional<std::unordered_set<size_t, Hash, Equal>> table_;
  };

  simdjson::error_code object(od::object object, Json& out, int depth) {
    out.kind = Json::Kind::object;
    Keys keys(out);  // a repeated key keeps its first place and takes the last value
    for (auto field : object) {
      std::string key;
      od::raw_json_string raw;
      if (const auto error = field.key().get(raw)) return error;
      if (const auto error = string(field.unescaped_key(), key)) {
        note_surrogate({raw.raw() - 1, size_t(end - raw.raw()) + 1});
        return error;
      }
      od::value value;
      const auto error = field.value().get(value);
      if (out.fields.empty()) out.fields.reserve(4);  // most objects have a few: one allocation instead of three
      auto& [name, child] = out.fields.emplace_back(std::move(key), Json());
      if (const auto failed = error ? error : read(value, child, depth + 1)) {
        fault.key(name);
        return failed;
      }
      const size_t place = keys.place_of_last();
      if (place + 1 < out.fields.size()) {
        out.fields[place].second = std::move(child);
        out.fields.pop_back();
      }
    }
    return simdjson::SUCCESS;
  }

  simdjson::error_code array(od::array array, Json& out, int depth) {
    out.kind = Json::Kind::array;
    for (auto item : array) {
      od::value value;
      const auto error = item.get(value);
      if (const auto failed = error ? error : read(value, out.items.emplace_back(), depth + 1)) {
        fault.index(out.items.empty() ? 0 : out.items.size() - 1);
        return failed;
      }
    }
    return simdjson::SUCCESS;
  }

  void note_surrogate(std::string_view quoted) { fault.escape = unpaired_surrogate(quoted); }

  // `Value` is od::value or od::document; both have the same accessors.
  template <class Value>
  simdjson::error_code read(Value& value, Json& out, int depth) {
    if (depth > depth_limit) return simdjson::DEPTH_ERROR;
    if (--values_left < 0) return simdjson::CAPACITY;
    od::json_type type;
    if (const auto error = value.type().get(type)) return error;
    switch (type) {
      case od::json_type::object: {
        od::object inner;
        if (const auto error = value.get_object().get(inner)) return error;
        return object(inner, out, depth);
      }
      case od::json_type::array: {
        od::array inner;
        if (const auto error = value.get_array().get(inner)) return error;
        return array(inner, out, depth);
      }
      case od::json_type::string: {
        out.kind = Json::Kind::string;
        std::string_view raw;
        if constexpr (std::is_same_v<Value, od::document>) {
          if (const auto error = value.raw_json_token().get(raw)) return error;
        } else {
          raw = value.raw_json_token();
        }
        const auto error = string(value.get_string(), out.text);
        if (error) note_surrogate(raw);
        return error;
      }
      case od::json_type::boolean: out.kind = Json::Kind::boolean; return value.get_bool().get(out.boolean);
      case od::json_type::null: {
        out.kind = Json::Kind::null;
        bool null = false;
        if (const auto error = value.is_null().get(null)) return error;
        return null ? simdjson::SUCCESS : simdjson::N_ATOM_ERROR;
      }
      case od::json_type::number: return number(value, out);
    }
    return simdjson::INCORRECT_TYPE;
  }

  template <class Value>
  simdjson::error_code number(Value& value, Json& out) {
    out.kind = Json::Kind::number;
    std::string_view token;
    if constexpr (std::is_same_v<Value, od::document>) {
      if (const auto error = value.raw_json_token().get(token)) return error;
    } else {
      token = value.raw_json_token();
    }
    out.text.assign(trimmed(token));
    // Validity is judged here and the text is what is kept, so that big integers stay exact and a number beyond 64 bits
    // or a double's range is kept too. simdjson reads the value only to move on.
    if (!valid_number(out.text)) return simdjson::NUMBER_ERROR;
    double ignored = 0;
    const auto error = value.get_double().get(ignored);
    if (error && finite && !std::isfinite(std::strtod(out.text.c_str(), nullptr))) return simdjson::NUMBER_OUT_OF_RANGE;
    return error == simdjson::NUMBER_OUT_OF_RANGE || error == simdjson::NUMBER_ERROR ? simdjson::SUCCESS : error;
  }

  static bool valid_number(std::string_view text) {
    size_t i = 0;
    const auto digits = [&] {
      const size_t begin = i;
      while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
      return i - begin;
    };
    if (i < text.size() && text[i] == '-') ++i;
    const size_t first = i;
    const size_t whole = digits();
    if (whole == 0 || (whole > 1 && text[first] == '0')) return false;
    if (i < text.size() && text[i] == '.') {
      ++i;
      if (digits() == 0) return false;
    }
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
      ++i;
      if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
      if (digits() == 0) return false;
    }
    return i == text.size();
  }
};

Error bad_json(std::string message, std::string_view where) {
  return Error{ErrorCode::bad_input, std::move(message), std::string(where), "expected one valid JSON value in UTF-8"};
}

/// What is wrong, and where: simdjson mostly knows only the first.
std::string mistake(simdjson::error_code error, std::string_view text) {
  const auto fault = find_json_fault(text);
  return fault ? describe(*fault, text) : simdjson::error_message(error);
}

void append(std::string& out, const Json& value) { append_json(out, value); }

}  // namespace

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::optional<int64_t> Json::as_int64() const {
  if (kind != Kind::number) return {};
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const auto real = as_double();
  if (!real || std::abs(*real) > 0x1p53 || *real != std::floor(*real)) return {};
  return int64_t(*real);
}

std::optional<double> Json::as_double() const {
  if (kind != Kind::number) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::optional<bool> Json::as_bool() const {
  if (kind != Kind::boolean) return {};
  return boolean;
}

Json Json::with_kind(Kind kind) {
  Json json;
  json.kind = kind;
  return json;
}

Json Json::of(std::string_view text) {
  Json json = with_kind(Kind::string);
  json.text = text;
  return json;
}

Json Json::of(int64_t number) {
  Json json = with_kind(Kind::number);
  json.text = std::to_string(number);
  return json;
}

Json Json::of(double number) {
  Json json = with_kind(std::isfinite(number) ? Kind::number : Kind::null);
  if (std::isfinite(number)) append_json_number(json.text, number);
  return json;
}

Json Json::of(bool value) {
  Json json = with_kind(Kind::boolean);
  json.boolean = value;
  return json;
}

Json& Json::set(std::string_view key, Json value) {
  kind = Kind::object;
  for (auto& [name, old] : fields) {
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  }
  fields.emplace_back(key, std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  kind = Kind::array;
  items.push_back(std::move(value));
  return *this;
}

void append_path_key(std::string& path, std::string_view key) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (!key.empty() && std::all_of(key.begin(), key.end(), plain)) {
    if (!path.empty()) path += '.';
    path += key;
    return;
  }
  path += '[';
  append_json_string(path, key);
  path += ']';
}

Result<Json> parse_json(std::string_view text, std::string_view where, JsonLimits limits, std::string* path) {
  return parse_json_of(INT64_MAX, text, where, limits, path);
}

Result<Json> parse_json_of(int64_t most_values, std::string_view text, std::string_view where, JsonLimits limits,
                           std::string* path) {
  if (int64_t(text.size()) > limits.bytes) {
    return Error{ErrorCode::bad_input, "JSON of " + std::to_string(text.size()) + " bytes", std::string(where),
                 "the limit is " + std::to_string(limits.bytes) + " bytes"};
  }
  // simdjson 3.1 does not find an atom at the root when there are blanks around it.
  const std::string_view inner = trimmed(text);
  const int64_t skipped = inner.empty() ? 0 : inner.data() - text.data();
  od::parser parser;
  const simdjson::padded_string padded(inner);
  od::document document;
  if (const auto error = parser.iterate(padded).get(document)) return bad_json(mistake(error, text), where);
  Json out;
  Reader reader{limits.depth, limits.finite, padded.data() + padded.size(), most_values};
  if (const auto error = reader.read(document, out, 1)) {
    const std::string at_fault = reader.fault.text();
    if (path) *path = at_fault;
    if (!reader.fault.escape.empty()) {
      return Error{
          ErrorCode::bad_input,
          (at_fault.empty() ? "the text" : at_fault) + " has an unpaired surrogate (" + reader.fault.escape + ")",
          std::string(where), "send valid UTF-8 or a full \\u pair"};
    }
    if (error == simdjson::DEPTH_ERROR) {
      return Error{ErrorCode::bad_input, "JSON nested deeper than " + std::to_string(limits.depth) + " levels",
                   std::string(where), "flatten it"};
    }
    if (reader.values_left < 0) {
      return Error{ErrorCode::bad_input, "JSON of more than " + std::to_string(most_values) + " values",
                   std::string(where), "send fewer"};
    }
    return bad_json(mistake(error, text), where);
  }
  // Past the value the location is out of bounds; anything else is a second value. A number at the root that no double
  // holds is not passed, so numbers are compared with the whole text.
  const char* rest = nullptr;
  if (out.is_number()) {
    if (inner != out.text) return bad_json("text after the JSON value", where);
  } else if (!document.current_location().get(rest)) {
    const std::string_view tail(rest, size_t(padded.data() + padded.size() - rest));
    if (!trimmed(tail).empty()) {
      return bad_json("text after the JSON value, at byte " + std::to_string(skipped + (rest - padded.data())), where);
    }
  }
  return out;
}

// Whether one of eight bytes needs an escape: less than a blank, a quote or a backslash. The subtractions borrow only
// out of such a byte, so there is no false alarm without a true one.
static bool needs_escape(const char* bytes) {
  constexpr uint64_t kOnes = ~uint64_t(0) / 255, kHigh = kOnes * 0x80;
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  const uint64_t quote = word ^ (kOnes * '"'), backslash = word ^ (kOnes * '\\');
  return (((word - kOnes * 0x20) & ~word) | ((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash)) & kHigh;
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto plain = [](char c) { return uint8_t(c) >= 0x20 && c != '"' && c != '\\'; };
  out += '"';
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end + 8 <= text.size() && !needs_escape(text.data() + end)) end += 8;
    while (end < text.size() && plain(text[end])) ++end;
    out.append(text, begin, end - begin);  // whole runs: most of a text needs no escape
    if (end == text.size()) break;
    const char c = text[end];
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        out += "\\u00";
        out += kHex[uint8_t(c) >> 4];
        out += kHex[uint8_t(c) & 15];
    }
    begin = end + 1;
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
}

void append_json(std::string& out, const Json& value) {
  switch (value.kind) {
    case Json::Kind::null: out += "null"; return;
    case Json::Kind::boolean: out += value.boolean ? "true" : "false"; return;
    case Json::Kind::number: out += value.text; return;
    case Json::Kind::string: append_json_string(out, value.text); return;
    case Json::Kind::array: {
      out += '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i) out += ',';
        append(out, value.items[i]);
      }
      out += ']';
      return;
    }
    case Json::Kind::object: {
      out += '{';
      for (size_t i = 0; i < value.fields.size(); ++i) {
        if (i) out += ',';
        append_json_string(out, value.fields[i].first);
        out += ':';
        append(out, value.fields[i].second);
      }
      out += '}';
      return;
    }
  }
}

std::string to_string(const Json& value) {
  std::string out;
  append_json(out, value);
  return out;
}

}  // namespace fathom
