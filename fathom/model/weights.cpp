#include "fathom/model/weights.h"

#include <algorithm>
#include <cstring>

#include "fathom/backend/copy_lane.h"
#include "fathom/model/initial_weights.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

// Memory of one kind that many tensors share: large allocations, filled from the front.
class Pile {
 public:
  using Allocate = Result<Buffer> (*)(const Memory& memory, int64_t bytes);
  Pile(Allocate allocate, const Memory& memory, std::vector<Buffer>& kept)
      : allocate_(allocate), memory_(memory), kept_(kept) {}

  /// The next `bytes` lie in one run.
  Result<void> reserve(int64_t bytes) {
    constexpr int64_t kLargePiece = int64_t(256) << 20;
    if (used_ + bytes <= capacity_) return {};
    auto piece = allocate_(memory_, std::max(bytes, kLargePiece));
    if (!piece) return piece.error();
    begin_ = piece->data();
    capacity_ = piece->bytes();
    used_ = 0;
    kept_.push_back(std::move(*piece));
    return {};
  }
  Result<uint8_t*> take(int64_t bytes) {
    if (auto reserved = reserve(padded_bytes(bytes)); !reserved) return reserved.error();
    uint8_t* at = begin_ + used_;
    used_ += padded_bytes(bytes);
    return at;
  }

 private:
  Allocate allocate_;
  const Memory& memory_;
  std::vector<Buffer>& kept_;
  uint8_t* begin_ = nullptr;
  int64_t capacity_ = 0, used_ = 0;
};

