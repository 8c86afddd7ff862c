// fathom/cli/hardware.h
// Machines that `fathom plan` knows: the files of bench/machines, which are compiled in, any file of that form, and
// this computer. Figures of data sheets give bounds; a file that says `measured = true` gives measured predictions.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "fathom/backend/backend.h"
#include "fathom/base/result.h"
#include "fathom/model/speed_plan.h"

namespace fathom::cli {

struct MachineFile {
  std::string_view name;  // "h200.toml"
  std::string_view text;
};
/// bench/machines, by name. Lives for ever.
std::span<const MachineFile> machine_files();

/// Errors: bad_input naming the key that is missing, unknown or of the wrong kind.
Result<Hardware> parse_hardware(std::string_view toml, const std::string& where);

/// "4xH200" or "H200": so many of a known device. Errors: usage with the known names.
Result<Hardware> named_hardware(const std::string& text);

/// This computer's device, and the bus to it: what is free of its memory, and rates that are measured (about a second).
/// Errors: out_of_memory, failed.
Result<Hardware> this_device(const Backend& backend);

/// This computer's processors and memory. Bandwidth is measured (about 0.1 s), arithmetic is the processor's bound.
Hardware this_machine(int threads);

}  // namespace fathom::cli
