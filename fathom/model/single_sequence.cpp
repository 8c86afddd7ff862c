#include "fathom/model/single_sequence.h"

#include <algorithm>

#include "fathom/model/attention/cache_map.h"

namespace fathom {

SingleSequence::SingleSequence(Model& model, Queue& queue, CacheMemory memory, int32_t blocks)
    : model_(&model), queue_(&queue), memory_(std::move(memory)), pools_(blocks, 1) {
  check(reserve(pools_, cache_, int64_t(blocks) * kBlockTokens).ok(), "a fresh pool has all its blocks");
}

Result<SingleSequence> SingleSequence::open(Model& model, Queue& queue, const Memory& memory, int64_t context) {
  const auto blocks = int32_t(blocks_for(context));
  auto bytes = CacheMemory::allocate(memory, lay_out(model.page_specs()), blocks, 1);
  if (!bytes) return bytes.error();
  return SingleSequence(model, queue, std::move(*bytes), blocks);
}

void SingleSequence::begin(ReplayMode mode, int64_t length, std::optional<int64_t> kept_rows) {
  check(ids_.empty(), "begin() comes before the first token");
  replay_ = plan_replay(model_->replay_shape(), mode, length, 0, false, kept_rows);
}

std::vector<uint8_t> SingleSequence::snapshot() const {
  const ReplayShape shape = model_->replay_shape();
  const auto rings = encoder_rings(memory_.layout(), shape.encoder_layers);
  std::vector<uint8_t> out(size_t(memory_.window_bytes(rings, shape.window)));
  memory_.save_windows(rings, shape.window, cache_.slot, length(), out);
  return out;
}

void SingleSequence::begin_after_hit(ReplayMode mode, int64_t length, int64_t hit, std::optional<int64_t> snapshot_at,
                                     std::span<const uint8_t> snapshot) {
  check(hit <= this->length(), "a hit was fed before");
  const ReplayShape shape = model_->replay_shape();
  const PrefillPlan plan = plan_prefill(shape, mode, length, hit, snapshot_at);
  memory_.copy_slot(0, cache_.slot);  // the dummy's bytes are nobody's
  if (plan.restore_at) {
    const auto rings = encoder_rings(memory_.layout(), shape.encoder_layers);
    memory_.restore_windows(rings, shape.window, cache_.slot, *plan.restore_at, snapshot);
  }
  replay_ = plan.replay;
  ids_.resize(size_t(replay_.start));
}

void SingleSequence::mark_image(int64_t first, int64_t last) {
  image_.resize(size_t(std::max<int64_t>(last, int64_t(image_.size()))), 0);
  std::fill(image_.begin() + first, image_.begin() + last, uint8_t(1));
}

// `start`: where they come. Images must be marked as far as the tokens reach.
template <class Use>
void SingleSequence::with_batch(int64_t start, std::span<const int32_t> ids, std::span<const int64_t> logit_positions,
                                const Use& use) {
  const auto n = int64_t(ids.size());
  check(blocks_for(start + n) <= int64_t(cache_.blocks.size()), "tokens fit the sequence's context");
  const bool images = !image_.empty();
  std::vector<int64_t> positions(ids.size());
  std::vector<int32_t> sequence(ids.size(), 0), logit_rows;
  for (int64_t i = 0; i < n; ++i) positions[size_t(i)] = start + i;
  for (const int64_t p : logit_positions) logit_rows.push_back(int32_t(p - start));
  const int32_t begin[2] = {0, int32_t(n)};
  const int64_t back = model_->config().engram_max_ngram_size - 1;
  std::vector<int32_t> history(size_t(std::max<int64_t>(back, 1)), -1);
  for (int64_t i = 0; i < back && start - 1 - i >= 0; ++i) {
    const size_t p = size_t(start - 1 - i);
    history[size_t(i)] = images && image_[p] ? -1 : ids_[p];
  }

  Batch batch;
  batch.rows = {{positions.data(), {n}}, {sequence.data(), {n}}, {begin, {2}}};
  batch.ids = {ids.data(), {n}};
  if (images) batch.image = {image_.data() + start, {n}};
  batch.history = {history.data(), {1, back}};
  batch.blocks = {cache_.blocks.data(), {1, int64_t(cache_.blocks.size())}};
  batch.slots = {&cache_.slot, {1}};
  batch.replay = {&replay_, 1};
  batch.logit_rows = {logit_rows.data(), {int64_t(logit_rows.size())}};
  use(batch);
}

View<const float, 2> SingleSequence::feed(std::span<const int32_t> ids, std::span<const int64_t> logit_positions,
                                          const Trace* trace) {
  const int64_t start = length();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  if (!image_.empty()) image_.resize(std::max(ids_.size(), image_.size()), 0);
  View<const float, 2> logits;
  with_batch(start, ids, logit_positions,
             [&](const Batch& batch) { logits = model_->forward(*queue_, batch, memory_, trace); });
  return logits;
}

void SingleSequence::expect(int64_t tokens) {
  if (!image_.empty()) return;
  const std::vector<int32_t> ids(size_t(tokens), 0);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < tokens; ++i) positions.push_back(length() + i);
  with_batch(length(), ids, positions, [&](const Batch& batch) { model_->expect(*queue_, batch, memory_); });
}

