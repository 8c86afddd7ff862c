#include "fathom/recipe/schema/references.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fathom/base/json_pointer.h"
#include "fathom/recipe/schema/pattern.h"
#include "fathom/recipe/schema/uri.h"

namespace fathom::recipe::schema {
namespace {

// A schema with an identifier of its own (the root always is one): where relative references and anchors start.
struct Resource {
  const Json* root;
  std::string uri;
  std::unordered_map<std::string_view, const Json*> anchors;
};

bool contains_schemas(Rule rule) {
  switch (rule) {
    case Rule::schema:
    case Rule::schema_map:
    case Rule::pattern_map:
    case Rule::schema_array:
    case Rule::schema_or_array:
    case Rule::boolean_or_schema:
    case Rule::dependencies: return true;
    default: return false;
  }
}

struct Task {
  enum class Kind : uint8_t { schema, pattern, pattern_key, reference };
  Kind kind;
  const Json* value;     // schema, pattern; of a key its value; of a reference the text
  std::string_view key;  // pattern_key
  size_t resource;
};

class Walk {
 public:
  Walk(const Json& root, Draft draft) : root_(root), draft_(draft) {}

  std::optional<Fault> run() {
    if (!root_.is_object()) return {};
    resources_.push_back({&root_, "json-schema:///", {}});
    collect(root_, 0);
    for (const auto& [reference, resource] : foreign_) {
      if (auto fault = find_resource(*reference, resource).second) return fault;
    }
    if (bad_uri_) return no_uri(*bad_uri_);
    tasks_.push_back({Task::Kind::schema, &root_, {}, 0});
    while (!tasks_.empty()) {
      const Task task = tasks_.back();
      tasks_.pop_back();
      next_.clear();
      if (auto fault = perform(task)) return fault;
      tasks_.insert(tasks_.end(), next_.rbegin(), next_.rend());  // the first is done first, with all that it brings
    }
    return {};
  }

 private:
  const Json& root_;
  Draft draft_;
  std::vector<Resource> resources_;
  std::unordered_map<std::string, size_t> by_uri_;
  std::unordered_map<const Json*, size_t> resource_of_;  // of every schema at a place where the draft expects one
  std::unordered_map<const Json*, std::unordered_map<std::string_view, const Json*>> members_;  // of large objects
  std::vector<std::pair<const Json*, size_t>> foreign_;  // references with more than a fragment
  const Json* bad_uri_ = nullptr;
  std::unordered_set<const Json*> done_;
  std::vector<Task> tasks_, next_;

  bool up_to_7() const { return draft_ <= Draft::d7; }

  static Fault no_uri(const Json& value) { return Fault{&value, " is not a URI reference", {}, false}; }

  const Json* member(const Json& object, std::string_view key) {
    if (object.fields.size() <= 8) return object.find(key);
    auto [at, fresh] = members_.try_emplace(&object);
    if (fresh) {
      for (const auto& [name, child] : object.fields) at->second.emplace(name, &child);
    }
    const auto found = at->second.find(key);
    return found == at->second.end() ? nullptr : found->second;
  }

