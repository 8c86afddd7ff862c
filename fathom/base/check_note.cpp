#include "fathom/base/check_note.h"

#include <exception>
#include <new>
#include <utility>

namespace fathom {
namespace {

thread_local const CheckNote* innermost = nullptr;
thread_local std::string unwound;

}  // namespace

CheckNote::CheckNote(std::string (*tell)(const void*), const void* about)
    : tell_(tell), about_(about), around_(innermost), exceptions_(std::uncaught_exceptions()) {
  innermost = this;
}

CheckNote::~CheckNote() {
  innermost = around_;
  if (std::uncaught_exceptions() <= exceptions_) return;
  try {
    const std::string text = tell_(about_);
    unwound = unwound.empty() ? text : text + " " + unwound;
  } catch (const std::bad_alloc&) {  // then without it
  }
}

std::string check_notes() {
  std::string all;
  for (const CheckNote* note = innermost; note != nullptr; note = note->around_) {
    const std::string text = note->tell_(note->about_);
    all = all.empty() ? text : text + " " + all;
  }
  return all;
}

std::string take_unwound_notes() { return std::exchange(unwound, {}); }

}  // namespace fathom
