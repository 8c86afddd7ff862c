// fathom/backend/kernel_cases/case_memory.h
// What the files of this folder share: memory that the cases own, and how a case is put together.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fathom/backend/kernel_cases.h"
#include "fathom/backend/owned_values.h"
#include "fathom/backend/written_arrays.h"

namespace fathom {

/// Owner of everything an operation points at. The first failure is kept; what is made after it is empty.
class CaseMemory {
 public:
  explicit CaseMemory(CaseSpace space) : space_(space) {}

  std::optional<Error> error;
  int64_t bytes = 0;         // of all tensors and encoded rows, not of numbers
  bool large_pages = false;  // of what is made from now on

  /// Zeros.
  uint8_t* raw(int64_t count);
  /// Random bytes; none of their pairs is a NaN or infinity of bf16, none of them one of E4M3.
  uint8_t* random(int64_t count);
  /// Values in [-1, 1): bf16 or f32, dense.
  AnyViewMut tensor(DType dtype, int64_t rows, int64_t cols);
  /// Activations as a product takes them: bf16, f32, or Q8 rows with their scales.
  Matrix rows(DType dtype, int64_t rows, int64_t cols);
  /// `count` encoded rows, one behind the other: random codes, scales about 1.
  uint8_t* encoded(RowFormat format, int64_t count, int64_t channels);
  /// Index and similar arrays.
  template <class T>
  View<T, 1> numbers(const std::vector<T>& values) {
    const auto count = int64_t(values.size());
    uint8_t* data = uncounted(count * int64_t(sizeof(T)));
    if (data != nullptr && count > 0) std::memcpy(data, values.data(), values.size() * sizeof(T));
    return {reinterpret_cast<T*>(data), {data != nullptr ? count : 0}};
  }
  template <class T>
  View<T, 2> numbers(const std::vector<T>& values, int64_t cols) {
    const View<T, 1> all = numbers(values);
    return {all.data, {cols > 0 ? all.shape[0] / cols : 0, cols}};
  }
  /// Counts as `bytes`: float arrays that an operation reads or writes.
  View<float, 2> floats(int64_t rows, int64_t cols);
  /// Where rows go in Q8.
  Q8Rows q8_rows(int64_t rows, int64_t cols);
  /// Rows at positions 5000, 5001, ...
  Turn turn(int64_t rows, int64_t pairs);
  RowSet row_set(const std::vector<std::pair<int64_t, int64_t>>& pieces);
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

 private:
  uint8_t* uncounted(int64_t count);

  CaseSpace space_;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// Copies of one weight matrix, one behind the other.
class WeightCopies {
 public:
  /// Copies of `all_bytes` together, `least` at least. `tile`: rows that share a scale of FP8. Errors: out_of_memory.
  static Result<std::shared_ptr<WeightCopies>> make(CaseSpace space, DType dtype, int64_t rows, int64_t cols,
                                                    int64_t all_bytes, bool large_pages, int64_t least = 1,
                                                    int tile = 32);
  int64_t count() const { return int64_t(copies_.size()); }
  int64_t bytes() const { return bytes_; }  // of one copy, scales included
  int64_t all_bytes() const { return bytes_ * count(); }
  const Matrix& at(int64_t i) const { return copies_[size_t(i % count())]; }

 private:
  Buffer memory_;
  std::vector<Matrix> copies_;
  int64_t bytes_ = 0;
};

/// "fp8" and so on: what the model's users call the formats.
const char* weights_name(DType dtype);
const char* weights_name(RowFormat format);
std::string size_name(int64_t a, int64_t b);  // "2304x5120"

/// `k` different numbers below `count`, rising; the same for the same seed.
std::vector<int32_t> choose(int64_t count, int64_t k, uint64_t seed);

using MakeRows = std::function<Result<KernelRun>(int64_t rows)>;
using OpenCase = std::function<Result<MakeRows>()>;

/// A case that keeps nothing from one number of rows to the next.
inline OpenCase opens(MakeRows make) {
  return [make = std::move(make)]() -> Result<MakeRows> { return make; };
}

/// What `Entry` of the table does with `op`, again and again; `change(op, i)` prepares call i (of any number).
template <auto Entry, class Op, class Change>
Result<KernelRun> repeats(std::shared_ptr<CaseMemory> memory, const KernelWork& work, Op op, Change change) {
  if (memory->error) return *memory->error;
  const auto error = [memory, op, change](const Operations& ops, Queue& queue) {
    Op first = op;
    change(first, 0);
    return error_of_entry<Entry>(ops, queue, first);
  };
  const auto call = [memory, op, change, next = int64_t(0)](const Operations& ops, Queue& queue) mutable {
    change(op, next++);
    (ops.*Entry)(queue, op);
  };
  return KernelRun{work, call, error};
}
template <auto Entry, class Op>
Result<KernelRun> repeats(std::shared_ptr<CaseMemory> memory, const KernelWork& work, Op op) {
  return repeats<Entry>(std::move(memory), work, op, [](Op&, int64_t) {});
}

/// The same, of an operation whose work its arrays tell.
template <auto Entry, class Op>
Result<KernelRun> repeats(std::shared_ptr<CaseMemory> memory, Op op) {
  if (memory->error) return *memory->error;
  const KernelWork work = WorkReader(Memory{})(op);
  return repeats<Entry>(std::move(memory), work, op, [](Op&, int64_t) {});
}

/// The work of one call as its arrays tell it, for a case in which caches hold what it reads beside activations:
/// copies or pasts of `footprint` bytes that calls take in turn. 0: no cache does.
template <class Op>
KernelWork work_of(const Op& op, int64_t footprint, bool large_pages) {
  KernelWork work = WorkReader(Memory{})(op);
  work.large_pages = large_pages;
  if (footprint == 0) return work;
  work.cache_bytes += std::exchange(work.memory_bytes, 0);
  work.cache_footprint += footprint;
  return work;
}

/// Work of an operation on activations only: `bytes` read and written, once each, and as many gone over again.
inline KernelWork on_activations(int64_t bytes, double operations) {
  return {.cache_bytes = bytes, .cache_footprint = bytes, .operations = operations};
}

struct CaseSizes {
  int64_t cold_bytes, warm_bytes;
  bool large_pages;  // of what no cache holds
  CaseSpace space = nullptr;
};
void add_product_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);
void add_expert_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);
void add_attention_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);
void add_row_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);
void add_stream_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);
void add_engram_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);

}  // namespace fathom
