#include "fathom/backend/operation_list.h"

namespace fathom {

std::vector<OperationEntry> list_operations(const Operations& table) {
  std::vector<OperationEntry> list;
  const auto add = [&](std::string_view name, auto function) {
    list.push_back({name, reinterpret_cast<void (*)()>(function)});
  };
  add("embed", table.embed);
  add("gather_rows", table.gather_rows);
  add("add_rows", table.add_rows);
  add("quantize_rows", table.quantize_rows);
  add("linear", table.linear);
  add("grouped_linear", table.grouped_linear);
  add("rms_norm", table.rms_norm);
  add("rope", table.rope);
  add("encode_rows", table.encode_rows);
  add("store_ring", table.store_ring);
  add("store_paged", table.store_paged);
  add("compress", table.compress);
  add("select_rows", table.select_rows);
  add("latent_attention", table.latent_attention);
  add("gate", table.gate);
  add("group_by_expert", table.group_by_expert);
  add("swiglu", table.swiglu);
  add("combine", table.combine);
  add("engram_hash", table.engram_hash);
  add("engram_gather", table.engram_gather);
  add("engram_mix", table.engram_mix);
  add("stream_mixes", table.stream_mixes);
  add("stream_collapse", table.stream_collapse);
  add("stream_spread", table.stream_spread);
  add("stream_mean", table.stream_mean);
  add("sample", table.sample);
  add("accept", table.accept);
  // An operation that is added to the table but not here would be invisible.
  static_assert(sizeof(Operations) == sizeof(table.name) + 27 * sizeof(void (*)()));
  return list;
}

}  // namespace fathom
