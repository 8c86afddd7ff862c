#include "fathom/model/stream_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/base/philox.h"
#include "fathom/checkpoint/piece_stream.h"
#include "fathom/checkpoint/resident_set.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/moe/expert_stream.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

/// Parameters of one layer, or of what stands behind the layers, by the format that they are multiplied in.
struct Parameters {
  double fp8 = 0, bf16 = 0;
  void add(const TensorSpec& tensor) {
    if (tensor.dtype == DType::f8_e8m0 || tensor.shape.rank() < 2) return;  // scales, norms, biases
    (tensor.dtype == DType::f8_e4m3 ? fp8 : bf16) += double(tensor.shape.elements());
  }
};

struct Layers {
  std::vector<Parameters> others, shared;  // [layers]: all but experts; the shared expert
  Parameters head;                         // every row with logits
  Parameters features;                     // what rows leave to the draft stages' windows
  Parameters first_source;                 // of the first decoder layer, for all rows: what makes its cache entries
};

Layers layers_of(const ModelConfig& config) {
  Layers out;
  out.others.resize(size_t(config.num_hidden_layers));
  out.shared.resize(size_t(config.num_hidden_layers));
  const std::string source = "layers." + std::to_string(encoder_layers(config)) + ".attn.";
  for (const TensorSpec& tensor : tensor_list(config)) {
    const std::string_view name = tensor.name;
    const WeightGroup group = group_of(name);
    if (group == WeightGroup::head) out.head.add(tensor);
    if (group == WeightGroup::dspark &&
        (name.find(".main_proj.") != name.npos || name.find(".attn.wkv.") != name.npos)) {
      out.features.add(tensor);
    }
    if (!name.starts_with("layers.") || group == WeightGroup::routed_experts || group == WeightGroup::engram_tables) {
      continue;
    }
    size_t layer = 0;
    std::from_chars(name.data() + 7, name.data() + name.size(), layer);
    const bool makes_entries = name.starts_with(source + "compressor.") || name == source + "indexer.wk.weight";
    (makes_entries                          ? out.first_source
     : group == WeightGroup::shared_experts ? out.shared[layer]
                                            : out.others[layer])
        .add(tensor);
  }
  return out;
}

/// Plays steps, one layer after the other.
class Simulation {
 public:
  Simulation(const ModelConfig& config, const StreamHardware& hardware)
      : config_(config),
        hardware_(hardware),
        layers_(layers_of(config)),
        plan_(plan_layers(config)),
        experts_(config.n_routed_experts),
        piece_bytes_(hardware.piece_bytes > 0 ? hardware.piece_bytes : expert_page_bytes(config)),
        set_(std::vector<int64_t>(size_t(config.num_hidden_layers * experts_), piece_bytes_), hardware.limit_bytes),
        ready_(size_t(experts_)),
        order_(size_t(experts_)) {
    check(hardware.limit_bytes >= 2 * piece_bytes_, "the limit holds two experts");
    const double all = double(config.num_hidden_layers) * double(experts_) * double(piece_bytes_);
    const double cached = std::min(1.0, double(hardware.page_cache_bytes) / all);
    from_disk_ = 1 - cached;
    load_seconds_ =
        double(piece_bytes_) * (from_disk_ / hardware.disk_bytes_per_second + cached / hardware.cache_bytes_per_second);
    std::iota(order_.begin(), order_.end(), 0);
  }

  StreamPrediction counts;  // sums since they were last cleared
  int64_t pieces() const { return int64_t(config_.num_hidden_layers) * experts_; }

  /// `rows` through the encoder half, the last `decoder_rows` of them through the decoder half, `logit_rows` to the
  /// end; `context` tokens before the last row.
  void step(int64_t rows, int64_t decoder_rows, int64_t logit_rows, double context) {
    const double begin = now_;
    const int first = encoder_layers(config_), last = config_.num_hidden_layers - 1;
    const auto rows_at = [&](int layer) { return layer == last ? logit_rows : layer >= first ? decoder_rows : rows; };
    bool guessed = false;
    for (int layer = 0; layer <= last; ++layer) {
      if (layer == first) compute(layers_.first_source, rows);
      const int64_t here = rows_at(layer);
      const double at_start = now_;
      compute(layers_.others[size_t(layer)], here);
      now_ += double(here) * attention_seconds(layer, context);
      play_experts(layer, here, guessed ? at_start : -1);
      guessed = layer < last && takes_nearly_all(rows_at(layer + 1), config_.num_experts_per_tok, experts_);
    }
    compute(layers_.features, decoder_rows);
    compute(layers_.head, logit_rows);
    counts.seconds += now_ - begin;
  }

