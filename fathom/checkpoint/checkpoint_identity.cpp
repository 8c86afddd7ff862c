// What tells two checkpoints apart without reading them: configuration, header of every tensor, and samples of the
// data. Half of the samples lie evenly over all bytes, so every large tensor gives some; half lie evenly over the list
// of tensors, so that small ones (norms, biases, scales) of every layer give some too.
// Format: docs/formats/prefix-keys.md.
#include <algorithm>
#include <numeric>

#include "fathom/base/sha256.h"
#include "fathom/checkpoint/checkpoint.h"

namespace fathom {
namespace {

constexpr int64_t kWhole = int64_t(1) << 20;  // a checkpoint of so many bytes is read whole
constexpr int64_t kSamples = 128;             // of each half; a page fault each on a cold disk
constexpr int64_t kSampleBytes = 256;         // at most: a sample ends with its tensor

enum class Part : uint8_t { root = 1, config = 2, tensor = 3, sample = 4 };  // a number never gets a new meaning

void put_u64(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out += char(uint8_t(value >> (8 * i)));
}

std::span<const uint8_t> bytes_of_text(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class Identity {
 public:
  void add(Part part, std::string_view bytes) {
    head_.assign(1, char(part));
    put_u64(head_, bytes.size());
    hash_.add(bytes_of_text(head_));
    hash_.add(bytes_of_text(bytes));
  }
  std::array<uint8_t, 32> digest() { return hash_.digest(); }

 private:
  std::string head_;
  Sha256 hash_;
};

}  // namespace

std::array<uint8_t, 32> Checkpoint::identity() const {
  Identity out;
  out.add(Part::root, "fathom checkpoint");
  out.add(Part::config, to_string(config_));
  std::string part;
  std::vector<int64_t> begin{0};  // of each tensor, when all lie one behind the other by name
  for (const TensorInfo& tensor : tensors_) {
    part = tensor.spec.name;
    part += '\0';
    part += name_of(tensor.spec.dtype);
    part += '\0';
    for (const int64_t dim : tensor.spec.shape.dims()) put_u64(part, uint64_t(dim));
    out.add(Part::tensor, part);
    begin.push_back(begin.back() + tensor.spec.bytes());
  }

  const auto sample = [&](int64_t position, int64_t bytes) {
    const size_t tensor = size_t(std::upper_bound(begin.begin(), begin.end(), position) - begin.begin()) - 1;
    const auto data = bytes_of(tensors_[tensor]).subspan(size_t(position - begin[tensor]));
    const auto taken = data.first(std::min(data.size(), size_t(bytes)));
    part.clear();
    put_u64(part, uint64_t(position));
    part.append(reinterpret_cast<const char*>(taken.data()), taken.size());
    out.add(Part::sample, part);
    return position + int64_t(taken.size());
  };
  const int64_t all = begin.back();
  if (all <= kWhole) {
    for (int64_t position = 0; position < all;) position = sample(position, all);
    return out.digest();
  }
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < kSamples; ++i) {
    // In two steps, for all * (2 i + 1) would not fit for very large files.
    positions.push_back(all / (2 * kSamples) * (2 * i + 1) + all % (2 * kSamples) * (2 * i + 1) / (2 * kSamples));
    const size_t tensor = tensors_.size() * size_t(2 * i + 1) / size_t(2 * kSamples);
    if (tensors_[tensor].spec.bytes() > 0) positions.push_back(std::midpoint(begin[tensor], begin[tensor + 1]));
  }
  std::sort(positions.begin(), positions.end());  // the order of the disk, nearly
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  for (const int64_t position : positions) sample(position, kSampleBytes);
  return out.digest();
}

}  // namespace fathom
