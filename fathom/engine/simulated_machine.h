// fathom/engine/simulated_machine.h
// How long a step takes on a machine that is not here. A value of a few curves, read from a file (measured on a real
// machine) or made by the formulas of spec/memory.md for a machine whose bandwidth and arithmetic are known (a bound:
// nothing is faster, real kernels are slower). One scheduler drives the whole machine; its devices share experts and
// sequences evenly.
//
//   reading     = weights(all rows) + the caches of all decoding sequences      weights: by distinct experts
//   arithmetic  = sum of rows x what a row costs at its context
//   forward     = max(reading, arithmetic) when they overlap, else their sum    a roofline; measured curves add up
//   step        = forward + draft(sequences that draft) + step_ms
//
// Source: spec/memory.md 4 to 7; host times: spec/engine.md R-13.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/engine/cost_curve.h"
#include "fathom/model/speed_plan.h"

namespace fathom {

/// What depends on how many tokens lie before a row; milliseconds of the whole machine.
struct ContextCost {
  int64_t tokens = 0;
  double read_ms = 0;        // the cache of one sequence, once a decode step
  double row_ms = 0;         // arithmetic of a row of both halves
  double prompt_row_ms = 0;  // arithmetic of a row of the encoder half
  friend bool operator==(const ContextCost&, const ContextCost&) = default;
};

struct MachineCost {
  std::string name;
  std::string from = "bound";         // "measured", "scaled", "bound": as in speed_plan.h
  CostCurve weights;                  // rows -> ms; linear between points, and beyond the last by its last slope
  std::vector<ContextCost> contexts;  // rising tokens; linear between them, constant outside
  CostCurve draft;                    // sequences that draft -> ms
  double step_ms = 0;                 // of every step, on the device
  double host_ms = 0.2, host_sequence_ms = 0.001;  // planning and results of a step, and of each sequence in it
  bool overlaps = true;                            // reading and arithmetic
  int padded_to = 8;    // decode steps run as graphs of 1, 2, 4 and multiples of so many rows; 0: of any number
  int32_t blocks = 0;   // of 128 tokens that the caches have; 0: as many as are needed
  int sequences = 256;  // running at once
  int devices = 1;      // that share the work; what is said a device (rows of a step) counts so many times
  friend bool operator==(const MachineCost&, const MachineCost&) = default;
};

/// One step as far as its time goes.
struct SimulatedStep {
  int64_t decode_rows = 0, prompt_rows = 0, decoder_prompt_rows = 0;
  double read_ms = 0, row_ms = 0;  // of caches; of arithmetic
  int sequences = 0;               // that decode
  int64_t rows() const { return decode_rows + prompt_rows; }
};
void add_decode(SimulatedStep& work, const MachineCost& machine, int64_t context, int rows);
/// `decoder_rows` of the `rows` run the decoder half too.
void add_prompt(SimulatedStep& work, const MachineCost& machine, int64_t first, int rows, int decoder_rows);

/// Rows that the graph has which runs so many decode rows.
int padded_rows(const MachineCost& machine, int rows);
/// The forward pass. A step of decode rows alone pays for its padding.
double forward_ms(const MachineCost& machine, const SimulatedStep& work);
double draft_ms(const MachineCost& machine, int sequences);
double host_ms(const MachineCost& machine, int sequences);

/// Forward times of decode steps by rows, as the engine measures them at start: at short contexts (engine.md 7.3).
CostCurve start_curve(const MachineCost& machine, int most_rows);

/// The formulas of memory.md for a model on a machine: distinct experts for the weights, cache bytes and operations by
/// context, the draft stages. `blocks` and `sequences`: what fits beside the weights (Engram tables in host memory),
/// 256 sequences a device at most. Errors: out_of_memory when the weights do not fit.
Result<MachineCost> machine_cost(const ModelConfig& config, const Hardware& hardware);

/// docs/formats/machine-cost.md. Errors: bad_input naming the key.
Result<MachineCost> parse_machine_cost(std::string_view json, const std::string& where);
Json to_json(const MachineCost& machine);

}  // namespace fathom
