#include "fathom/cli/option.h"

#include <algorithm>

#include "fathom/base/json.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

Error wrong(const Option& option, const std::string& text, const std::string& from, const std::string& wanted) {
  return Error{
      ErrorCode::usage, "\"" + text + "\" is not " + wanted, from,
      option.fallback.empty() ? "pass " + wanted : "pass " + wanted + ", or leave it out for " + option.fallback};
}

std::string plain(double value) {
  if (value == double(int64_t(value))) return with_commas(int64_t(value));
  return brief(value);
}

Result<void> check_range(const Option& option, double value, const std::string& text, const std::string& from) {
  if (value >= option.least && value <= option.most) return {};
  const std::string limits = option.most == std::numeric_limits<double>::infinity()
                                 ? "at least " + plain(option.least)
                                 : "from " + plain(option.least) + " to " + plain(option.most);
  return Error{ErrorCode::usage, text + " is out of range", from, "pass a value " + limits};
}

Result<void> check_choice(const Option& option, const std::string& text, const std::string& from) {
  if (option.choices.empty() || std::count(option.choices.begin(), option.choices.end(), text)) return {};
  if (std::count(option.later.begin(), option.later.end(), text)) {
    return Error{ErrorCode::usage, "this build does not have \"" + text + "\" yet", from,
                 "use " + joined(option.choices)};
  }
  std::string remedy = "use " + joined(option.choices);
  if (const auto near = closest(text, option.choices)) remedy += "; did you mean " + *near + "?";
  return Error{ErrorCode::usage, "unknown value \"" + text + "\"", from, remedy};
}

template <class T>
Result<void> store(T& target, std::optional<T> value, const Option& option, const std::string& text,
                   const std::string& from, const std::string& wanted) {
  if (!value) return wrong(option, text, from, wanted);
  target = *value;
  return {};
}

template <class T>
Result<void> store_ranged(T& target, std::optional<T> value, const Option& option, const std::string& text,
                          const std::string& from, const std::string& wanted) {
  if (!value) return wrong(option, text, from, wanted);
  if (auto fits = check_range(option, double(*value), text, from); !fits) return fits;
  target = *value;
  return {};
}

std::string in_quotes(const std::string& text) {
  std::string out;
  append_json_string(out, text);  // a JSON string is a TOML basic string
  return out;
}

std::string number_text(double value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

}  // namespace

bool takes_value(const Option& option) { return !std::holds_alternative<bool*>(option.target); }

std::vector<Option> common_options(Common& common) {
  const std::string group = "Every command";
  return {
      {.name = "model",
       .value = "DIR",
       .help =
           "checkpoint folder, or synthetic:PRESET[,key=value...]: what make-checkpoint would write for it, in memory",
       .fallback = "the embedded miniature",
       .group = group,
       .target = &common.model},
      {.name = "backend",
       .value = "NAME",
       .help = "cpu, reference, cuda, ascend",
       .fallback = "best present",
       .group = group,
       .target = &common.backend,
       .choices = {"cpu", "reference", "cuda", "ascend"}},
      {.name = "threads",
       .value = "N",
       .help = "threads that compute",
       .fallback = "every usable CPU",
       .group = group,
       .target = &common.threads,
       .least = 1,
       .most = 1024},
      {.name = "config",
       .value = "FILE.toml",
       .help = "options from a file; a table of the command's name",
       .fallback = "none",
       .group = group,
       .target = &common.config},
      {.name = "print-config",
       .help = "print the options that would be used, and stop",
       .group = group,
       .target = &common.print_config},
      {.name = "log-level",
       .value = "LEVEL",
       .help = "error, warn, info, debug, trace",
       .fallback = "warn; info for serve",
       .group = group,
       .target = &common.log_level,
       .choices = {"error", "warn", "info", "debug", "trace"}},
      {.name = "json", .help = "results and errors as JSON, one object a line", .group = group, .target = &common.json},
  };
}

Result<void> assign(const Option& option, const std::string& text, const std::string& from) {
  if (option.planned) {
    return Error{ErrorCode::usage, "this build does not have --" + option.name + " yet", from, "leave it out"};
  }
  if (auto chosen = check_choice(option, text, from); !chosen) return chosen;
  return std::visit(
      Overload{
          [&](bool* t) { return store(*t, parse_switch(text), option, text, from, "true or false"); },
          [&](std::string* t) -> Result<void> {
            *t = text;
            return {};
          },
          [&](std::optional<std::string>* t) -> Result<void> {
            *t = text;
            return {};
          },
          [&](int64_t* t) { return store_ranged(*t, parse_integer(text), option, text, from, "a whole number"); },
          [&](std::optional<int64_t>* t) {
            int64_t value = 0;
            auto read = store_ranged(value, parse_integer(text), option, text, from, "a whole number");
            if (read) *t = value;
            return read;
          },
          [&](double* t) { return store_ranged(*t, parse_number(text), option, text, from, "a number"); },
          [&](std::optional<double>* t) {
            double value = 0;
            auto read = store_ranged(value, parse_number(text), option, text, from, "a number");
            if (read) *t = value;
            return read;
          },
          [&](std::optional<Bytes>* t) {
            int64_t bytes = 0;
            auto read =
                store(bytes, parse_size(text), option, text, from, "a size such as 64GiB, 500MB or plain bytes");
            if (read) *t = Bytes{bytes};
            return read;
          },
          [&](std::optional<std::chrono::milliseconds>* t) {
            std::chrono::milliseconds value{};
            auto read = store(value, parse_duration(text), option, text, from, "a duration such as 250ms, 30s or 5m");
            if (read) *t = value;
            return read;
          },
          [&](std::vector<std::string>* t) -> Result<void> {
            t->push_back(text);
            return {};
          },
          [&](std::vector<int64_t>* t) -> Result<void> {
            const auto values = parse_integers(text);
            if (!values) return wrong(option, text, from, "a comma list of whole numbers");
            for (int64_t value : *values) {
              if (auto fits = check_range(option, double(value), std::to_string(value), from); !fits) return fits;
            }
            t->insert(t->end(), values->begin(), values->end());
            return {};
          },
      },
      option.target);
}

std::optional<std::string> printed(const Option& option) {
  using Text = std::optional<std::string>;
  return std::visit(Overload{
                        [](bool* t) -> Text { return *t ? "true" : "false"; },
                        [](std::string* t) -> Text { return t->empty() ? Text() : in_quotes(*t); },
                        [](std::optional<std::string>* t) -> Text { return *t ? in_quotes(**t) : Text(); },
                        [](int64_t* t) -> Text { return std::to_string(*t); },
                        [](std::optional<int64_t>* t) -> Text { return *t ? std::to_string(**t) : Text(); },
                        [](double* t) -> Text { return number_text(*t); },
                        [](std::optional<double>* t) -> Text { return *t ? number_text(**t) : Text(); },
                        [](std::optional<Bytes>* t) -> Text { return *t ? std::to_string((*t)->count) : Text(); },
                        [](std::optional<std::chrono::milliseconds>* t) -> Text {
                          return *t ? in_quotes(std::to_string((*t)->count()) + "ms") : Text();
                        },
                        [](std::vector<std::string>* t) -> Text {
                          if (t->empty()) return {};
                          std::string list;
                          for (const std::string& item : *t) list += (list.empty() ? "" : ", ") + in_quotes(item);
                          return "[" + list + "]";
                        },
                        [](std::vector<int64_t>* t) -> Text {
                          if (t->empty()) return {};
                          std::string list;
                          for (int64_t item : *t) list += (list.empty() ? "" : ", ") + std::to_string(item);
                          return "[" + list + "]";
                        },
                    },
                    option.target);
}

}  // namespace fathom::cli
