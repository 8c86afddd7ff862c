#include "python/src/json_object.h"

#include <cmath>
#include <string>

#include "python/src/errors.h"

namespace fathom::python {
namespace {

constexpr int kDepth = JsonLimits{}.depth;

Json integer(nb::handle value) {
  if (std::isinf(PyLong_AsDouble(value.ptr())) || PyErr_Occurred() != nullptr) throw nb::python_error();
  // int's own, as json.dumps does: a subclass may print itself as its name.
  const nb::object digits = nb::steal(PyNumber_ToBase(value.ptr(), 10));
  if (!digits.is_valid()) throw nb::python_error();
  Json json = Json::with_kind(Json::Kind::number);
  json.text = utf8_of(digits);
  return json;
}

Json decimal(double value) {
  if (std::isnan(value)) raise_value_error("NaN is not a finite JSON number");
  if (std::isinf(value)) raise_value_error("infinity is not a finite JSON number");
  Json json = Json::of(value);
  if (json.text.find_first_of(".eE") == std::string::npos) json.text += ".0";  // stays a float, as in json.dumps
  return json;
}

Json convert(nb::handle value, int depth) {
  PyObject* object = value.ptr();
  if (object == Py_None) return {};
  if (PyBool_Check(object)) return Json::of(object == Py_True);
  if (PyUnicode_Check(object)) return Json::of(utf8_of(value));
  if (PyLong_Check(object)) return integer(value);
  if (PyFloat_Check(object)) return decimal(PyFloat_AsDouble(object));
  if (!PyDict_Check(object) && !PyList_Check(object) && !PyTuple_Check(object)) {
    raise(PyExc_TypeError, std::string(utf8_of(value.type().attr("__name__"))) + " is not a JSON value");
  }
  if (depth == kDepth) raise_value_error("more than " + std::to_string(kDepth) + " levels of nesting");
  if (PyDict_Check(object)) {
    Json json = Json::object();
    json.fields.reserve(size_t(PyDict_Size(object)));
    PyObject *key = nullptr, *member = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &member) != 0;) {
      if (!PyUnicode_Check(key)) raise(PyExc_TypeError, "JSON object keys must be str");
      json.fields.emplace_back(utf8_of(key), convert(member, depth + 1));
    }
    return json;
  }
  Json json = Json::array();
  const bool list = PyList_Check(object);
  for (Py_ssize_t i = 0; i < (list ? PyList_Size(object) : PyTuple_Size(object)); ++i) {
    json.items.push_back(convert(list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i), depth + 1));
  }
  return json;
}

nb::object number(const std::string& text) {
  PyObject* out = text.find_first_of(".eE") == std::string::npos
                      ? PyLong_FromString(text.c_str(), nullptr, 10)
                      : PyFloat_FromString(nb::str(text.data(), text.size()).ptr());
  if (out == nullptr) throw nb::python_error();
  return nb::steal(out);
}

}  // namespace

std::string_view utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, size_t(size)};
}

Json json_of(nb::handle value) { return convert(value, 0); }

nb::object object_of(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null: break;
    case Json::Kind::boolean: return nb::bool_(value.boolean);
    case Json::Kind::number: return number(value.text);
    case Json::Kind::string: return nb::str(value.text.data(), value.text.size());
    case Json::Kind::array: {
      nb::list list;
      for (const Json& item : value.items) list.append(object_of(item));
      return list;
    }
    case Json::Kind::object: {
      nb::dict dict;
      for (const auto& [key, member] : value.fields) dict[nb::str(key.data(), key.size())] = object_of(member);
      return dict;
    }
  }
  return nb::none();
}

}  // namespace fathom::python
