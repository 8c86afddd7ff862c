// python/src/conversation.h
// The codec's messages and image sources as Python objects: one class for each role and kind, as in the wheel.
#pragma once
#include <vector>

#include "fathom/recipe/conversation.h"
#include "python/src/module.h"

namespace fathom::python {

struct PyImageSource {
  recipe::ImageSource source;
};
template <recipe::ImageSource::Kind>
struct ImageSourceOf : PyImageSource {};

struct PyMessage {
  recipe::Message message;
};
template <recipe::Message::Role>
struct MessageOf : PyMessage {};

/// Objects of the kinds' own classes.
nb::list objects_of(const std::vector<recipe::ImageSource>& sources);
nb::list objects_of(const std::vector<recipe::Message>& messages);

}  // namespace fathom::python