  // Registers a schema and what it contains: identifiers, anchors, references that leave.
  void collect(const Json& node, size_t resource) {
    if (!node.is_object()) {
      resource_of_.emplace(&node, resource);
      return;
    }
    const Json* reference = member(node, "$ref");
    const bool alone = up_to_7() && reference && reference->is_string();  // its neighbours do not count
    const Json* id = member(node, draft_ == Draft::d4 ? "id" : "$id");
    if (id && id->is_string() && !alone) {
      std::string_view name = id->text;
      if (!valid_uri_reference(name)) {
        if (!bad_uri_) bad_uri_ = id;
      } else if (up_to_7() && name.size() > 1 && name.front() == '#') {
        resources_[resource].anchors.emplace(name.substr(1), &node);
      } else {
        name = name.substr(0, name.find('#'));
        std::string uri = resolve_uri(resources_[resource].uri, name);
        if (&node == &root_) {
          resources_[0].uri = std::move(uri);
        } else if (!name.empty()) {
          resource = resources_.size();
          resources_.push_back({&node, std::move(uri), {}});
        }
      }
    }
    if (resources_[resource].root == &node) by_uri_.emplace(resources_[resource].uri, resource);
    resource_of_.emplace(&node, resource);
    for (const auto& [key, child] : node.fields) {
      const auto rule = rule_of(key, draft_);
      if ((key == "$ref" || (key == "$dynamicRef" && rule)) && child.is_string()) {
        if (!valid_uri_reference(child.text)) {
          if (!bad_uri_) bad_uri_ = &child;
        } else if (!child.text.empty() && child.text.front() != '#') {
          foreign_.emplace_back(&child, resource);
        }
      } else if (rule == Rule::anchor && child.is_string()) {
        resources_[resource].anchors.emplace(child.text, &node);
      } else if (rule && contains_schemas(*rule)) {
        collect_children(*rule, child, resource);
      }
    }
  }

  void collect_children(Rule rule, const Json& value, size_t resource) {
    const bool map = rule == Rule::schema_map || rule == Rule::pattern_map || rule == Rule::dependencies;
    if (map) {
      for (const auto& [key, child] : value.fields) {
        if (!child.is_array()) collect(child, resource);
      }
    } else if (value.is_array()) {
      for (const Json& item : value.items) collect(item, resource);
    } else {
      collect(value, resource);
    }
  }

  // The resource that a reference names; none when it is the meta-schema itself, which needs no look.
  std::pair<std::optional<size_t>, std::optional<Fault>> find_resource(const Json& reference, size_t base) {
    const std::string_view text = std::string_view(reference.text).substr(0, reference.text.find('#'));
    if (text.empty()) return {base, {}};
    const std::string uri = resolve_uri(resources_[base].uri, text);
    if (const auto found = by_uri_.find(uri); found != by_uri_.end()) return {found->second, {}};
    if (draft_of(uri) == draft_) return {};
    return {{},
            Fault{&reference,
                  "'" + reference.text + "' is not part of the schema: references to other documents are not followed",
                  {},
                  true}};
  }

  std::optional<Fault> follow(const Json& reference, size_t base) {
    if (!valid_uri_reference(reference.text)) return no_uri(reference);
    auto [found, fault] = find_resource(reference, base);
    if (fault || !found) return fault;
    size_t resource = *found;
    const size_t hash = reference.text.find('#');
    const std::string_view fragment =
        hash == std::string::npos ? "" : std::string_view(reference.text).substr(hash + 1);
    const Json* node = resources_[resource].root;
    if (fragment.starts_with('/')) {
      node = point(fragment, *node, resource);
      if (!node) return Fault{&reference, "Pointer '" + std::string(fragment) + "' does not exist", {}, true};
    } else if (!fragment.empty()) {
      const auto& anchors = resources_[resource].anchors;
      const auto anchor = anchors.find(fragment);
      if (anchor == anchors.end()) {
        return Fault{&reference, "Anchor '" + std::string(fragment) + "' does not exist", {}, true};
      }
      node = anchor->second;
    }
    if (!resource_of_.contains(node)) {  // a schema at a place that no keyword leads to was not looked at yet
      if (auto wrong = find_meta_fault(*node, draft_)) return wrong;
      const size_t known = foreign_.size();
      collect(*node, resource);
      for (size_t i = known; i < foreign_.size(); ++i) {
        if (auto wrong = find_resource(*foreign_[i].first, foreign_[i].second).second) return wrong;
      }
    }
    next_.push_back({Task::Kind::schema, node, {}, resource});
    return {};
  }

  const Json* point(std::string_view pointer, const Json& from, size_t& resource) {
    const Json* node = &from;
    std::string token;
    while (!pointer.empty()) {
      const size_t end = std::min(pointer.find('/', 1), pointer.size());
      token = key_of_step(percent_decoded(pointer.substr(1, end - 1)));
      pointer.remove_prefix(end);
      if (node->is_array()) {
        size_t index = 0;
        const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), index);
        if (error != std::errc() || stop != token.data() + token.size() || index >= node->items.size()) return nullptr;
        node = &node->items[index];
      } else {
        node = node->is_object() ? member(*node, token) : nullptr;
      }
      if (!node) return nullptr;
      if (const auto inner = resource_of_.find(node); inner != resource_of_.end()) resource = inner->second;
    }
    return node;
  }

