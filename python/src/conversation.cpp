// Messages, tools, image sources, Conversation.
#include "python/src/conversation.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "fathom/recipe/json_text.h"
#include "fathom/recipe/token_spellings.h"
#include "python/src/errors.h"
#include "python/src/json_object.h"
#include "python/src/words.h"

namespace fathom::python {
namespace {

using recipe::Conversation;
using recipe::ImageSource;
using recipe::Message;
using recipe::ResponseFormat;
using recipe::ToolCall;
using recipe::ToolDefinition;
using Kind = ImageSource::Kind;
using Role = Message::Role;
using Text = std::string;
using OptionalText = std::optional<std::string>;

std::string quoted(std::string_view text) {
  std::string out;
  recipe::append_quoted(out, text);
  return out;
}

const char* kind_name(Kind kind) { return kind == Kind::data_url ? "data_url" : kind == Kind::url ? "url" : "bytes"; }

const char* class_name(Kind kind) {
  return kind == Kind::data_url ? "DataUrlImageSource" : kind == Kind::url ? "UrlImageSource" : "BytesImageSource";
}

const char* class_name(Role role) {
  switch (role) {
    case Role::system: return "SystemMessage";
    case Role::user: return "UserMessage";
    case Role::assistant: return "AssistantMessage";
    case Role::tool: return "ToolMessage";
    case Role::latest_reminder: return "LatestReminderMessage";
  }
  return "Message";
}

nb::object text_when(bool known, const std::string& text) {
  return known ? nb::object(nb::str(text.data(), text.size())) : nb::object(nb::none());
}

// -- image sources
// ------------------------------------------------------------------------------------------------------

ImageSource source_of(Kind kind, std::string data, std::string_view detail, std::string path) {
  ImageSource source;
  source.kind = kind;
  source.detail = read_detail(detail);
  source.data = std::move(data);
  source.path = std::move(path);
  return source;
}

template <Kind kKind>
void bind_text_source(nb::module_& module, const char* argument) {
  nb::class_<ImageSourceOf<kKind>, PyImageSource>(module, class_name(kKind))
      .def(
          "__init__",
          [](ImageSourceOf<kKind>* self, Text data, std::string_view detail, Text path) {
            new (self) ImageSourceOf<kKind>{{source_of(kKind, std::move(data), detail, std::move(path))}};
          },
          nb::arg(argument), "detail"_a = "high", nb::kw_only(), "path"_a = "");
}

std::string describe(const PyImageSource& self) {
  const ImageSource& source = self.source;
  const std::string what =
      source.kind == Kind::bytes ? std::to_string(source.data.size()) + " bytes" : quoted(source.data);
  return std::string(class_name(source.kind)) + "(" + what + ", detail=" + quoted(name_of(source.detail)) +
         ", path=" + quoted(source.path) + ")";
}

void bind_image_sources(nb::module_& module) {
  nb::class_<PyImageSource>(module, "ImageSource")
      .def_prop_ro("kind", [](const PyImageSource& self) { return kind_name(self.source.kind); })
      .def_prop_ro("detail", [](const PyImageSource& self) { return name_of(self.source.detail); })
      .def_prop_ro(
          "data_url",
          [](const PyImageSource& self) { return text_when(self.source.kind == Kind::data_url, self.source.data); })
      .def_prop_ro("url",
                   [](const PyImageSource& self) { return text_when(self.source.kind == Kind::url, self.source.data); })
      .def_prop_ro("data",
                   [](const PyImageSource& self) -> nb::object {
                     if (self.source.kind != Kind::bytes) return nb::none();
                     return nb::bytes(self.source.data.data(), self.source.data.size());
                   })
      .def_prop_ro("path", [](const PyImageSource& self) { return self.source.path; })
      .def("__repr__", describe);
  bind_text_source<Kind::data_url>(module, "data_url");
  bind_text_source<Kind::url>(module, "url");
  using Bytes = ImageSourceOf<Kind::bytes>;
  nb::class_<Bytes, PyImageSource>(module, class_name(Kind::bytes))
      .def(
          "__init__",
          [](Bytes* self, const nb::bytes& data, std::string_view detail, Text path) {
            new (self) Bytes{{source_of(Kind::bytes, {data.c_str(), data.size()}, detail, std::move(path))}};
          },
          "data"_a, "detail"_a = "high", nb::kw_only(), "path"_a = "");
}

// -- tools
// --------------------------------------------------------------------------------------------------------------

void bind_tools(nb::module_& module) {
  nb::class_<ToolCall>(module, "ToolCall")
      .def(
          "__init__",
          [](ToolCall* self, Text id, Text name, Text arguments) {
            new (self) ToolCall{std::move(id), std::move(name), std::move(arguments)};
          },
          "id"_a, "name"_a, "arguments"_a)
      .def_ro("id", &ToolCall::id)
      .def_ro("name", &ToolCall::name)
      .def_ro("arguments", &ToolCall::arguments)
      .def("__repr__", [](const ToolCall& self) {
        return "ToolCall(id=" + quoted(self.id) + ", name=" + quoted(self.name) +
               ", arguments=" + quoted(self.arguments) + ")";
      });
  nb::class_<ToolDefinition>(module, "ToolDefinition")
      .def(
          "__init__",
          [](ToolDefinition* self, Text name, OptionalText description, nb::handle parameters,
             std::optional<bool> strict, bool defer_loading) {
            new (self)
                ToolDefinition{std::move(name), std::move(description), json_of(parameters), strict, defer_loading};
          },
          "name"_a, "description"_a = nb::none(), "parameters"_a = nb::none(), "strict"_a = nb::none(),
          "defer_loading"_a = false)
      .def_ro("name", &ToolDefinition::name)
      .def_ro("description", &ToolDefinition::description)
      .def_prop_ro("parameters", [](const ToolDefinition& self) { return object_of(self.parameters); })
      .def_ro("strict", &ToolDefinition::strict)
      .def_ro("defer_loading", &ToolDefinition::defer_loading)
      .def("__repr__", [](const ToolDefinition& self) { return "ToolDefinition(name=" + quoted(self.name) + ")"; });
}

// -- messages
// -----------------------------------------------------------------------------------------------------------

using Images = std::optional<std::vector<PyImageSource>>;

Message message_of(Role role, std::string content) {
  Message message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

/// With images at the first occurrences of their token.
Message message_of(Role role, std::string content, const Images& images, const OptionalText& image_token) {
  if (image_token && image_token->empty()) raise_value_error("image_token must not be empty");
  Message message = message_of(role, std::move(content));
  if (!images) return message;
  for (const PyImageSource& image : *images) message.images.push_back(image.source);
  place_images(message, image_token ? *image_token : recipe::TokenSpellings()[recipe::SpecialToken::image]);
  return message;
}

std::string describe(const PyMessage& self) {
  const Message& message = self.message;
  std::string out = std::string(class_name(message.role)) + "(" + quoted(message.content);
  if (message.role != Role::assistant && message.role != Role::latest_reminder) {
    out += ", image_sources=" + std::to_string(message.images.size());
  }
  return out + ")";
}

template <Role kRole>
nb::object object_of_role(const Message& message) {
  return nb::cast(MessageOf<kRole>{{message}});
}

void bind_messages(nb::module_& module) {
  nb::class_<PyMessage>(module, "Message")
      .def_prop_ro("role", [](const PyMessage& self) { return name_of(self.message.role); })
      .def_prop_ro("content", [](const PyMessage& self) { return self.message.content; })
      .def_prop_ro("reasoning_content", [](const PyMessage& self) { return self.message.reasoning; })
      .def_prop_ro("tool_calls", [](const PyMessage& self) { return self.message.calls; })
      .def_prop_ro("tool_call_id", [](const PyMessage& self) { return self.message.call_id; })
      .def_prop_ro("image_sources", [](const PyMessage& self) { return objects_of(self.message.images); })
      .def_prop_ro("prefix", [](const PyMessage& self) { return self.message.prefix; })
      .def("__repr__", [](const PyMessage& self) { return describe(self); });

  using System = MessageOf<Role::system>;
  nb::class_<System, PyMessage>(module, class_name(Role::system))
      .def(
          "__init__",
          [](System* self, Text content, const Images& images, std::optional<std::vector<ToolDefinition>> tools,
             const OptionalText& image_token) {
            Message message = message_of(Role::system, std::move(content), images, image_token);
            message.tools = std::move(tools);
            new (self) System{{std::move(message)}};
          },
          "content"_a, "image_sources"_a = nb::none(), "tools"_a = nb::none(), nb::kw_only(),
          "image_token"_a = nb::none())
      .def_prop_ro("tools", [](const System& self) { return self.message.tools; });

  using User = MessageOf<Role::user>;
  nb::class_<User, PyMessage>(module, class_name(Role::user))
      .def(
          "__init__",
          [](User* self, Text content, const Images& images, const OptionalText& image_token) {
            new (self) User{{message_of(Role::user, std::move(content), images, image_token)}};
          },
          "content"_a, "image_sources"_a = nb::none(), nb::kw_only(), "image_token"_a = nb::none());

  using Assistant = MessageOf<Role::assistant>;
  nb::class_<Assistant, PyMessage>(module, class_name(Role::assistant))
      .def(
          "__init__",
          [](Assistant* self, Text content, OptionalText reasoning, std::optional<std::vector<ToolCall>> calls,
             bool prefix) {
            Message message = message_of(Role::assistant, std::move(content));
            message.reasoning = std::move(reasoning);
            message.calls = std::move(calls);
            message.prefix = prefix;
            new (self) Assistant{{std::move(message)}};
          },
          "content"_a, "reasoning_content"_a = nb::none(), "tool_calls"_a = nb::none(), "prefix"_a = false);

  using Tool = MessageOf<Role::tool>;
  nb::class_<Tool, PyMessage>(module, class_name(Role::tool))
      .def(
          "__init__",
          [](Tool* self, Text content, OptionalText call_id, const Images& images, const OptionalText& image_token) {
            Message message = message_of(Role::tool, std::move(content), images, image_token);
            message.call_id = std::move(call_id);
            new (self) Tool{{std::move(message)}};
          },
          "content"_a, "tool_call_id"_a = nb::none(), "image_sources"_a = nb::none(), nb::kw_only(),
          "image_token"_a = nb::none());

  using Reminder = MessageOf<Role::latest_reminder>;
  nb::class_<Reminder, PyMessage>(module, class_name(Role::latest_reminder))
      .def(
          "__init__",
          [](Reminder* self, Text content) {
            new (self) Reminder{{message_of(Role::latest_reminder, std::move(content))}};
          },
          "content"_a);
}

// -- conversation
// -------------------------------------------------------------------------------------------------------

ResponseFormat format_of(std::string_view format, nb::handle schema, OptionalText regex) {
  ResponseFormat out;
  out.kind = read_word("response_format", format, {ResponseFormat::Kind::text, ResponseFormat::Kind::json_object});
  const bool has_schema = !schema.is_none();
  if (has_schema && regex) raise_value_error("response_schema and response_regex cannot be combined");
  if ((has_schema || regex) && out.kind == ResponseFormat::Kind::json_object) {
    raise_value_error("response_format \"json_object\" cannot be combined with response_schema or response_regex");
  }
  if (has_schema) {
    out.kind = ResponseFormat::Kind::json_schema;
    out.schema = json_of(schema);
  }
  if (regex) {
    out.kind = ResponseFormat::Kind::regex;
    out.regex = std::move(*regex);
  }
  return out;
}

std::string describe(const Conversation& self) {
  return "Conversation(messages=" + std::to_string(self.messages.size()) +
         ", thinking_mode=" + (self.thinking ? "True" : "False") + ", tools=" + std::to_string(self.tools.size()) +
         ", tool_choice=" + quoted(name_of(self.tool_choice)) +
         ", reasoning_effort=" + (self.effort ? quoted(name_of(*self.effort)) : "None") +
         ", response_format=" + quoted(name_of(self.format.kind)) + ")";
}

void bind_conversation_class(nb::module_& module) {
  nb::class_<Conversation>(module, "Conversation")
      .def(
          "__init__",
          [](Conversation* self, const std::optional<std::vector<PyMessage>>& messages, bool thinking,
             std::optional<std::vector<ToolDefinition>> tools, std::string_view tool_choice,
             std::optional<std::string_view> effort, std::string_view format, nb::handle schema, OptionalText regex) {
            using enum recipe::ToolChoice;
            Conversation made;
            if (messages) {
              for (const PyMessage& one : *messages) made.messages.push_back(one.message);
            }
            made.thinking = thinking;
            if (tools) made.tools = std::move(*tools);
            made.tool_choice = read_word("tool_choice", tool_choice, {automatic, none, required});
            if (effort) {
              using enum recipe::Effort;
              made.effort = read_word("reasoning_effort", *effort, {low, high, xhigh, max});
            }
            made.format = format_of(format, schema, std::move(regex));
            new (self) Conversation(std::move(made));
          },
          "messages"_a = nb::none(), nb::kw_only(), "thinking_mode"_a = true, "tools"_a = nb::none(),
          "tool_choice"_a = "auto", "reasoning_effort"_a = nb::none(), "response_format"_a = "text",
          "response_schema"_a = nb::none(), "response_regex"_a = nb::none())
      .def_prop_ro("messages", [](const Conversation& self) { return objects_of(self.messages); })
      .def_ro("thinking_mode", &Conversation::thinking)
      .def_prop_ro("tools", [](const Conversation& self) { return self.tools; })
      .def_prop_ro("tool_choice", [](const Conversation& self) { return name_of(self.tool_choice); })
      .def_prop_ro("reasoning_effort",
                   [](const Conversation& self) -> std::optional<std::string> {
                     if (!self.effort) return {};
                     return name_of(*self.effort);
                   })
      .def_prop_ro("reasoning_effort_number", [](const Conversation& self) { return self.effort_number; })
      .def_prop_ro("response_format", [](const Conversation& self) { return name_of(self.format.kind); })
      .def_prop_ro("response_schema",
                   [](const Conversation& self) -> nb::object {
                     if (self.format.kind != ResponseFormat::Kind::json_schema) return nb::none();
                     return object_of(self.format.schema);
                   })
      .def_prop_ro("response_regex",
                   [](const Conversation& self) {
                     return text_when(self.format.kind == ResponseFormat::Kind::regex, self.format.regex);
                   })
      .def("__repr__", [](const Conversation& self) { return describe(self); });
}

}  // namespace

nb::list objects_of(const std::vector<ImageSource>& sources) {
  nb::list out;
  for (const ImageSource& source : sources) {
    switch (source.kind) {
      case Kind::data_url: out.append(ImageSourceOf<Kind::data_url>{{source}}); break;
      case Kind::url: out.append(ImageSourceOf<Kind::url>{{source}}); break;
      case Kind::bytes: out.append(ImageSourceOf<Kind::bytes>{{source}}); break;
    }
  }
  return out;
}

nb::list objects_of(const std::vector<Message>& messages) {
  nb::list out;
  for (const Message& message : messages) {
    switch (message.role) {
      case Role::system: out.append(object_of_role<Role::system>(message)); break;
      case Role::user: out.append(object_of_role<Role::user>(message)); break;
      case Role::assistant: out.append(object_of_role<Role::assistant>(message)); break;
      case Role::tool: out.append(object_of_role<Role::tool>(message)); break;
      case Role::latest_reminder: out.append(object_of_role<Role::latest_reminder>(message)); break;
    }
  }
  return out;
}

void bind_conversation(nb::module_& module) {
  bind_image_sources(module);
  bind_tools(module);
  bind_messages(module);
  bind_conversation_class(module);
}

}  // namespace fathom::python
