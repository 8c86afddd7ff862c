#include "python/src/errors.h"

#include <string>

#include "fathom/recipe/request_error.h"

namespace fathom::python {
namespace {

PyObject* conversion_error = nullptr;  // lives as long as the interpreter

nb::str text(std::string_view value) { return nb::str(value.data(), value.size()); }

}  // namespace

void raise(PyObject* type, std::string_view message) {
  PyErr_SetObject(type, text(message).ptr());
  throw nb::python_error();
}

void raise_consumed(std::string_view what) { raise_runtime_error(std::string(what) + " has been consumed"); }

void raise_refusal(const Error& error, recipe::Api api, recipe::Policy policy) {
  PyObject* type = error.code == ErrorCode::bad_input ? PyExc_ValueError : conversion_error;
  nb::object exception = nb::handle(type)(text(error.message));
  exception.attr("status_code") = recipe::status_of(error);
  exception.attr("body") = text(recipe::error_body(error, api, policy));
  exception.attr("param") = error.where.empty() ? nb::object(nb::none()) : nb::object(text(error.where));
  PyErr_SetObject(type, exception.ptr());
  throw nb::python_error();
}

void bind_errors(nb::module_& module) {
  conversion_error = PyErr_NewExceptionWithDoc("fathom_recipe.ConversionError",
                                               "A request that cannot be converted: status_code, body, param.",
                                               PyExc_Exception, nullptr);
  if (conversion_error == nullptr) throw nb::python_error();
  module.attr("ConversionError") = nb::handle(conversion_error);
}

}  // namespace fathom::python
