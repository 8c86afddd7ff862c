// fathom/backend/recorder.h
// Steps that a device runs again and again without being told each operation: tables that the processor writes for
// them, and recordings of a queue's work (CUDA calls them graphs). Source: spec/engine.md.
//
// A recorded operation reads the addresses that it was given when it was recorded. So a step that is repeated writes
// its tables to the same places, and everything that differs from step to step lies in them.
#pragma once
#include <cstdint>
#include <memory>

#include "fathom/backend/backend.h"

namespace fathom {

/// Work of one queue, recorded.
class Recording {
 public:
  virtual ~Recording() = default;
  /// False once memory that it uses inside the backend has moved: then it must not run any more.
  virtual bool usable() const = 0;
  /// Queues it all. It reads tables as they were sent last.
  virtual void run() = 0;
};

struct Recorder {
  /// Memory that the processor writes and operations only read. On a device what is read of it is copied over, each
  /// byte once between two calls of rewrite_tables, when the first operation that reads it or something behind it is
  /// queued: so write tables from the front to the back, and each before the operations that need it.
  /// Errors: out_of_memory.
  Result<Buffer> (*allocate_tables)(int64_t bytes) = nullptr;
  /// The processor is going to write the tables of this allocation anew; the queue is done, or await_sent() has
  /// returned.
  void (*rewrite_tables)(const uint8_t* tables) = nullptr;
  /// From here to end() operations are recorded instead of run. They must have run before with the same shapes, so
  /// that no memory grows, and no view may lie in ordinary memory of the process. Tables are not copied by what is
  /// recorded: send_tables() does that each time.
  void (*begin)(Queue&) = nullptr;
  std::unique_ptr<Recording> (*end)(Queue&) = nullptr;
  /// Queues one copy of the first `bytes` of an allocation of tables, ahead of a recording that reads them.
  void (*send_tables)(Queue&, const uint8_t* tables, int64_t bytes) = nullptr;
  /// Returns when the last such copy has been made: then the processor may write the tables of the next recording while
  /// the device still works on this one.
  void (*await_sent)(const uint8_t* tables) = nullptr;
};

/// Null functions where operations finish before they return: tables are ordinary memory, and nothing is recorded.
Recorder recorder_of(const Backend& backend);

/// Of the cuda backend.
Recorder cuda_recorder();

/// A table of operations that do nothing: a step with it only writes its tables.
Operations silent_operations();

}  // namespace fathom
