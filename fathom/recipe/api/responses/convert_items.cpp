// Items -> messages.
#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "fathom/recipe/api/responses/convert.h"
#include "fathom/recipe/python_json.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe::responses {
namespace {

constexpr std::string_view kImageInV4 = "[Unsupported Image]";
constexpr std::string_view kFile = "[Unsupported Document]";

std::string path_of(int64_t item) { return "input[" + std::to_string(item) + ']'; }

// A data URL is never too long; asking only what can be a web address spares reading base64 twice.
bool too_long(std::string_view url) {
  return url.size() > kMostUrlBytes && (url[0] == 'h' || url[0] == 'H') && judge_image_url(url) == ImageUrl::too_long;
}

struct Content {
  std::string text;
  std::vector<ImageSource> images;
};

// A call and what it got.
struct OpenCall {
  ToolCall call;
  int64_t item = 0;  // its index in the input
  std::optional<Message> output;
};

// What the turn of the model consists of while its items come in.
struct Turn {
  bool present = false;  // there was a text, even an empty one
  std::string reasoning, text;
  std::vector<OpenCall> calls;
  size_t answered = 0;
  std::vector<FoundTools> found;  // in the order of the outputs
};

class ItemConverter {
 public:
  ItemConverter(const DeclaredTools& tools, ModelVersion version, bool thinking, const ConversionOptions& options,
                FunctionNames& names)
      : tools_(tools), version_(version), thinking_(thinking), options_(options), names_(names) {}

  Result<void> add(Item& item) {
    switch (item.kind) {
      case Item::Kind::message: return add_message(item);
      case Item::Kind::reasoning: return add_reasoning(item);
      case Item::Kind::call:
        if (item.name_space) item.name = names_.find(*item.name_space, item.name);
        return add_call(item);
      case Item::Kind::custom_call: {
        std::string arguments = R"({"input":)";
        append_json_string(arguments, item.text);
        item.text = std::move(arguments += '}');
        return add_call(item);
      }
      case Item::Kind::search_call:
        if (version_ == ModelVersion::v4) return {};
        item.name = "tool_search";
        append_compact_json(item.text, item.arguments);
        return add_call(item);
      case Item::Kind::output: {
        auto content = read_content(item, "output");
        if (!content) return content.error();
        return add_output(item, std::move(*content));
      }
      case Item::Kind::loose_output: return add_loose_output(item);
      case Item::Kind::search_output: {
        if (version_ == ModelVersion::v4) return {};
        auto text = found_tools_text(item);
        if (!text) return text.error();
        if (auto result = add_output(item, Content{std::move(*text), {}}); !result) return result;
        add_found(item);
        return {};
      }
      case Item::Kind::server_call:
        // Nothing is left of it, but the calls before it count as done.
        return turn_.calls.empty() ? Result<void>() : close_turn();
      case Item::Kind::unsupported: return {};
    }
    return {};
  }

  Result<ConvertedItems> finish() {
    if (auto result = close_turn(); !result) return result.error();
    return std::move(result_);
  }

 private:
  Result<void> add_message(Item& item) {
    const bool assistant = item.role == Item::Role::assistant;
    if (!assistant || !turn_.calls.empty()) {
      if (auto result = close_turn(); !result) return result;
    }
    auto content = read_content(item, "content");
    if (!content) return content.error();
    if (assistant) {
      turn_.present = true;
      if (!turn_.text.empty() && !content->text.empty()) turn_.text += "\n\n";
      append(turn_.text, std::move(content->text));
      return {};
    }
    if (item.role != Item::Role::user && options_.policy == Policy::lenient && strip_billing(*content)) return {};
    const bool system =
        item.role == Item::Role::system || (item.role == Item::Role::developer && version_ == ModelVersion::v41);
    Message& message = result_.messages.emplace_back();
    message.role = system ? Message::Role::system : Message::Role::user;
    message.content = std::move(content->text);
    message.images = std::move(content->images);
    return {};
  }

  // D-3. True when nothing is left.
  static bool strip_billing(Content& content) {
    const size_t before = content.text.size();
    if (!strip_billing_lines(content.text)) return false;
    for (ImageSource& image : content.images) image.offset -= int64_t(before - content.text.size());
    return content.text.empty();
  }

  Result<void> add_reasoning(Item& item) {
    if (!turn_.calls.empty() || (!turn_.text.empty() && !item.text.empty())) {
      if (auto result = close_turn(); !result) return result;
    }
    if (!turn_.reasoning.empty() && !item.text.empty()) turn_.reasoning += '\n';
    append(turn_.reasoning, std::move(item.text));
    return {};
  }

