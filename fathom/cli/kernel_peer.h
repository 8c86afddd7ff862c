// fathom/cli/kernel_peer.h
// Another library beside ours in `fathom bench kernels --peers`: a program that is asked for one sample at a time, so
// that both sides take turns on the same machine. bench/peers/kernels/torch_side.py is one. It speaks lines of JSON:
//   at the start   {"peers": ["torch", "onednn"], "version": "torch 2.13.0"}
//   asked          {"op": "linear", "weights": "fp8", "rows": 1, "n": 2304, "k": 5120, "copies": 6, "threads": 2,
//                   "seconds": 0.01}
//   answers        {"us": {"torch": 812.5, "onednn": 640.1}}, each the mean of calls that take about `seconds`;
//                  a name that is left out has no such operation
// Operations are "linear", out[rows, n] = x[rows, k] . weight[n, k]^T with the weights in turn from `copies` of them;
// "grouped_linear", with "experts" of them and "chosen" of each row; "latent_attention", with "heads", "channels" and
// "keys". `weights` says how ours are stored. The end of its input ends it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/backend/kernel_cases.h"
#include "fathom/base/result.h"

namespace fathom::cli {

struct PeerWork {
  const KernelCase& kernel;  // whose sizes are told
  int64_t rows = 0, copies = 1;
  int threads = 1;
};

/// Owns the process; one thread at a time asks.
class KernelPeer {
 public:
  /// Runs `command` (words parted by blanks, no shell) and waits for its first line.
  /// Errors: failed when it cannot be run, ends, or says nothing for two minutes; bad_input when the line is another.
  static Result<KernelPeer> start(const std::string& command);
  KernelPeer(KernelPeer&& other) noexcept { *this = std::move(other); }
  KernelPeer& operator=(KernelPeer&& other) noexcept;
  KernelPeer(const KernelPeer&) = delete;
  /// Closes its input and waits for its end.
  ~KernelPeer();

  const std::vector<std::string>& names() const { return names_; }  // "torch"
  const std::string& version() const { return version_; }
  /// Microseconds of a call, one number a name, 0 where it has no such operation. Errors: as start.
  Result<std::vector<double>> sample(const PeerWork& work, double seconds);

 private:
  KernelPeer() = default;
  Result<std::string> read_line();
  Error broken(const std::string& what) const;

  std::string command_, version_, unread_;
  std::vector<std::string> names_;
  int process_ = -1, to_ = -1, from_ = -1;
};

}  // namespace fathom::cli