void SingleSequence::take_back(int64_t length) {
  check(length <= this->length() && this->length() - length <= model_->replay_shape().backtrack,
        "no more rows are taken back than the rings can bear");
  ids_.resize(size_t(length));
}

template <class Use>
auto SingleSequence::with_draft_batch(int32_t newest, const Use& use) {
  const int64_t last = length() - 1;
  DraftBatch batch;
  batch.tokens = {&newest, {1}};
  batch.last = {&last, {1}};
  batch.slots = {&cache_.slot, {1}};
  batch.replay = {&replay_, 1};
  return use(batch);
}

Drafts SingleSequence::draft(int32_t newest) {
  return with_draft_batch(newest, [&](const DraftBatch& batch) { return model_->draft(*queue_, batch, memory_); });
}

DrawnDrafts SingleSequence::propose(int32_t newest, const DraftDraws& draws) {
  return with_draft_batch(newest,
                          [&](const DraftBatch& batch) { return model_->propose(*queue_, batch, draws, memory_); });
}

namespace {

// Page specs are found by their names here: these readers serve people and checks, not steps.
size_t spec_named(const CacheLayout& layout, const std::string& name) {
  for (size_t i = 0; i < layout.specs.size(); ++i) {
    if (layout.specs[i].name == name) return i;
  }
  check(false, "the cache has a page of that name");
  return 0;
}

std::vector<float> decoded(const Memory& memory, RowFormat format, const uint8_t* entry, int64_t channels) {
  std::vector<uint8_t> bytes(size_t(row_bytes(format, channels)));
  memory.copy(bytes.data(), entry, int64_t(bytes.size()));
  std::vector<float> out(static_cast<size_t>(channels));
  decode_row(format, bytes.data(), out);
  return out;
}

}  // namespace

std::vector<uint8_t> SingleSequence::bytes(AnyView rows) const {
  check(rows.row_stride == rows.cols, "rows that the model gave are dense");
  std::vector<uint8_t> out(size_t(bytes_of(rows.dtype, rows.rows * rows.cols)));
  memory_.memory().copy(out.data(), rows.data, int64_t(out.size()));
  return out;
}

std::vector<float> SingleSequence::window_row(int layer, int64_t position) const {
  const CacheFormats format = cache_formats(model_->config(), model_->numerics());
  const size_t spec = spec_named(memory_.layout(), "ring." + std::to_string(layer));
  const RingRegion ring = memory_.ring(spec, {&cache_.slot, {1}});
  return decoded(memory_.memory(), format.window, ring.entry(0, position), model_->config().head_dim);
}

std::vector<float> SingleSequence::latent_row(int layer, int64_t entry) const {
  const CacheFormats format = cache_formats(model_->config(), model_->numerics());
  const size_t spec = spec_named(memory_.layout(), "latent." + std::to_string(layer));
  const PagedRegion pages = memory_.paged(spec, {cache_.blocks.data(), {1, int64_t(cache_.blocks.size())}});
  return decoded(memory_.memory(), format.latent, pages.entry(0, entry), model_->config().head_dim);
}

std::vector<float> SingleSequence::key_row(int layer, int64_t entry) const {
  const CacheFormats format = cache_formats(model_->config(), model_->numerics());
  const size_t spec = spec_named(memory_.layout(), "index_keys." + std::to_string(layer));
  const PagedRegion pages = memory_.paged(spec, {cache_.blocks.data(), {1, int64_t(cache_.blocks.size())}});
  return decoded(memory_.memory(), format.key, pages.entry(0, entry), model_->config().index_head_dim);
}

}  // namespace fathom
