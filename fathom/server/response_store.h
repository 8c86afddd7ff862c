// fathom/server/response_store.h
// What `previous_response_id` of Responses refers to: the items of a conversation so far. Bounded: the oldest go first.
// In memory, or as one file a response in a folder, written beside its name and renamed by a thread of the store, so
// that a disk that is slow or full holds up no answer (a response that could not be written is lost and counted, as if
// it had been the oldest). A response belongs to the tenant that made it; for others it is not there. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/result.h"

namespace fathom {

struct ResponseStoreOptions {
  std::string folder = {};  // empty: in memory
  int64_t most_responses = 10'000;
  int64_t most_bytes = int64_t(256) << 20;
};

struct StoredResponse {
  std::string tenant;
  std::string input;     // JSON array of items that the answer was given to
  std::string response;  // JSON of the response object
};

class ResponseStore {
 public:
  /// Finds what is in the folder, oldest by time of last change, and removes what a process that was killed left half
  /// written. Errors: failed when it can neither be read nor made.
  static Result<std::unique_ptr<ResponseStore>> open(ResponseStoreOptions options);
  ~ResponseStore();  // writes what waits

  /// From its return on get() finds it. `id` consists of letters, digits, '_' and '-'.
  void put(const std::string& id, StoredResponse one);
  std::optional<StoredResponse> get(const std::string& id, std::string_view tenant);
  /// False: it was not there.
  bool remove(const std::string& id, std::string_view tenant);

  int64_t size() const;
  int64_t bytes() const;
  int64_t failures() const;  // that could not be written

 private:
  struct State;
  explicit ResponseStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom
