#include <cstdlib>

#include "fathom/backend/backend.h"
#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/instruction_set.h"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/queue_limit.h"

namespace fathom {
namespace {

// The device, looked at once: the answer does not change while the process lives.
struct Device {
  cudaDeviceProp properties;
  cuda::InstructionSet instructions;
};

Result<Device> look() {
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return Error{ErrorCode::unsupported, "no NVIDIA GPU can be used: " + std::string(cudaGetErrorString(status)),
                 "--backend cuda", "install NVIDIA's driver 580 or newer (nvidia-smi shows it), or use --backend cpu"};
  }
  Device device;
  cuda::expect(cudaGetDeviceProperties(&device.properties, 0), "reading the GPU's properties");
  const auto& of = device.properties;
  const auto chosen = cuda::choose_instruction_set(of.name, {of.major, of.minor}, cuda::has_sm100_kernels());
  if (!chosen) return chosen.error();
  device.instructions = *chosen;
  return device;
}

const Result<Device>& device() {
  static const Result<Device> found = look();
  return found;
}

Result<std::unique_ptr<Queue>> open_queue(int) {
  if (!device()) return device().error();
  auto counters = cuda::allocate_device(cuda::DeviceQueue::kCounters * 4);
  if (!counters) return counters.error();
  cudaStream_t stream = nullptr;
  // Ordered with the default stream, whose copies (Memory::copy) come after everything queued here.
  if (const cudaError_t status = cudaStreamCreate(&stream); status != cudaSuccess) {
    return Error{ErrorCode::failed, std::string("cannot open a stream: ") + cudaGetErrorString(status),
                 "--backend cuda", "see whether another program fills the GPU (nvidia-smi)"};
  }
  return std::unique_ptr<Queue>(new cuda::DeviceQueue(stream, std::move(*counters), device()->instructions));
}

void wait_for(Queue& queue, Queue& other) {
  auto& waits = static_cast<cuda::DeviceQueue&>(queue);
  auto& ahead = static_cast<cuda::DeviceQueue&>(other);
  if (ahead.reached == nullptr) {
    cuda::expect(cudaEventCreateWithFlags(&ahead.reached, cudaEventDisableTiming), "a queue beside another");
  }
  cuda::expect(cudaEventRecord(ahead.reached, ahead.stream), "a queue beside another");
  cuda::expect(cudaStreamWaitEvent(waits.stream, ahead.reached), "a queue beside another");
  waits.behind_another = true;
}

Operations operations() {
  Operations table;
  table.name = "cuda";
  table.embed = cuda::embed;
  table.gather_rows = cuda::gather_rows;
  table.add_rows = cuda::add_rows;
  table.quantize_rows = cuda::quantize_rows;
  table.linear = cuda::linear;
  table.grouped_linear = cuda::grouped_linear;
  table.rms_norm = cuda::rms_norm;
  table.rope = cuda::rope;
  table.encode_rows = cuda::encode_rows;
  table.store_ring = cuda::store_ring;
  table.store_paged = cuda::store_paged;
  table.compress = cuda::compress;
  table.select_rows = cuda::select_rows;
  table.latent_attention = cuda::latent_attention;
  table.gate = cuda::gate;
  table.group_by_expert = cuda::group_by_expert;
  table.swiglu = cuda::swiglu;
  table.combine = cuda::combine;
  table.engram_hash = cuda::engram_hash;
  table.engram_gather = cuda::engram_gather;
  table.engram_mix = cuda::engram_mix;
  table.stream_mixes = cuda::stream_mixes;
  table.stream_collapse = cuda::stream_collapse;
  table.stream_spread = cuda::stream_spread;
  table.stream_mean = cuda::stream_mean;
  table.sample = cuda::sample;
  table.accept = cuda::accept;
  return table;
}

}  // namespace

Result<Backend> cuda_backend() {
  if (!device()) return device().error();
  const auto queues = cuda::queue_limit(std::getenv("FATHOM_CUDA_QUEUES"));
  if (!queues) return queues.error();
  const cudaDeviceProp& of = device()->properties;
  Memory memory;
  memory.allocate = cuda::allocate_device;
  memory.host_visible = false;
  memory.allocate_shared = cuda::allocate_shared;
  memory.copy_bytes = cuda::copy;
  Backend backend{"cuda",
                  memory,
                  operations(),
                  std::string(of.name) + ", " + std::to_string(of.multiProcessorCount) + " multiprocessors, " +
                      std::to_string(of.totalGlobalMem >> 30) + " GiB",
                  open_queue,
                  *queues > 1 ? wait_for : nullptr};
  if (const std::string_view more = cuda::untested(device()->instructions); !more.empty()) {
    backend.untested = true;
    backend.detail += ", " + std::string(more);
  }
  return backend;
}

}  // namespace fathom
