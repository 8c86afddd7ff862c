// fathom/backend/peer_access.h
// Which NVIDIA GPUs of this machine can read each other's memory, asked of NVIDIA's driver library when it is
// installed. Links nothing and needs no CUDA backend in the build: the library is opened at run time.
#pragma once
#include <string>
#include <vector>

namespace fathom {

struct PeerAccess {
  bool driver = false;                    // libcuda.so.1 is installed
  std::string problem;                    // why nothing is known although it is, e.g. "CUDA error 999"; empty: known
  std::vector<std::string> devices;       // names, in CUDA's order
  std::vector<std::vector<int>> reaches;  // [devices]: numbers of the others whose memory it can read, ascending
};

/// Asks the driver; does not create a context on any device. Cost: the driver's start, a few tenths of a second on a
/// machine with GPUs. CUDA_VISIBLE_DEVICES counts.
PeerAccess read_peer_access();

/// "no NVIDIA device ...", "every GPU reads the memory of every other", or who does not reach whom. Pure.
std::string to_string(const PeerAccess& access);

}  // namespace fathom
