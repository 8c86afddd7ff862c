// fathom/model/placement.h
// Where weights live: in the backend's own memory, in host memory that it reads over a bus, or in the checkpoint's
// files. Decided from sizes before anything is loaded; `fathom plan` and Model::load() ask the same functions. Source:
// spec/memory.md 3, 7; docs/decisions/0017.
//
// Where the processor runs the operations its memory is the only one: what is "on the device" lies where the checkpoint
// maps it.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/checkpoint/piece_stream.h"
#include "fathom/model/config.h"

namespace fathom {

enum class Place : uint8_t {
  device,  // read where operations run
  ram,     // page-locked host memory. Engram rows are read over the bus; experts are copied into slots of the device
  disk,    // mapped files. Engram rows are read by the processor; experts on a CPU as they are chosen
};
const char* name_of(Place place);  // "device", "ram", "disk"
std::optional<Place> place_of(std::string_view name);

struct Placement {
  Place experts = Place::device;  // the routed ones, draft stages' too
  Place engram = Place::device;   // tables
  /// Of experts that are not on the device: most bytes of them that stay where operations run. A limit of 0: what
  /// memory allows.
  StreamOptions stream = {};
};

/// Bytes by where they live, as bind_weights() lays them out: all tensors but the vision encoder's.
struct PlacedBytes {
  int64_t device = 0;  // without slots for experts
  int64_t ram = 0;
  int64_t disk = 0;
};
PlacedBytes placed_bytes(const ModelConfig& config, const Placement& placement);

/// A tensor's place in a device's or in host memory begins at a multiple of this.
inline constexpr int64_t kTensorAlignment = 256;
constexpr int64_t padded_bytes(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

/// Device memory of one expert, its three matrices one after the other: 18,800,640 for Flash.
int64_t expert_slot_bytes(const ModelConfig& config);
/// Routed experts of this rank, in backbone and draft stages.
int64_t expert_count(const ModelConfig& config);

/// Slots of device memory for experts in RAM: what placement.stream allows, or half of what is free beside the other
/// weights; the other half is for caches and scratch. At most one for each expert.
/// Errors: out_of_memory below two, which one expert that is read and one that comes need.
Result<int64_t> expert_slots(const ModelConfig& config, const Placement& placement, int64_t device_bytes);

/// Memory that weights may take.
struct Room {
  int64_t device_bytes = 0, ram_bytes = 0;  // free
};
/// Whether it all fits, slots included, with a sixteenth of each memory to spare. `where` is named in the error.
/// Errors: out_of_memory with the bytes needed and free and what to do.
Result<void> check_room(const ModelConfig& config, const Placement& placement, const Room& room,
                        const std::string& where);

}  // namespace fathom
