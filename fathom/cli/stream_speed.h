// fathom/cli/stream_speed.h
// What `fathom plan --experts disk` measures of this computer: products of the backend that will run, and experts read
// from the checkpoint's own files by the very stream that will read them.
#pragma once
#include <string>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/base/result.h"
#include "fathom/checkpoint/piece_stream.h"
#include "fathom/model/stream_plan.h"

namespace fathom::cli {

/// Sets fp4, fp8 and bf16 of `hardware`: products with weights of Flash's widths that no cache holds. About a second.
/// Errors: those of open_backend.
Result<void> measure_products(const std::string& backend, int threads, StreamHardware& hardware);

/// Bytes of pages a second, of pieces in random order that the page cache does not have. Pieces that are read leave it
/// again, so that the answer is the same the next time. About a second.
double measure_piece_reads(const std::vector<std::vector<MappedRange>>& pieces);

/// Bytes a second from host memory to the backend's own memory, by the copies that bring experts. A tenth of a
/// second. Errors: out_of_memory; those of open_copy_lane.
Result<double> measure_host_link(const Backend& backend);

}  // namespace fathom::cli
