#include "fathom/model/scratch.h"

#include <algorithm>

namespace fathom {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmallestChunk = int64_t(1) << 20;

}  // namespace

int64_t Scratch::capacity_bytes() const {
  int64_t sum = 0;
  for (const Buffer& chunk : chunks_) sum += chunk.bytes();
  return sum;
}

void Scratch::reset() {
  if (chunks_.size() > 1) {
    const int64_t all = capacity_bytes();
    chunks_.clear();
    auto chunk = memory_.allocate(all);
    check(chunk.ok(), "scratch that was just freed can be had again");
    chunks_.push_back(std::move(*chunk));
    ++moves_;
  }
  if (rewrite_ != nullptr) {
    for (const Buffer& chunk : chunks_) rewrite_(chunk.data());
  }
  chunk_ = 0;
  used_ = 0;
}

uint8_t* Scratch::bytes(int64_t count) {
  const int64_t padded = (std::max<int64_t>(count, 1) + kAlignment - 1) / kAlignment * kAlignment;
  while (chunk_ < chunks_.size() && used_ + padded > chunks_[chunk_].bytes()) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    // Doubling keeps the number of chunks small while the first large batch finds out how much it needs.
    auto chunk = memory_.allocate(std::max({padded, kSmallestChunk, capacity_bytes()}));
    check(chunk.ok(), "no memory for the scratch of a step: lower --step-rows");
    chunks_.push_back(std::move(*chunk));
    ++moves_;
    used_ = 0;
  }
  uint8_t* at = chunks_[chunk_].data() + used_;
  used_ += padded;
  return at;
}

}  // namespace fathom
