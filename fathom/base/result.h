// fathom/base/result.h
// One way to fail. `Result<T>` carries a value or an `Error` that a person can act on; it is [[nodiscard]], so a
// dropped error does not compile. What a user, a file, a peer or a full memory can cause is an Error; our own bugs
// abort in check().
#pragma once
#include <string>
#include <utility>
#include <variant>

#include "fathom/base/check.h"

namespace fathom {

/// What kind of failure it is. The program's exit code and the service's status follow from it (design/cli.md 1).
enum class ErrorCode {
  usage,          // an option or a request that makes no sense
  bad_input,      // a file or an address whose content does not fit
  corrupt,        // damaged bytes: truncated, overlapping, wrong checksum
  not_found,      // no such file, tensor, key
  out_of_range,   // an index or a length outside its limits
  out_of_memory,  // does not fit
  unsupported,    // this build or this machine cannot do it
  failed,         // work failed while running
  interrupted,    // somebody asked to stop
};

/// The stable lower-case word of a code, as printed by --json ("bad_input").
const char* name_of(ErrorCode code);

/// One failure. Printed as `<message> (<where>): <remedy>`; an empty part is left out.
struct Error {
  ErrorCode code = ErrorCode::failed;
  std::string message;  // what happened, with the value
  std::string where;    // option, file, tensor, JSON path
  std::string remedy;   // the limit or the choices, and what to do
};

/// The one line that people read, without the program's name in front.
std::string to_string(const Error& error);

/// A T or an Error. Access to the wrong side aborts: test `ok()` first.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    check(ok(), "Result::value() on an error");
    return std::get<0>(state_);
  }
  const T& value() const& {
    check(ok(), "Result::value() on an error");
    return std::get<0>(state_);
  }
  T&& value() && {
    check(ok(), "Result::value() on an error");
    return std::get<0>(std::move(state_));
  }
  const Error& error() const {
    check(!ok(), "Result::error() on a value");
    return std::get<1>(state_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    check(failed_, "Result::error() on success");
    return error_;
  }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace fathom
