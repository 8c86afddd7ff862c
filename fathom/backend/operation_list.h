// fathom/backend/operation_list.h
// The operations table as a list, for whoever shows, compares or times tables: `fathom doctor`, `fathom bench`.
#pragma once
#include <string_view>
#include <vector>

#include "fathom/backend/ops.h"

namespace fathom {

struct OperationEntry {
  std::string_view name;
  void (*function)() = nullptr;  // for comparison only; null: missing
};

/// In the order of Operations.
std::vector<OperationEntry> list_operations(const Operations& table);

/// Calls visit.operator()<&Operations::entry>("entry") for each of them, in that order.
template <class Visit>
void for_each_operation(const Visit& visit) {
  visit.template operator()<&Operations::embed>("embed");
  visit.template operator()<&Operations::gather_rows>("gather_rows");
  visit.template operator()<&Operations::add_rows>("add_rows");
  visit.template operator()<&Operations::quantize_rows>("quantize_rows");
  visit.template operator()<&Operations::linear>("linear");
  visit.template operator()<&Operations::grouped_linear>("grouped_linear");
  visit.template operator()<&Operations::rms_norm>("rms_norm");
  visit.template operator()<&Operations::rope>("rope");
  visit.template operator()<&Operations::encode_rows>("encode_rows");
  visit.template operator()<&Operations::store_ring>("store_ring");
  visit.template operator()<&Operations::store_paged>("store_paged");
  visit.template operator()<&Operations::compress>("compress");
  visit.template operator()<&Operations::select_rows>("select_rows");
  visit.template operator()<&Operations::latent_attention>("latent_attention");
  visit.template operator()<&Operations::gate>("gate");
  visit.template operator()<&Operations::group_by_expert>("group_by_expert");
  visit.template operator()<&Operations::swiglu>("swiglu");
  visit.template operator()<&Operations::combine>("combine");
  visit.template operator()<&Operations::engram_hash>("engram_hash");
  visit.template operator()<&Operations::engram_gather>("engram_gather");
  visit.template operator()<&Operations::engram_mix>("engram_mix");
  visit.template operator()<&Operations::stream_mixes>("stream_mixes");
  visit.template operator()<&Operations::stream_collapse>("stream_collapse");
  visit.template operator()<&Operations::stream_spread>("stream_spread");
  visit.template operator()<&Operations::stream_mean>("stream_mean");
  visit.template operator()<&Operations::sample>("sample");
  visit.template operator()<&Operations::accept>("accept");
  // An operation that is added to the table but not here would be invisible.
  static_assert(sizeof(Operations) == sizeof(Operations::name) + 27 * sizeof(void (*)()));
}

}  // namespace fathom
