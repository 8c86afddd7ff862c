#include "fathom/recipe/schema/check_schema.h"

#include "fathom/base/json_pointer.h"
#include "fathom/recipe/python_json.h"
#include "fathom/recipe/schema/meta_schema.h"
#include "fathom/recipe/schema/references.h"

namespace fathom::recipe {
namespace {

using schema::Draft;
using schema::Fault;

// The JSON pointer of a value of the tree. Only asked for when something is wrong.
bool find_pointer(const Json& from, const Json* value, std::string& pointer) {
  if (&from == value) return true;
  const size_t length = pointer.size();
  for (size_t i = 0; i < from.items.size(); ++i) {
    pointer += '/' + std::to_string(i);
    if (find_pointer(from.items[i], value, pointer)) return true;
    pointer.resize(length);
  }
  for (const auto& [key, child] : from.fields) {
    pointer += '/' + pointer_step(key);
    if (find_pointer(child, value, pointer)) return true;
    pointer.resize(length);
  }
  return false;
}

SchemaFault described(const Fault& fault, const Json& schema) {
  SchemaFault out;
  if (!fault.bare) {
    if (fault.name) {
      append_json_string(out.message, *fault.name);
    } else {
      append_compact_json(out.message, *fault.value);
    }
  }
  out.message += fault.phrase;
  find_pointer(schema, fault.value, out.path);
  return out;
}

}  // namespace

std::optional<SchemaFault> find_schema_fault(const Json& schema) {
  Draft draft = Draft::d2020;
  if (const Json* named = schema.find("$schema"); named && named->is_string()) {
    const auto known = schema::draft_of(named->text);
    if (!known) {
      return SchemaFault{"unknown meta-schema '" + named->text + "': known are drafts 4, 6, 7, 2019-09 and 2020-12",
                         "/$schema"};
    }
    draft = *known;
  }
  if (const auto fault = schema::find_meta_fault(schema, draft)) return described(*fault, schema);
  if (const auto fault = schema::find_reference_fault(schema, draft)) return described(*fault, schema);
  return {};
}

}  // namespace fathom::recipe
