// fathom/base/check_note.h
// What a thread is about, for whoever reads why it failed: "step=100 phase=4 (forward) sequences=3 rows=2054". A check
// that fails while a note stands says it; so can whoever catches what foreign code threw through it. Costs nanoseconds.
#pragma once
#include <string>

namespace fathom {

/// Stands from its construction to its end, on its thread; notes nest.
class CheckNote {
 public:
  /// `tell(about)` is called only when something failed, on this thread.
  CheckNote(std::string (*tell)(const void* about), const void* about);
  CheckNote(const CheckNote&) = delete;
  CheckNote& operator=(const CheckNote&) = delete;
  ~CheckNote();

 private:
  friend std::string check_notes();
  std::string (*tell_)(const void*);
  const void* about_;
  const CheckNote* around_;
  int exceptions_;
};

/// The notes that stand on this thread, outermost first, with blanks between; empty: none.
std::string check_notes();

/// The notes that exceptions of this thread went through since the last call, the outermost first; empty: none.
std::string take_unwound_notes();

}  // namespace fathom
