// python/src/errors.h
// From the codec's Error to Python's exceptions. Everything here needs the GIL.
#pragma once
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/recipe/policy.h"
#include "python/src/module.h"

namespace fathom::python {

[[noreturn]] void raise(PyObject* type, std::string_view message);
[[noreturn]] inline void raise_value_error(std::string_view message) { raise(PyExc_ValueError, message); }
[[noreturn]] inline void raise_runtime_error(std::string_view message) { raise(PyExc_RuntimeError, message); }
/// What a converted request, a used generator or an accumulated chunk says when it is used again.
[[noreturn]] void raise_consumed(std::string_view what);

/// A refused request: ValueError at the parse stage (bad_input), else ConversionError. Both have the attributes
/// status_code, body (the JSON for the client under this policy) and param (the JSON path, or None).
[[noreturn]] void raise_refusal(const Error& error, recipe::Api api, recipe::Policy policy);

/// The value, or the refusal as an exception.
template <class T>
T accepted(Result<T>&& result, recipe::Api api, recipe::Policy policy) {
  if (!result) raise_refusal(result.error(), api, policy);
  return std::move(*result);
}

}  // namespace fathom::python
