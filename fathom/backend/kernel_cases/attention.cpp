// Reading the past: latent attention, index scores with their selection, and what makes cache entries.
#include <cmath>
#include <numeric>

#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {
namespace {

struct Attention {
  const char* model;
  int64_t heads, channels, window, top_k;
  int64_t index_heads, index_channels, top_blocks;
};
constexpr Attention kAttentions[] = {{"flash", 64, 512, 128, 512, 32, 128, 2048},
                                     {"miniature", 8, 64, 32, 64, 8, 64, 16}};
constexpr int64_t kPerBlock = 128;  // entries of a cache block
constexpr int64_t kStep = 7919;     // prime
constexpr int kBlockSize = 8;       // entries of a candidate block

/// Pages of one kind of entry, in blocks one behind the other; sequence s of a call begins at a block of its own.
struct Pages {
  PagedRegion region;
  int64_t blocks = 0;
};
Pages make_pages(CaseMemory& memory, RowFormat format, int64_t channels, int64_t entries) {
  Pages pages;
  pages.blocks = (entries + kPerBlock - 1) / kPerBlock;
  pages.region.entry_bytes = int(row_bytes(format, channels));
  pages.region.entries_per_block = int(kPerBlock);
  pages.region.block_stride = kPerBlock * pages.region.entry_bytes;
  pages.region.base = memory.encoded(format, pages.blocks * kPerBlock, channels);
  return pages;
}

// ---------------------------------------------------------------------------------------------------- latent attention
/// Decode: each row is a sequence of its own, with a full window in its ring and entries chosen from a long past.
struct AttentionPast {
  std::shared_ptr<CaseMemory> memory;
  Pages latents;
  RingRegion ring;
  int64_t slots = 0;
};

Result<KernelRun> attention_rows(CaseSpace space, const Attention& a, const AttentionPast& past, bool cold,
                                 int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(past.memory);
  const int64_t entries = past.latents.blocks * kPerBlock, position = entries - 1;
  LatentAttention op;
  op.heads = int(a.heads);
  op.queries = memory->tensor(DType::bf16, rows, a.heads * a.channels);
  op.out = memory->tensor(DType::bf16, rows, a.heads * a.channels);
  op.rows = memory->row_set(std::vector<std::pair<int64_t, int64_t>>(size_t(rows), {position, 1}));
  op.fresh_rows = memory->row_set(std::vector<std::pair<int64_t, int64_t>>(size_t(rows), {0, 0}));
  op.window_format = RowFormat::q8;
  op.ring = past.ring;
  op.window_begin = memory->numbers(std::vector<int64_t>(size_t(rows), position + 1 - a.window));
  op.window_end = memory->numbers(std::vector<int64_t>(size_t(rows), position + 1));
  op.entry_format = RowFormat::q4k;
  op.latents = past.latents.region;
  op.count = memory->numbers(std::vector<int32_t>(size_t(rows), int32_t(a.top_k)));
  op.sink = memory->numbers(std::vector<float>(size_t(a.heads), 0.0f));
  op.scale = 1 / std::sqrt(float(a.channels));
  std::vector<int32_t> list, order, slots;
  for (int64_t r = 0; r < rows; ++r) {
    const auto chosen = choose(entries, a.top_k, uint64_t(r));
    list.insert(list.end(), chosen.begin(), chosen.end());
  }
  op.entries = memory->numbers(list, a.top_k);
  const KernelWork work = work_of(op, cold ? 0 : past.memory->bytes, past.memory->large_pages);
  // From call to call the sequences' blocks lie elsewhere, and other slots are theirs: nothing comes again at once.
  for (int64_t b = 0; b < 2 * past.latents.blocks; ++b) order.push_back(int32_t(b % past.latents.blocks));
  for (int64_t i = 0; i < past.slots + rows; ++i) slots.push_back(int32_t(i * kStep % past.slots));
  const View<const int32_t, 1> all = memory->numbers(order), all_slots = memory->numbers(slots);
  const int64_t blocks = past.latents.blocks, count = past.slots;
  return repeats<&Operations::latent_attention>(
      memory, work, op, [all, all_slots, rows, blocks, count](LatentAttention& call, int64_t i) {
        call.latents.blocks = View<const int32_t, 2>(all.data + i * kStep % blocks, {rows, blocks}, {0, 1});
        call.ring.slots = View<const int32_t, 1>(all_slots.data + i * rows % count, {rows});
      });
}

KernelCase attention_case(const Attention& a, const CaseSizes& sizes) {
  KernelCase c{"latent_attention", "q4k+q8", size_name(a.heads, a.channels), a.model,
               std::to_string(a.window) + " + " + std::to_string(a.top_k) + " keys"};
  c.most_rows = 512;
  c.sizes = {{"heads", a.heads}, {"channels", a.channels}, {"keys", a.window + a.top_k}};
  const bool cold = c.model == "flash";
  c.open = [a, cold, space = sizes.space, large = sizes.large_pages,
            all = cold ? sizes.cold_bytes : sizes.warm_bytes / 4]() -> Result<MakeRows> {
    AttentionPast past;
    past.memory = std::make_shared<CaseMemory>(space);
    past.memory->large_pages = large;
    past.latents = make_pages(*past.memory, RowFormat::q4k, a.channels,
                              std::max(4 * a.top_k, all / row_bytes(RowFormat::q4k, a.channels)));
    past.ring.capacity = int(a.window + 6);
    past.ring.entry_bytes = int(row_bytes(RowFormat::q8, a.channels));
    past.ring.slot_stride = past.ring.capacity * past.ring.entry_bytes;
    past.slots = all / past.ring.slot_stride + 1;
    past.ring.base = past.memory->encoded(RowFormat::q8, past.slots * past.ring.capacity, a.channels);
    if (past.memory->error) return *past.memory->error;
    return MakeRows([a, past, cold, space](int64_t rows) { return attention_rows(space, a, past, cold, rows); });
  };
  return c;
}

// --------------------------------------------------------------------------------------------------------- index
// scores
enum class Blocks { none, write, read };

struct Index {
  Attention attention;
  int64_t keys;  // visible
  Blocks blocks;
  int64_t most_rows;
};

struct IndexPast {
  std::shared_ptr<CaseMemory> memory;
  Pages keys;
};

Result<KernelRun> index_rows(CaseSpace space, const Index& index, const IndexPast& past, bool cold, int64_t rows) {
  const Attention& a = index.attention;
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(past.memory);
  const int64_t row = row_bytes(RowFormat::q4i, a.index_channels);
  SelectRows op;
  op.rows = memory->row_set({{index.keys - rows, rows}});  // one sequence: its last rows
  op.queries = View<const uint8_t, 2>(memory->encoded(RowFormat::q4i, rows * a.index_heads, a.index_channels),
                                      {rows, a.index_heads * row});
  op.head_weights = memory->tensor(DType::bf16, rows, a.index_heads);
  op.weight_scale = 1 / std::sqrt(float(a.index_channels * a.index_heads));
  op.heads = int(a.index_heads);
  op.channels = int(a.index_channels);
  op.format = RowFormat::q4i;
  op.keys = past.keys.region;
  op.top_k = int(a.top_k);
  op.entries = memory->numbers(std::vector<int32_t>(size_t(rows * a.top_k)), a.top_k);
  op.count = memory->numbers(std::vector<int32_t>(size_t(rows)));
  int64_t scored = index.keys;
  if (index.blocks != Blocks::none) {
    op.block_size = kBlockSize;
    op.top_blocks = int(a.top_blocks);
    op.candidate_source = index.blocks == Blocks::write;
    std::vector<int32_t> blocks;
    for (int64_t r = 0; r < rows; ++r) {
      const auto chosen = choose(index.keys / kBlockSize, a.top_blocks, uint64_t(r));
      blocks.insert(blocks.end(), chosen.begin(), chosen.end());
    }
    op.blocks = memory->numbers(blocks, a.top_blocks);
    op.block_count = memory->numbers(std::vector<int32_t>(size_t(rows), int32_t(a.top_blocks)));
    if (!op.candidate_source) scored = a.top_blocks * kBlockSize;
  }
  // The rows of a sequence share a scan; candidates are each row's own.
  const int64_t read = scored * row * (index.blocks == Blocks::read ? rows : 1);
  KernelWork work = on_activations(memory->bytes + rows * 4 * a.top_k,
                                   2.0 * double(rows * scored) * double(a.index_heads * a.index_channels));
  (cold ? work.memory_bytes : work.cache_bytes) += read;
  if (!cold) work.cache_footprint += past.memory->bytes;
  work.large_pages = past.memory->large_pages;
  work.arithmetic = Arithmetic::int8;
  const int64_t needed = (index.keys + kPerBlock - 1) / kPerBlock;
  std::vector<int32_t> order(size_t(past.keys.blocks));
  std::iota(order.begin(), order.end(), 0);
  const View<int32_t, 1> all = memory->numbers(order);
  const int64_t places = past.keys.blocks / needed;
  return repeats<&Operations::select_rows>(memory, work, op, [all, needed, places](SelectRows& call, int64_t i) {
    call.keys.blocks = View<const int32_t, 2>(all.data + i % places * needed, {1, needed});
  });
}

KernelCase index_case(const Index& index, const CaseSizes& sizes) {
  const Attention& a = index.attention;
  KernelCase c{"select_rows", "q4i", size_name(a.index_heads, a.index_channels), a.model,
               std::to_string(index.keys) + " keys, top " + std::to_string(a.top_k)};
  if (index.blocks == Blocks::write) c.place += ", " + std::to_string(a.top_blocks) + " blocks";
  if (index.blocks == Blocks::read) c.place += " in " + std::to_string(a.top_blocks) + " blocks";
  c.most_rows = index.most_rows;
  const bool cold = c.model == "flash";
  c.open = [index, a, cold, sizes]() -> Result<MakeRows> {
    const int64_t row = row_bytes(RowFormat::q4i, a.index_channels);
    const int64_t own = (index.keys + kPerBlock - 1) / kPerBlock * kPerBlock;
    const int64_t copies = cold ? (sizes.cold_bytes + own * row - 1) / (own * row) : 1;
    IndexPast past;
    past.memory = std::make_shared<CaseMemory>(sizes.space);
    past.memory->large_pages = sizes.large_pages;
    past.keys = make_pages(*past.memory, RowFormat::q4i, a.index_channels, std::max<int64_t>(copies, 1) * own);
    if (past.memory->error) return *past.memory->error;
    return MakeRows(
        [index, past, cold, space = sizes.space](int64_t rows) { return index_rows(space, index, past, cold, rows); });
  };
  return c;
}

// ------------------------------------------------------------------------------------------------------- cache entries
struct Entry {
  const char* model;
  RowFormat format;
  int64_t heads, channels;
  const char* place;
  bool normed = false;
  int64_t turned = 0;  // channels of a head
};
constexpr Entry kEntries[] = {{"flash", RowFormat::q8, 1, 512, "window latent"},
                              {"flash", RowFormat::q4k, 1, 512, "latent"},
                              {"flash", RowFormat::q4i, 32, 128, "index queries"},
                              {"flash", RowFormat::q8, 1, 512, "window latent, normed and turned", true, 64},
                              {"flash", RowFormat::q4k, 1, 512, "latent, turned", false, 64},
                              {"flash", RowFormat::q4i, 32, 128, "index queries, turned", false, 64},
                              {"miniature", RowFormat::q8, 1, 64, "window latent"},
                              {"miniature", RowFormat::q4k, 1, 64, "latent"},
                              {"miniature", RowFormat::q4i, 8, 64, "index queries"},
                              {"miniature", RowFormat::q8, 1, 64, "window latent, normed and turned", true, 16},
                              {"miniature", RowFormat::q4k, 1, 64, "latent, turned", false, 16},
                              {"miniature", RowFormat::q4i, 8, 64, "index queries, turned", false, 16}};

Result<KernelRun> encode_rows(CaseSpace space, const Entry& e, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  const int64_t bytes = e.heads * row_bytes(e.format, e.channels);
  EncodeRows op;
  op.x = memory->tensor(DType::bf16, rows, e.heads * e.channels);
  op.heads = int(e.heads);
  op.format = e.format;
  op.out = View<uint8_t, 2>(memory->raw(rows * bytes), {rows, bytes});
  if (e.normed) op.norm = {memory->tensor(DType::bf16, 1, e.heads * e.channels), 1e-20f};
  if (e.turned > 0) op.turn = memory->turn(rows, e.turned / 2);
  return repeats<&Operations::encode_rows>(memory, op);
}

Result<KernelRun> compress_rows(CaseSpace space, int64_t channels, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  constexpr int kRatio = 2;
  std::vector<int32_t> complete;
  for (int64_t r = 1; r < rows; r += kRatio) complete.push_back(int32_t(r));
  if (rows == 1) complete.push_back(0);  // of a group that the step before began
  const auto groups = int64_t(complete.size());
  Compress op;
  op.rows = memory->row_set({{rows == 1 ? 1001 : 1000, rows}});
  op.projected = memory->floats(rows, 2 * channels);
  op.out = memory->tensor(DType::bf16, groups, channels);
  const int64_t moved = memory->bytes + (rows == 1 ? 8 * channels : 0);
  op.state.capacity = 7;
  op.state.entry_bytes = int(8 * channels);
  op.state.slot_stride = op.state.capacity * op.state.entry_bytes;
  op.state.base = memory->raw(op.state.slot_stride);
  op.state.slots = memory->numbers(std::vector<int32_t>{0});
  op.group_row = memory->numbers(complete);
  op.ratio = kRatio;
  // Two products and a sum, beside the exponentials.
  return repeats<&Operations::compress>(memory, on_activations(moved, 4.0 * double(groups * channels)), op);
}

}  // namespace

