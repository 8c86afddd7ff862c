// python/src/module.h
// The Python module fathom_recipe._native: the codec of fathom/recipe under the names of deepseek-recipe 0.2.0.
// Each bind_… adds the classes of one area; the order in module.cpp matters where a default argument is a bound value.
// What the names do stands in python/fathom_recipe/_native.pyi, what differs from the wheel in python/README.md.
#pragma once
#include <nanobind/nanobind.h>

namespace fathom::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_errors(nb::module_& module);
void bind_special_tokens(nb::module_& module);
void bind_conversation(nb::module_& module);
void bind_options(nb::module_& module);
void bind_requests(nb::module_& module);
void bind_prompts(nb::module_& module);
void bind_chunks(nb::module_& module);
void bind_answers(nb::module_& module);
void bind_images(nb::module_& module);

}  // namespace fathom::python
