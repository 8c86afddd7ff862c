#include "fathom/model/placement.h"

#include <algorithm>

#include "fathom/model/layer_plan.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

constexpr const char* kNames[] = {"device", "ram", "disk"};

bool is_expert(const TensorSpec& tensor) { return tensor.name.find(".ffn.experts.") != std::string::npos; }

int64_t allowed(int64_t free) { return free / 16 * 15; }

Error no_room(int64_t needed, int64_t free, const char* memory, const std::string& where, std::string remedy) {
  return Error{ErrorCode::out_of_memory,
               "the weights take " + with_commas(needed) + " bytes, " + with_commas(free) + " bytes of " + memory +
                   " are free and 15/16 of them may hold weights",
               where, std::move(remedy)};
}

}  // namespace

const char* name_of(Place place) { return kNames[size_t(place)]; }

std::optional<Place> place_of(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return Place(i);
  }
  return {};
}

PlacedBytes placed_bytes(const ModelConfig& config, const Placement& placement) {
  PlacedBytes bytes;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const WeightGroup group = group_of(tensor.name);
    if (group == WeightGroup::vision) continue;
    Place place = Place::device;
    if (is_expert(tensor)) place = placement.experts;
    if (group == WeightGroup::engram_tables) place = placement.engram;
    const int64_t padded = padded_bytes(tensor.bytes());
    (place == Place::device ? bytes.device : place == Place::ram ? bytes.ram : bytes.disk) += padded;
  }
  return bytes;
}

int64_t expert_slot_bytes(const ModelConfig& config) {
  const int64_t weights = config.hidden_size * config.moe_intermediate_size;
  return 3 * (padded_bytes(weights / 2) + padded_bytes(weights / 32));
}

int64_t expert_count(const ModelConfig& config) {
  int64_t count = 0;
  for (int layer = 0; layer < all_layers(config); ++layer) {
    const int experts = experts_of(config, layer);
    for (int e = 0; e < experts; ++e) count += config.expert_share.holds(e, experts);
  }
  return count;
}

Result<int64_t> expert_slots(const ModelConfig& config, const Placement& placement, int64_t device_bytes) {
  const int64_t one = expert_slot_bytes(config), beside = device_bytes - placed_bytes(config, placement).device;
  const int64_t given = placement.stream.limit_bytes;
  const int64_t slots = std::min((given > 0 ? given : std::max<int64_t>(beside, 0) / 2) / one, expert_count(config));
  if (slots >= 2) return slots;
  return Error{ErrorCode::out_of_memory,
               with_commas(given > 0 ? given : std::max<int64_t>(beside, 0) / 2) +
                   " bytes of device memory for routed experts, of which one takes " + with_commas(one),
               "--resident-limit",
               "give at least two of them, " + with_commas(2 * one) +
                   " bytes; a step of one token wants those that it chooses in a layer"};
}

Result<void> check_room(const ModelConfig& config, const Placement& placement, const Room& room,
                        const std::string& where) {
  const PlacedBytes bytes = placed_bytes(config, placement);
  int64_t device = bytes.device;
  if (placement.experts == Place::ram) {
    const auto slots = expert_slots(config, placement, room.device_bytes);
    if (!slots && bytes.device <= allowed(room.device_bytes)) return slots.error();
    if (slots.ok()) device += *slots * expert_slot_bytes(config);
  }
  if (device > allowed(room.device_bytes)) {
    return no_room(device, room.device_bytes, "the device", where,
                   placement.experts == Place::device
                       ? "keep experts in host memory (--experts ram) or use fewer layers or experts, as in "
                         "synthetic:flash-slice,layers=4+1,experts=384; fathom plan says what fits"
                       : "lower --resident-limit, or use a model with fewer layers; fathom plan says what fits");
  }
  if (bytes.ram > allowed(room.ram_bytes)) {
    return no_room(bytes.ram, room.ram_bytes, "host memory", where,
                   placement.engram == Place::ram ? "leave Engram tables in their files (--engram disk), or use a "
                                                    "machine with more memory"
                                                  : "use a machine with more memory, or a model with fewer experts");
  }
  return {};
}

}  // namespace fathom