void add_attention_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes) {
  for (const Attention& a : kAttentions) cases.push_back(attention_case(a, sizes));
  const Attention &flash = kAttentions[0], &miniature = kAttentions[1];
  for (const Index& index : {Index{flash, 4096, Blocks::none, 512}, Index{flash, 131072, Blocks::none, 64},
                             Index{flash, 1048576, Blocks::none, 8}, Index{flash, 1048576, Blocks::write, 8},
                             Index{flash, 1048576, Blocks::read, 16}, Index{miniature, 640, Blocks::none, 512}}) {
    cases.push_back(index_case(index, sizes));
  }
  for (const Entry& e : kEntries) {
    KernelCase c{"encode_rows", weights_name(e.format), size_name(e.heads, e.channels), e.model, e.place};
    c.most_rows = 2048;
    c.open = opens([e, space = sizes.space](int64_t rows) { return encode_rows(space, e, rows); });
    cases.push_back(std::move(c));
  }
  for (const Attention& a : kAttentions) {
    KernelCase c{"compress", "", std::to_string(a.channels), a.model, "2 tokens a latent"};
    c.most_rows = 2048;
    c.open = opens(
        [channels = a.channels, space = sizes.space](int64_t rows) { return compress_rows(space, channels, rows); });
    cases.push_back(std::move(c));
  }
}

}  // namespace fathom