 private:
  void compute(const Parameters& parameters, int64_t rows) {
    if (rows == 0) return;
    now_ += hardware_.fp8.seconds(parameters.fp8, double(rows)) + hardware_.bf16.seconds(parameters.bf16, double(rows));
  }

  // Of one row: products with the rows that it reads, and the scores that select them.
  double attention_seconds(int layer, double context) const {
    const LayerPlan& row = plan_[size_t(layer)];
    double products = std::min(double(config_.sliding_window), context);
    double scores = 0;
    if (row.mode != LayerPlan::Mode::window_only) {
      const double entries = context / row.ratio;
      products += std::min(double(config_.index_topk), entries);
      if (row.mode != LayerPlan::Mode::reuse) scores = entries;
      const auto candidates = double(config_.candidate_topk_blocks * config_.candidate_block_size);
      if (row.in_candidates) scores = std::min(scores, candidates);
    }
    return hardware_.bf16.of_one() * (2 * products * double(config_.num_attention_heads * config_.head_dim) +
                                      scores * double(config_.index_n_heads * config_.index_head_dim));
  }

  uint32_t random() {
    if (drawn_ % 4 == 0) words_ = philox(0x5eed, {uint32_t(drawn_ / 4), uint32_t(drawn_ >> 34), 0, 0});
    return words_[drawn_++ % 4];
  }

  // Experts that `rows` rows choose among, and how many rows each has on average.
  void draw(int64_t rows) {
    const int k = config_.num_experts_per_tok;
    chosen_.clear();
    std::vector<bool> is(static_cast<size_t>(experts_));
    if (rows <= 64) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int i = 0; i < k; ++i) {
          std::swap(order_[size_t(i)], order_[size_t(i) + random() % (order_.size() - size_t(i))]);
          is[size_t(order_[size_t(i)])] = true;
        }
      }
    } else {
      const double missed = std::pow(1 - double(k) / double(experts_), double(rows));
      for (size_t e = 0; e < is.size(); ++e) is[e] = random() * 0x1p-32 >= missed;
    }
    for (size_t e = 0; e < is.size(); ++e) {
      if (is[e]) chosen_.push_back(int32_t(e));
    }
  }

  // Holds the expert; false: no room. The disk reads what was not there, one after the other.
  bool admit(int32_t base, int32_t expert) {
    evicted_.clear();
    const auto answer = set_.use(base + expert, evicted_);
    if (answer == ResidentSet::Answer::full) return false;
    if (answer == ResidentSet::Answer::admitted) {
      disk_free_ = std::max(disk_free_, now_) + load_seconds_;
      counts.disk_bytes += from_disk_ * double(piece_bytes_);
    }
    ready_[size_t(expert)] = answer == ResidentSet::Answer::resident ? now_ : disk_free_;
    return true;
  }

  // `guessed_at`: when the disk began with all experts of this layer; -1: not before the gate has chosen.
  void play_experts(int layer, int64_t rows, double guessed_at) {
    if (rows == 0) return;
    const auto base = int32_t(layer * experts_);
    std::vector<char> held(static_cast<size_t>(experts_));
    if (guessed_at >= 0) {
      const double gate = now_;
      now_ = guessed_at;
      for (int32_t e = 0; e < experts_ && admit(base, e); ++e) held[size_t(e)] = 1;
      now_ = gate;
    }
    draw(rows);
    for (const int32_t e : chosen_) held[size_t(e)] |= 2;
    counts.used += double(chosen_.size());
    std::vector<int32_t> waiting, pending;
    for (int32_t e = 0; e < experts_; ++e) {
      if (held[size_t(e)] == 1) set_.release(base + e);
      if (held[size_t(e)] == 3) waiting.push_back(e);
      if (held[size_t(e)] == 2 && set_.resident(base + e) && admit(base, e)) waiting.push_back(e), held[size_t(e)] = 3;
    }
    for (const int32_t e : waiting) counts.hit_ratio += ready_[size_t(e)] <= now_;
    for (int32_t e = 0; e < experts_; ++e) {
      if (held[size_t(e)] == 2) pending.push_back(e);
    }
    size_t next = 0;
    const auto admit_pending = [&] {
      for (; next < pending.size() && admit(base, pending[next]); ++next) waiting.push_back(pending[next]);
    };
    admit_pending();
    compute(layers_.shared[size_t(layer)], rows);
    const double each = double(rows) * config_.num_experts_per_tok / double(chosen_.size());
    const auto parameters = double(3 * config_.hidden_size * config_.moe_intermediate_size);
    for (size_t left = chosen_.size(); left > 0; --left) {
      const auto first = std::min_element(waiting.begin(), waiting.end(),
                                          [&](int32_t a, int32_t b) { return ready_[size_t(a)] < ready_[size_t(b)]; });
      const int32_t expert = *first;
      waiting.erase(first);
      const double wait = std::max(0.0, ready_[size_t(expert)] - now_);
      counts.wait_seconds += wait;
      now_ += wait + hardware_.fp4.seconds(parameters, each);
      set_.release(base + expert);
      admit_pending();
    }
  }

  const ModelConfig& config_;
  const StreamHardware& hardware_;
  Layers layers_;
  std::vector<LayerPlan> plan_;
  int64_t experts_, piece_bytes_;
  ResidentSet set_;
  double from_disk_ = 1, load_seconds_ = 0;
  double now_ = 0, disk_free_ = 0;
  std::vector<double> ready_;   // [experts] of the layer that is played
  std::vector<int32_t> order_;  // [experts] a permutation that draws shuffle
  std::vector<int32_t> chosen_, evicted_;
  uint64_t drawn_ = 0;
  std::array<uint32_t, 4> words_{};
};

