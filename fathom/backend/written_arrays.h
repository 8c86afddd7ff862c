// fathom/backend/written_arrays.h
// What a call of an operation writes, as numbers: to compare two tables on the data of one call.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fathom/backend/backend.h"

namespace fathom {

/// One array that an operation writes, or reads and writes. Refers to the operation's memory, which the processor must
/// be able to read and write.
struct WrittenArray {
  std::vector<std::span<uint8_t>> rows;          // its bytes; of a row with scales they are a row of their own
  std::function<std::vector<double>()> numbers;  // its values now, codes times their scales
  bool choices = false;                          // ids, places and counts, which are right or wrong
};

std::vector<WrittenArray> written_by(const Embed& op);
std::vector<WrittenArray> written_by(const AddRows& op);
std::vector<WrittenArray> written_by(const QuantizeRows& op);
std::vector<WrittenArray> written_by(const Linear& op);
std::vector<WrittenArray> written_by(const GroupedLinear& op);
std::vector<WrittenArray> written_by(const RmsNorm& op);
std::vector<WrittenArray> written_by(const Rope& op);
std::vector<WrittenArray> written_by(const EncodeRows& op);
std::vector<WrittenArray> written_by(const Compress& op);
std::vector<WrittenArray> written_by(const SelectRows& op);
std::vector<WrittenArray> written_by(const LatentAttention& op);
std::vector<WrittenArray> written_by(const Gate& op);
std::vector<WrittenArray> written_by(const GroupByExpert& op);
std::vector<WrittenArray> written_by(const SwiGlu& op);
std::vector<WrittenArray> written_by(const Combine& op);
std::vector<WrittenArray> written_by(const NgramHash& op);
std::vector<WrittenArray> written_by(const EngramGather& op);
std::vector<WrittenArray> written_by(const EngramMix& op);
std::vector<WrittenArray> written_by(const StreamMixes& op);
std::vector<WrittenArray> written_by(const StreamCollapse& op);
std::vector<WrittenArray> written_by(const StreamSpread& op);
std::vector<WrittenArray> written_by(const StreamMean& op);
std::vector<WrittenArray> written_by(const Sample& op);

using Numbers = std::vector<std::vector<double>>;  // of each array

/// The largest error of any array. Of numbers: the largest difference over the largest magnitude of `want`; 1 at most,
/// and where one side alone is no number. Of choices: the share that differs.
double error_of(std::span<const WrittenArray> arrays, const Numbers& got, const Numbers& want);

/// The error of what `call` writes against what `definition` writes; each returns when it is done. Both are run once,
/// on the same data, and what is there before stays.
double error_of(std::span<const WrittenArray> arrays, const std::function<void()>& call,
                const std::function<void()>& definition);

/// The error of an entry of a table against its definition, on the data of `op`.
template <auto Entry, class Op>
double error_of_entry(const Operations& table, Queue& queue, const Op& op) {
  const auto call = [&] {
    (table.*Entry)(queue, op);
    queue.wait();
  };
  const auto definition = [&op] {
    Queue alone(1);
    (reference_operations().*Entry)(alone, op);
  };
  return error_of(written_by(op), call, definition);
}

}  // namespace fathom
