#include "fathom/model/moe/expert_slots.h"

#include <algorithm>

#include "fathom/base/check.h"

namespace fathom {

int64_t wave_size(int64_t missing, int64_t slots) {
  return std::clamp<int64_t>((missing + 7) / 8, std::min<int64_t>(4, slots / 2), slots / 2);
}

Result<std::unique_ptr<ExpertSlots>> ExpertSlots::open(const Memory& memory, std::unique_ptr<CopyLane> lane,
                                                       std::vector<const uint8_t*> pieces, int64_t piece_bytes,
                                                       int64_t slots) {
  check(slots >= 2, "one slot is read while another is filled");
  auto taken = memory.allocate(slots * piece_bytes);
  if (!taken) return taken.error();
  // The lane's copies are ordered with nothing: what fills fresh memory, and what drew the weights, is done first.
  uint8_t first = 0;
  memory.copy(&first, taken->data(), 1);
  return std::unique_ptr<ExpertSlots>(
      new ExpertSlots(std::move(*taken), std::move(lane), std::move(pieces), piece_bytes, slots));
}

ExpertSlots::ExpertSlots(Buffer memory, std::unique_ptr<CopyLane> lane, std::vector<const uint8_t*> pieces,
                         int64_t piece_bytes, int64_t slots)
    : memory_(std::move(memory)),
      lane_(std::move(lane)),
      piece_bytes_(piece_bytes),
      pieces_(pieces.size()),
      slots_(size_t(slots)),
      set_(std::vector<int64_t>(pieces.size(), piece_bytes), slots * piece_bytes) {
  for (size_t i = 0; i < pieces.size(); ++i) pieces_[i].bytes = pieces[i];
  for (int64_t slot = slots; slot > 0; --slot) free_.push_back(int32_t(slot - 1));
  counts_.over_bus = true;
  counts_.limit_bytes = slots * piece_bytes;
  publish();
}

// Holds the piece and, unless it is there, has it copied. False: no room.
bool ExpertSlots::admit(int32_t number) {
  evicted_.clear();
  const auto answer = set_.use(number, evicted_);
  if (answer == ResidentSet::Answer::full) return false;
  if (answer == ResidentSet::Answer::resident) return true;
  for (const int32_t old : evicted_) {
    free_.push_back(pieces_[size_t(old)].slot);
    pieces_[size_t(old)].slot = -1;
  }
  counts_.evictions += int64_t(evicted_.size());
  Piece& piece = pieces_[size_t(number)];
  check(!free_.empty(), "there are as many slots as the set may hold");
  piece.slot = free_.back();
  free_.pop_back();
  piece.copy = lane_->copy(memory_.data() + piece.slot * piece_bytes_, piece.bytes, piece_bytes_,
                           slots_[size_t(piece.slot)].point);
  counts_.loaded_bytes += piece_bytes_;
  return true;
}

void ExpertSlots::admit_pending() {
  while (admitted_ < int64_t(order_.size()) && admit(order_[size_t(admitted_)])) ++admitted_;
}

void ExpertSlots::drop_guesses() {
  for (const int32_t number : guessed_) {
    Piece& piece = pieces_[size_t(number)];
    if (!piece.wanted) set_.release(number);
    if (piece.wanted) counts_.guesses_used += piece.copied;
    piece.guessed = piece.copied = false;
  }
  guessed_.clear();
}

void ExpertSlots::want(std::span<const int32_t> wanted) {
  check(handed_ == int64_t(order_.size()), "what was wanted before has been handed out");
  order_.clear();
  for (const int32_t number : wanted) pieces_[size_t(number)].wanted = true;
  // Everything that is there is held before anything is copied, or the copies could drive it out. What a guess has
  // begun to bring comes behind what is there.
  std::vector<int32_t> coming;
  for (const int32_t number : wanted) {
    const Piece& piece = pieces_[size_t(number)];
    if (piece.slot < 0) continue;
    if (!piece.guessed) check(admit(number), "it is resident");
    (lane_->done(piece.copy) ? order_ : coming).push_back(number);
  }
  there_ = int64_t(order_.size());
  std::sort(coming.begin(), coming.end(),
            [&](int32_t a, int32_t b) { return pieces_[size_t(a)].copy < pieces_[size_t(b)].copy; });
  order_.insert(order_.end(), coming.begin(), coming.end());
  drop_guesses();
  admitted_ = int64_t(order_.size());
  for (const int32_t number : wanted) {
    if (pieces_[size_t(number)].slot < 0) order_.push_back(number);
  }
  admit_pending();
  handed_ = 0;
  current_ = {};
  wave_ = wave_size(int64_t(order_.size()) - there_, int64_t(slots_.size()));
  counts_.uses += int64_t(order_.size());
  counts_.hits += there_;
  publish();
}

ExpertSlots::Wave ExpertSlots::next(Queue& queue) {
  check(current_.count == 0, "the wave before has been released");
  const auto all = int64_t(order_.size());
  if (handed_ == all) return {};
  current_.first = handed_;
  current_.count = handed_ < there_ ? there_ - handed_ : std::min(wave_, admitted_ - handed_);
  check(current_.count > 0, "everything else has been released");
  int64_t newest = 0;
  for (int64_t i = 0; i < current_.count; ++i) {
    newest = std::max(newest, pieces_[size_t(order_[size_t(handed_ + i)])].copy);
  }
  if (!lane_->done(newest)) {
    ++counts_.waits;
    lane_->await(queue, newest);
  }
  handed_ += current_.count;
  return current_;
}

const uint8_t* ExpertSlots::place(int32_t piece) const {
  return memory_.data() + pieces_[size_t(piece)].slot * piece_bytes_;
}

void ExpertSlots::release(Queue& queue) {
  const int64_t point = lane_->point(queue);
  for (int64_t i = 0; i < current_.count; ++i) {
    const int32_t number = order_[size_t(current_.first + i)];
    Piece& piece = pieces_[size_t(number)];
    slots_[size_t(piece.slot)].point = point;
    piece.wanted = false;
    set_.release(number);
  }
  current_ = {};
  admit_pending();
}

void ExpertSlots::expect(std::span<const int32_t> pieces, int64_t most_copies) {
  check(handed_ == int64_t(order_.size()), "guesses come while nothing is wanted");
  drop_guesses();
  for (const int32_t number : pieces) {
    Piece& piece = pieces_[size_t(number)];
    const bool missing = piece.slot < 0;
    if (missing && most_copies == 0) continue;
    if (!admit(number)) break;
    most_copies -= missing;
    counts_.guesses += missing;
    piece.guessed = true;
    piece.copied = missing;
    guessed_.push_back(number);
  }
  publish();
}

void ExpertSlots::publish() {
  const std::lock_guard lock(mutex_);
  shown_ = counts_;
  shown_.resident_bytes = set_.bytes();
}

StreamStatistics ExpertSlots::statistics() const {
  const std::lock_guard lock(mutex_);
  return shown_;
}

const uint8_t* expert_run(const BlockWeights& block, size_t expert) {
  const uint8_t* first = block.w1[expert].values.data;
  for (const Matrix* matrix : {&block.w1[expert], &block.w2[expert], &block.w3[expert]}) {
    first = std::min({first, matrix->values.data, matrix->scales.data});
  }
  return first;
}

Matrix in_slot(const Matrix& matrix, const uint8_t* run, const uint8_t* place) {
  Matrix out = matrix;
  out.values.data = place + (matrix.values.data - run);
  out.scales.data = place + (matrix.scales.data - run);
  return out;
}

Result<std::unique_ptr<ExpertSlots>> open_expert_slots(const Backend& backend, const ModelConfig& config, int64_t slots,
                                                       Weights& weights) {
  auto lane = open_copy_lane(backend);
  if (!lane) return lane.error();
  std::vector<const uint8_t*> pieces;
  for (BlockWeights& block : weights.blocks) {
    block.first_piece = int32_t(pieces.size());
    for (size_t e = 0; e < block.w1.size(); ++e) pieces.push_back(expert_run(block, e));
  }
  return ExpertSlots::open(backend.memory, std::move(*lane), std::move(pieces), expert_slot_bytes(config), slots);
}

}  // namespace fathom