StreamPrediction mean_of(StreamPrediction sums, double steps) {
  sums.hit_ratio /= std::max(sums.used, 1.0);
  for (double* value : {&sums.seconds, &sums.used, &sums.disk_bytes, &sums.wait_seconds}) *value /= steps;
  return sums;
}

}  // namespace

double ProductSpeed::seconds(double parameters, double rows) const {
  if (rows >= kRows.back()) return parameters * at.back() * rows / kRows.back();
  size_t i = 1;
  while (rows > kRows[i]) ++i;
  const double share = std::max(0.0, (rows - kRows[i - 1]) / (kRows[i] - kRows[i - 1]));
  return parameters * (at[i - 1] + share * (at[i] - at[i - 1]));
}

int64_t expert_page_bytes(const ModelConfig& config) {
  const int64_t bytes = expert_bytes(config);
  return bytes + (bytes >= PieceStream::kHugePieceBytes ? MappedFile::kHugePage : 4096);
}

StreamHardware stream_hardware(const Hardware& hardware) {
  StreamHardware out;
  const double devices = hardware.devices;
  const auto speed = [&](double bytes, double flops) {
    ProductSpeed product;
    for (size_t i = 0; i < product.at.size(); ++i) {
      product.at[i] = std::max(bytes / hardware.bytes_per_second, 2 * ProductSpeed::kRows[i] / flops) / devices;
    }
    return product;
  };
  out.fp4 = speed(0.5 + 1.0 / 32, hardware.flops_fp8);
  out.fp8 = speed(1, hardware.flops_fp8);
  out.bf16 = speed(2, hardware.flops_bf16);
  out.cache_bytes_per_second = devices * hardware.bytes_per_second / 2;  // entered, and left again
  return out;
}

StreamPrediction predict_streamed_decode(const ModelConfig& config, const StreamHardware& hardware, int64_t sequences,
                                         int64_t context) {
  Simulation simulation(config, hardware);
  const auto run = [&](int64_t uses) {  // until so many experts were used
    int64_t steps = 0;
    for (simulation.counts = {}; simulation.counts.used < double(uses) || steps < 8; ++steps) {
      simulation.step(sequences, sequences, sequences, double(context));
    }
    return steps;
  };
  run(4 * simulation.pieces());
  const int64_t steps = run(2 * simulation.pieces());
  return mean_of(simulation.counts, double(steps));
}

StreamPrediction predict_streamed_prefill(const ModelConfig& config, const StreamHardware& hardware, int64_t tokens,
                                          int64_t rows_kept, int64_t step_rows) {
  Simulation simulation(config, hardware);
  const auto prompt = [&] {
    for (int64_t done = 0; done < tokens;) {
      const int64_t rows = std::min(step_rows, tokens - done);
      done += rows;
      const int64_t kept = std::clamp<int64_t>(done - (tokens - rows_kept), 0, rows);
      simulation.step(rows, kept, done == tokens ? 1 : 0, double(done) - double(rows) / 2);
    }
  };
  for (int warm = 0; warm < 3; ++warm) prompt();
  simulation.counts = {};
  constexpr int kMeasured = 2;
  for (int i = 0; i < kMeasured; ++i) prompt();
  return mean_of(simulation.counts, kMeasured);
}

}  // namespace fathom