// Looks tensors up one after the other and remembers the first failure, so that binding reads like the list of
// spec/checkpoint.md 3.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelConfig& config, const Memory& memory,
         const std::optional<WeightDrawing>& drawing, Weights& out)
      : checkpoint_(checkpoint),
        config_(config),
        memory_(memory),
        drawing_(drawing),
        out_(out),
        device_([](const Memory& of, int64_t bytes) { return of.allocate(bytes); }, memory, out.placed),
        ram_(allocate_host, memory, out.placed) {}

  /// What is bound from here on lives there.
  void place(Place place) { place_ = place; }
  /// The next tensors in RAM lie in one run of so many bytes.
  void keep_together(int64_t bytes) {
    if (place_ != Place::ram || error_) return;
    if (auto reserved = ram_.reserve(bytes); !reserved) fail(reserved.error());
  }

  AnyView dense(const std::string& name, DType dtype, int64_t rows, int64_t cols) {
    auto view = checkpoint_.tensor(name);
    if (!view) return fail(view.error());
    const int64_t found_cols = dtype == DType::f4_e2m1 ? view->cols * 2 : view->cols;
    const DType stored = dtype == DType::f4_e2m1 ? DType::i8 : dtype;
    if (view->dtype != stored || view->rows != rows || found_cols != cols) {
      return fail(Error{ErrorCode::bad_input,
                        std::string("tensor is ") + name_of(view->dtype) + " [" + std::to_string(view->rows) + ", " +
                            std::to_string(view->cols) + "]",
                        name,
                        std::string("expected ") + name_of(stored) + " of " + std::to_string(rows) + " x " +
                            std::to_string(cols) + " elements"});
    }
    return {placed(name, *view), dtype, rows, cols};
  }
  AnyView norm(const std::string& name, int64_t channels) { return dense(name + ".weight", DType::bf16, 1, channels); }
  View<const float, 1> floats(const std::string& name, int64_t count) {
    const AnyView view = dense(name, DType::f32, 1, count);
    return {reinterpret_cast<const float*>(view.data), {count}};
  }
  Matrix bf16(const std::string& name, int64_t rows, int64_t cols) {
    return Matrix(dense(name + ".weight", DType::bf16, rows, cols));
  }
  Matrix fp8(const std::string& name, int64_t rows, int64_t cols) {
    return Matrix(dense(name + ".weight", DType::f8_e4m3, rows, cols),
                  dense(name + ".scale", DType::f8_e8m0, (rows + 31) / 32, cols / 32), 32);
  }
  Matrix fp4(const std::string& name, int64_t rows, int64_t cols) {
    return Matrix(dense(name + ".weight", DType::f4_e2m1, rows, cols),
                  dense(name + ".scale", DType::f8_e8m0, rows, cols / 32), 1);
  }
  Matrix fp8_rows(const std::string& name, int64_t rows, int64_t cols) {
    return Matrix(dense(name + ".weight", DType::f8_e4m3, rows, cols),
                  dense(name + ".scale", DType::f8_e8m0, rows, cols / 32), 1);
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  AnyView fail(Error error) {
    if (!error_) error_ = std::move(error);
    return {};
  }
  // Where operations read the tensor: where it lies, or a copy on the device or in host memory.
  const uint8_t* placed(const std::string& name, const AnyView& view) {
    if (place_ == Place::disk || (place_ == Place::device && memory_.host_visible)) return aligned(view);
    const int64_t bytes = bytes_of(view.dtype, view.rows * view.cols);
    const auto taken = (place_ == Place::ram ? ram_ : device_).take(bytes);
    if (!taken) return fail(taken.error()).data;
    uint8_t* at = *taken;
    if (drawing_) {
      draw(checkpoint_.find(name)->spec, at);
    } else if (place_ == Place::ram) {
      std::memcpy(at, view.data, size_t(bytes));
    } else {
      memory_.copy(at, view.data, bytes);
    }
    return at;
  }
  // A device draws in its own memory, and copies bring it over the bus: stores of a kernel would cross one by one.
  uint8_t* drawn_at(uint8_t* at, int64_t bytes) {
    constexpr int64_t kMost = int64_t(64) << 20;
    if (place_ != Place::ram || bytes > kMost) return at;
    if (drawn_.data() == nullptr) {
      if (auto memory = memory_.allocate(kMost); memory.ok()) drawn_ = std::move(*memory);
    }
    return drawn_.data() != nullptr ? drawn_.data() : at;
  }
  void draw(const TensorSpec& tensor, uint8_t* at) {
    const auto random = random_weights_of(tensor, drawing_->seed);
    if (random && drawing_->draw != nullptr) {
      uint8_t* to = drawn_at(at, tensor.bytes());
      drawing_->draw(*random, to);
      if (to != at) memory_.copy(at, to, tensor.bytes());
      return;
    }
    std::vector<uint8_t> bytes(size_t(tensor.bytes()));
    const int64_t cols = tensor.shape[tensor.shape.rank() - 1];
    fill_initial_rows(config_, drawing_->seed, tensor, 0, tensor.shape.elements() / cols, bytes);
    memory_.copy(at, bytes.data(), tensor.bytes());
  }
  // The format does not promise alignment; elements wider than a byte are read through typed pointers.
  const uint8_t* aligned(const AnyView& view) {
    const auto size = uintptr_t(std::max(bits_of(view.dtype) / 8, 1));
    if (reinterpret_cast<uintptr_t>(view.data) % size == 0) return view.data;
    const int64_t bytes = bytes_of(view.dtype, view.rows * view.cols);
    auto& copy = out_.aligned.emplace_back(size_t(bytes + 7) / 8);
    std::memcpy(copy.data(), view.data, size_t(bytes));
    return reinterpret_cast<const uint8_t*>(copy.data());
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const Memory& memory_;
  const std::optional<WeightDrawing>& drawing_;
  Weights& out_;
  Pile device_, ram_;
  Place place_ = Place::device;  // of what is bound now
  Buffer drawn_;
  std::optional<Error> error_;
};

MixWeights bind_mix(Binder& bind, const ModelConfig& c, const std::string& prefix) {
  const int64_t mixes = (2 + c.hc_mult) * c.hc_mult;
  return {bind.dense(prefix + "_fn", DType::f32, mixes, c.hc_mult * c.hidden_size), bind.floats(prefix + "_scale", 3),
          bind.floats(prefix + "_base", mixes)};
}

void bind_attention(Binder& bind, const ModelConfig& c, const std::string& prefix, BlockWeights& out) {
  const int64_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim;
  out.sink = bind.floats(prefix + "attn_sink", c.num_attention_heads);
  out.wq_a = bind.fp8(prefix + "wq_a", c.q_lora_rank, h);
  out.q_norm = bind.norm(prefix + "q_norm", c.q_lora_rank);
  out.wq_b = bind.fp8(prefix + "wq_b", q, c.q_lora_rank);
  out.wkv = bind.fp8(prefix + "wkv", c.head_dim, h);
  out.kv_norm = bind.norm(prefix + "kv_norm", c.head_dim);
  out.wo_a = bind.fp8(prefix + "wo_a", c.o_groups * c.o_lora_rank, q / c.o_groups);
  out.wo_b = bind.fp8(prefix + "wo_b", h, c.o_groups * c.o_lora_rank);
}

void bind_experts(Binder& bind, const ModelConfig& c, const std::string& prefix, int experts, Place place,
                  BlockWeights& out) {
  const int64_t h = c.hidden_size, inner = c.moe_intermediate_size;
  out.gate = bind.dense(prefix + "gate.weight", DType::bf16, experts, h);
  out.gate_bias = bind.floats(prefix + "gate.bias", experts);
  out.gate_bias_image = bind.floats(prefix + "gate.bias_vl", experts);
  bind.place(place);
  for (int e = 0; e < experts; ++e) {
    if (!c.expert_share.holds(e, experts)) continue;
    bind.keep_together(expert_slot_bytes(c));
    const std::string expert = prefix + "experts." + std::to_string(e) + ".";
    out.w1.push_back(bind.fp4(expert + "w1", inner, h));
    out.w2.push_back(bind.fp4(expert + "w2", h, inner));
    out.w3.push_back(bind.fp4(expert + "w3", inner, h));
  }
  bind.place(Place::device);
  out.shared_w1 = bind.fp8(prefix + "shared_experts.w1", inner, h);
  out.shared_w2 = bind.fp8(prefix + "shared_experts.w2", h, inner);
  out.shared_w3 = bind.fp8(prefix + "shared_experts.w3", inner, h);
}

void bind_global_cache(Binder& bind, const ModelConfig& c, const std::string& prefix, int layer, const LayerPlan& plan,
                       BlockWeights& out) {
  const int64_t h = c.hidden_size;
  if (plan.kv_source == layer) {
    CompressorWeights w;
    w.wkv = bind.bf16(prefix + "compressor.wkv", c.head_dim, h);
    if (plan.ratio > 1) w.wgate = bind.bf16(prefix + "compressor.wgate", c.head_dim, h);
    w.norm = bind.norm(prefix + "compressor.norm", c.head_dim);
    out.compressor = w;
  }
  if (plan.index_source == layer) {
    IndexerWeights w;
    w.wq_b = bind.fp8(prefix + "indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank);
    w.weights_proj = bind.bf16(prefix + "indexer.weights_proj", c.index_n_heads, h);
    if (plan.kv_source == layer) {
      w.wk = bind.bf16(prefix + "indexer.wk", c.index_head_dim, c.head_dim);
      w.k_norm = bind.norm(prefix + "indexer.k_norm", c.index_head_dim);
    }
    out.indexer = w;
  }
}

EngramWeights bind_engram(Binder& bind, const ModelConfig& c, const std::string& prefix, int layer, Place place) {
  const auto at = std::find(c.engram_layer_ids.begin(), c.engram_layer_ids.end(), layer) - c.engram_layer_ids.begin();
  const int64_t rows = c.engram_num_embeddings[size_t(at)];
  EngramWeights w;
  bind.place(place);
  w.table = bind.fp8_rows(prefix + "embed", rows, c.engram_head_dim);
  bind.place(Place::device);
  w.wkv = bind.fp8(prefix + "wkv", (c.hc_mult + 1) * c.hidden_size, engram_lookups(c) * c.engram_head_dim);
  w.q_weight = bind.dense(prefix + "q_weight", DType::bf16, c.hc_mult, c.hidden_size);
  w.k_weight = bind.dense(prefix + "k_weight", DType::bf16, c.hc_mult, c.hidden_size);
  return w;
}

}  // namespace

Result<void> make_expert_map(const ModelConfig& config, const Memory& memory, Weights& weights) {
  if (config.expert_share.ranks <= 1) return {};
  for (BlockWeights& block : weights.blocks) {
    const int64_t experts = block.gate.rows, own = int64_t(block.w1.size());
    check(own > 0, "the rank has an expert of every block");
    auto table = memory.allocate(experts * int64_t(sizeof(int32_t)));
    if (!table) return table.error();
    std::vector<int32_t> map(static_cast<size_t>(experts));
    for (size_t e = 0; e < map.size(); ++e) map[e] = int32_t(own_expert(int64_t(e), own));
    memory.copy(table->data(), map.data(), table->bytes());
    block.expert_map = {reinterpret_cast<const int32_t*>(table->data()), {experts, 1}};
    weights.tables.push_back(std::move(*table));
  }
  return {};
}

Result<Weights> bind_weights(const Checkpoint& checkpoint, const ModelConfig& c, const Memory& memory,
                             const std::optional<WeightDrawing>& drawing, const Placement& placement) {
  Weights out;
  Binder bind(checkpoint, c, memory, drawing, out);
  out.embed = bind.dense("embed.weight", DType::bf16, c.vocab_size, c.hidden_size);
  out.head = bind.bf16("head", c.vocab_size, c.hidden_size);
  out.norm = bind.norm("norm", c.hidden_size);
  const auto plan = plan_layers(c);
  for (int layer = 0; layer < all_layers(c); ++layer) {
    const auto stage = draft_stage(c, layer);
    const std::string prefix = stage ? "mtp." + std::to_string(*stage) + "." : "layers." + std::to_string(layer) + ".";
    BlockWeights& block = out.blocks.emplace_back();
    block.attn_mix = bind_mix(bind, c, prefix + "hc_attn");
    block.ffn_mix = bind_mix(bind, c, prefix + "hc_ffn");
    block.attn_norm = bind.norm(prefix + "attn_norm", c.hidden_size);
    block.ffn_norm = bind.norm(prefix + "ffn_norm", c.hidden_size);
    bind_attention(bind, c, prefix + "attn.", block);
    bind_global_cache(bind, c, prefix + "attn.", layer, plan[size_t(layer)], block);
    bind_experts(bind, c, prefix + "ffn.", experts_of(c, layer), placement.experts, block);
    if (plan[size_t(layer)].engram) block.engram = bind_engram(bind, c, prefix + "engram.", layer, placement.engram);
  }
  if (c.num_nextn_predict_layers > 0) {
    const std::string last = "mtp." + std::to_string(c.num_nextn_predict_layers - 1) + ".";
    const int64_t h = c.hidden_size, rank = c.dspark_markov_rank;
    out.main_proj = bind.fp8("mtp.0.main_proj", h, h * int64_t(c.dspark_target_layer_ids.size()));
    out.main_norm = bind.norm("mtp.0.main_norm", h);
    out.draft_norm = bind.norm(last + "norm", h);
    out.markov_embed = bind.dense(last + "markov_head.embed.weight", DType::bf16, c.vocab_size, rank);
    out.markov_head = bind.bf16(last + "markov_head.head", c.vocab_size, rank);
    out.confidence = bind.bf16(last + "confidence_head.proj", 1, h + rank);
  }
  if (bind.error()) return *bind.error();
  return out;
}

}  // namespace fathom
