#include "fathom/backend/reference/reference.h"

namespace fathom {

Operations reference_operations() {
  Operations table;
  table.name = "reference";
  table.embed = reference::embed;
  table.gather_rows = reference::gather_rows;
  table.add_rows = reference::add_rows;
  table.quantize_rows = reference::quantize_rows;
  table.linear = reference::linear;
  table.grouped_linear = reference::grouped_linear;
  table.rms_norm = reference::rms_norm;
  table.rope = reference::rope;
  table.encode_rows = reference::encode_rows;
  table.store_ring = reference::store_ring;
  table.store_paged = reference::store_paged;
  table.compress = reference::compress;
  table.select_rows = reference::select_rows;
  table.latent_attention = reference::latent_attention;
  table.gate = reference::gate;
  table.group_by_expert = reference::group_by_expert;
  table.swiglu = reference::swiglu;
  table.combine = reference::combine;
  table.engram_hash = reference::engram_hash;
  table.engram_gather = reference::engram_gather;
  table.engram_mix = reference::engram_mix;
  table.stream_mixes = reference::stream_mixes;
  table.stream_collapse = reference::stream_collapse;
  table.stream_spread = reference::stream_spread;
  table.stream_mean = reference::stream_mean;
  table.sample = reference::sample;
  table.accept = reference::accept;
  return table;
}

}  // namespace fathom