  std::optional<Fault> perform(const Task& task) {
    switch (task.kind) {
      case Task::Kind::schema: return perform_schema(*task.value, task.resource);
      case Task::Kind::reference: return follow(*task.value, task.resource);
      case Task::Kind::pattern:
        if (valid_pattern(task.value->text, Dialect::extended)) return {};
        return Fault{task.value, " is not a \"regex\"", {}, false};
      case Task::Kind::pattern_key:
        if (valid_pattern(task.key, Dialect::extended)) return {};
        return Fault{task.value, " is not a \"regex\"", {}, false};
    }
    return {};
  }

  std::optional<Fault> perform_schema(const Json& node, size_t resource) {
    if (!node.is_object() || !done_.insert(&node).second) return {};
    if (const auto known = resource_of_.find(&node); known != resource_of_.end()) resource = known->second;
    const Json* reference = member(node, "$ref");
    if (up_to_7() && reference) {  // its neighbours do not count
      if (!reference->is_string()) return Fault{reference, " is not of type \"string\"", {}, false};
      next_.push_back({Task::Kind::reference, reference, {}, resource});
      return {};
    }
    const Json* additional = member(node, "additionalProperties");
    const bool closed = additional && !(additional->kind == Json::Kind::boolean && additional->boolean);
    for (const auto& [key, child] : node.fields) {
      if (!rule_of(key, draft_)) continue;
      if (closed && (key == "properties" || key == "patternProperties")) continue;
      if (closed && key == "additionalProperties") {  // the three are one check, at this place
        for (const char* name : {"patternProperties", "properties"}) {
          if (const Json* map = member(node, name)) add(name, *map, node, resource);
        }
      }
      add(key, child, node, resource);
    }
    return {};
  }

  // What one keyword asks for.
  void add(std::string_view key, const Json& value, const Json& node, size_t resource) {
    const auto schema = [&](const Json& child) { next_.push_back({Task::Kind::schema, &child, {}, resource}); };
    const Rule rule = *rule_of(key, draft_);
    switch (rule) {
      case Rule::pattern: next_.push_back({Task::Kind::pattern, &value, {}, resource}); return;
      case Rule::string:
      case Rule::uri_reference:
        if (key == "$ref" || key == "$dynamicRef") next_.push_back({Task::Kind::reference, &value, {}, resource});
        return;
      case Rule::pattern_map:
        for (const auto& [name, child] : value.fields) {
          next_.push_back({Task::Kind::pattern_key, &child, name, resource});
          schema(child);
        }
        return;
      case Rule::schema_map:
      case Rule::dependencies:
        if (key == "$defs" || key == "definitions") return;
        for (const auto& [name, child] : value.fields) schema(child);
        return;
      case Rule::schema:
      case Rule::boolean_or_schema:
      case Rule::schema_or_array:
      case Rule::schema_array: break;
      default: return;
    }
    if (key == "then" || key == "else" || key == "contentSchema") return;
    if (key == "additionalItems") {  // means something only beside a list
      const Json* items = member(node, "items");
      if (!items || !items->is_array()) return;
    }
    if (key == "if") {
      const Json *then = member(node, "then"), *otherwise = member(node, "else");
      if (!then && !otherwise) return;
      schema(value);
      if (then) schema(*then);
      if (otherwise) schema(*otherwise);
      return;
    }
    if (value.is_array()) {
      for (const Json& item : value.items) schema(item);
    } else {
      schema(value);
    }
  }
};

}  // namespace

std::optional<Fault> find_reference_fault(const Json& root, Draft draft) { return Walk(root, draft).run(); }

}  // namespace fathom::recipe::schema
