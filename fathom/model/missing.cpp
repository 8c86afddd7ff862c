#include "fathom/model/missing.h"

namespace fathom {

Result<void> missing_operations(const Backend& backend) {
  const Operations& o = backend.ops;
  std::string missing;
  const auto need = [&](const char* name, bool present) {
    if (!present) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need("embed", o.embed);
  need("gather_rows", o.gather_rows);
  need("add_rows", o.add_rows);
  need("quantize_rows", o.quantize_rows);
  need("linear", o.linear);
  need("grouped_linear", o.grouped_linear);
  need("rms_norm", o.rms_norm);
  need("rope", o.rope);
  need("encode_rows", o.encode_rows);
  need("store_ring", o.store_ring);
  need("store_paged", o.store_paged);
  need("compress", o.compress);
  need("select_rows", o.select_rows);
  need("latent_attention", o.latent_attention);
  need("gate", o.gate);
  need("group_by_expert", o.group_by_expert);
  need("swiglu", o.swiglu);
  need("combine", o.combine);
  need("engram_hash", o.engram_hash);
  need("engram_gather", o.engram_gather);
  need("engram_mix", o.engram_mix);
  need("stream_mixes", o.stream_mixes);
  need("stream_collapse", o.stream_collapse);
  need("stream_spread", o.stream_spread);
  need("stream_mean", o.stream_mean);
  need("sample", o.sample);
  need("accept", o.accept);
  if (missing.empty()) return {};
  return Error{ErrorCode::unsupported, "the backend lacks operations that the model needs: " + missing,
               "--backend " + backend.name, "use --backend cpu"};
}

}  // namespace fathom