  static Result<void> check_call_id(const Item& item) {
    if (!item.call_id.empty()) return {};
    const std::string path = path_of(item.index) + ".call_id";
    return convert_error(
        "Invalid '" + path +
            "': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        path);
  }

  Result<void> add_call(Item& item) {
    if (auto result = check_call_id(item); !result) return result;
    if (!turn_.calls.empty() && turn_.answered == turn_.calls.size()) {
      if (auto result = close_turn(); !result) return result;
    }
    if (!calls_seen_.insert(item.call_id).second) {
      return convert_error("Duplicate 'call_id': " + item.call_id + '.', path_of(item.index) + ".call_id");
    }
    OpenCall& open = turn_.calls.emplace_back();
    open.call = {std::move(item.call_id), std::move(item.name), std::move(item.text)};
    open.item = item.index;
    return {};
  }

  Result<void> add_output(Item& item, Content content) {
    if (auto result = check_call_id(item); !result) return result;
    if (outputs_seen_.contains(item.call_id)) {
      return convert_error("Duplicate tool output for call_id: " + item.call_id + '.',
                           path_of(item.index) + ".call_id");
    }
    const auto open = std::find_if(turn_.calls.begin(), turn_.calls.end(),
                                   [&](const OpenCall& other) { return other.call.id == item.call_id; });
    if (open == turn_.calls.end()) {
      return convert_error("No tool call found for tool output with call_id " + item.call_id + '.',
                           path_of(item.index) + ".call_id");
    }
    outputs_seen_.insert(item.call_id);
    ++turn_.answered;
    Message& message = open->output.emplace();
    message.role = Message::Role::tool;
    message.content = std::move(content.text);
    message.images = std::move(content.images);
    message.call_id = std::move(item.call_id);
    return {};
  }

  // The output of no call that anybody knows.
  Result<void> add_loose_output(Item& item) {
    auto content = read_content(item, "output");
    if (!content) return content.error();
    if (auto result = close_turn(); !result) return result;
    Message& message = result_.messages.emplace_back();
    message.role = Message::Role::tool;
    message.content = std::move(content->text);
    message.images = std::move(content->images);
    return {};
  }

  void add_found(const Item& item) {
    for (const FoundTools& found : tools_.found) {
      if (found.item == item.index && found.begin < found.end) turn_.found.push_back(found);
    }
  }

  Result<void> close_turn() {
    for (const OpenCall& open : turn_.calls) {
      if (open.output) continue;
      return convert_error("No tool output found for tool call " + open.call.id + '.', path_of(open.item) + ".call_id");
    }
    if (!turn_.present && turn_.reasoning.empty() && turn_.calls.empty()) return {};
    Message& message = result_.messages.emplace_back();
    message.role = Message::Role::assistant;
    message.content = std::move(turn_.text);
    if (thinking_) message.reasoning = std::move(turn_.reasoning);
    if (!turn_.calls.empty()) add_calls(message.calls.emplace());
    for (const FoundTools& found : turn_.found) {
      result_.announcements.push_back({result_.messages.size(), found});
      result_.messages.emplace_back().role = Message::Role::system;
    }
    turn_ = Turn();
    return {};
  }

  // The calls of the turn, and their outputs as messages of their own: by id, whatever order the items had. Ours are
  // numbered, so that theirs is the order of the model.
  void add_calls(std::vector<ToolCall>& calls) {
    std::sort(turn_.calls.begin(), turn_.calls.end(),
              [](const OpenCall& a, const OpenCall& b) { return a.call.id < b.call.id; });
    calls.reserve(turn_.calls.size());
    for (OpenCall& open : turn_.calls) calls.push_back(std::move(open.call));
    for (OpenCall& open : turn_.calls) result_.messages.push_back(std::move(*open.output));
  }

  Result<Content> read_content(Item& item, const char* list) {
    Content content;
    const bool assistant = item.kind == Item::Kind::message && item.role == Item::Role::assistant;
    if (version_ == ModelVersion::v41) {
      if (auto result = check_images(item, list); !result) return result.error();
    }
    bool first = true;
    for (Part& part : item.content) {
      if (!first) content.text += "\n\n";
      first = false;
      switch (part.kind) {
        case Part::Kind::text: append(content.text, std::move(part.text)); break;
        case Part::Kind::file: content.text += kFile; break;
        case Part::Kind::image: {
          if (version_ == ModelVersion::v4) {
            content.text += kImageInV4;
            break;
          }
          const std::string path = path_of(item.index);
          if (assistant) return convert_error(path + ": Image in assistant message is unsupported", path);
          auto image = read_image(part, path);
          if (!image) return image.error();
          image->offset = int64_t(content.text.size());
          content.images.push_back(std::move(*image));
          content.text += options_.spellings[SpecialToken::image];
          break;
        }
      }
    }
    return content;
  }

  // What all images of an item must have before any of them is read.
  static Result<void> check_images(const Item& item, const char* list) {
    for (size_t i = 0; i < item.content.size(); ++i) {
      const Part& part = item.content[i];
      if (part.kind != Part::Kind::image) continue;
      const auto refuse = [&](const std::string& text) {
        const std::string path = path_of(item.index) + '.' + list + '[' + std::to_string(i) + ']';
        return convert_error(path + ": " + text, path);
      };
      const bool url = part.image_url && !part.image_url->empty();
      if (url && part.file_id) return refuse("input_image cannot have both image_url and file_id");
      if (part.file_id) return refuse("file_id is not supported. Pass the image as a base64 data url instead.");
      if (!url) return refuse("input_image must have image_url or file_id");
      if (too_long(*part.image_url)) {
        return refuse("image_url external link length " + std::to_string(part.image_url->size()) +
                      " too long, max link length " + std::to_string(kMostUrlBytes) +
                      ". Consider passing file data directly with base64 data url instead.");
      }
    }
    return {};
  }

  static Result<ImageSource> read_image(Part& part, const std::string& path) {
    ImageSource image;
    switch (judge_image_url(*part.image_url)) {
      case ImageUrl::data: image.kind = ImageSource::Kind::data_url; break;
      case ImageUrl::web:
      case ImageUrl::too_long: image.kind = ImageSource::Kind::url; break;
      case ImageUrl::bad_format: return convert_error(path + ": Unsupported image_url format", path);
      case ImageUrl::bad_type:
        return convert_error(path +
                                 ": You have uploaded an unsupported image. Please make sure your image is valid and "
                                 "has one of the following formats: webp, png, jpeg, and gif.",
                             path);
      case ImageUrl::bad_base64: return convert_error(path + ": Invalid base64 data", path);
    }
    image.detail = part.detail.value_or(ImageDetail::high);
    image.data = std::move(*part.image_url);
    image.path = path;
    return image;
  }

  static void append(std::string& to, std::string&& text) {
    if (to.empty()) {
      to = std::move(text);
    } else {
      to += text;
    }
  }

  const DeclaredTools& tools_;
  ModelVersion version_;
  bool thinking_;
  const ConversionOptions& options_;
  FunctionNames& names_;
  ConvertedItems result_;
  Turn turn_;
  std::unordered_set<std::string> calls_seen_, outputs_seen_;
};

bool is_call(const Item& item) {
  return item.kind == Item::Kind::call || item.kind == Item::Kind::custom_call || item.kind == Item::Kind::search_call;
}

bool is_output(const Item& item) { return item.kind == Item::Kind::output || item.kind == Item::Kind::search_output; }

}  // namespace

Result<ConvertedItems> convert_items(std::vector<Item> items, const DeclaredTools& tools, ModelVersion version,
                                     bool thinking, const ConversionOptions& options, FunctionNames& names) {
  if (version == ModelVersion::v4) {  // V4 has no tool search; what is left must not look like an open call
    std::erase_if(items, [](const Item& item) {
      return item.kind == Item::Kind::search_call || item.kind == Item::Kind::search_output;
    });
  }
  if (options.policy == Policy::lenient) items = gather_outputs(std::move(items));
  ItemConverter converter(tools, version, thinking, options, names);
  for (Item& item : items) {
    if (auto result = converter.add(item); !result) return result.error();
  }
  return converter.finish();
}

std::vector<Item> gather_outputs(std::vector<Item> items) {
  std::vector<Item> ordered, held;
  ordered.reserve(items.size());
  std::unordered_set<std::string> open;  // calls without output
  const auto release = [&] {
    std::move(held.begin(), held.end(), std::back_inserter(ordered));
    held.clear();
  };
  for (Item& item : items) {
    if (is_call(item)) {
      release();  // the next calls: outputs that have not come are too late
      open.insert(item.call_id);
      ordered.push_back(std::move(item));
    } else if (is_output(item)) {
      open.erase(item.call_id);
      ordered.push_back(std::move(item));
      if (open.empty()) release();
    } else if (open.empty()) {
      ordered.push_back(std::move(item));
    } else {
      held.push_back(std::move(item));
    }
  }
  release();
  return ordered;
}

}  // namespace fathom::recipe::responses
