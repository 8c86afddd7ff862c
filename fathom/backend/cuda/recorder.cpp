// The device's side of backend/recorder.h: graphs captured from a stream.
#include "fathom/backend/recorder.h"

#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/tables.h"
#include "fathom/backend/cuda/workspace_moves.h"

namespace fathom {
namespace {

cudaStream_t stream_of(Queue& queue) { return static_cast<cuda::DeviceQueue&>(queue).stream; }

class Graph : public Recording {
 public:
  Graph(cudaStream_t stream, cudaGraphExec_t graph) : stream_(stream), graph_(graph), moves_(cuda::workspace_moves()) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  bool usable() const override { return moves_ == cuda::workspace_moves(); }
  void run() override { cuda::expect(cudaGraphLaunch(graph_, stream_), "a recorded step"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_;
  int64_t moves_;
};

void begin(Queue& queue) {
  static_cast<cuda::DeviceQueue&>(queue).workspace.reset();  // becomes one piece now: nothing moves while recording
  cuda::expect(cudaStreamBeginCapture(stream_of(queue), cudaStreamCaptureModeThreadLocal), "recording a step");
}

std::unique_ptr<Recording> end(Queue& queue) {
  cudaGraph_t graph = nullptr;
  cuda::expect(cudaStreamEndCapture(stream_of(queue), &graph), "recording a step");
  cudaGraphExec_t ready = nullptr;
  cuda::expect(cudaGraphInstantiate(&ready, graph, 0), "recording a step");
  cudaGraphDestroy(graph);
  return std::make_unique<Graph>(stream_of(queue), ready);
}

void send(Queue& queue, const uint8_t* tables, int64_t bytes) { cuda::send_tables(tables, bytes, stream_of(queue)); }

}  // namespace

Recorder cuda_recorder() {
  return {.allocate_tables = cuda::allocate_tables,
          .rewrite_tables = cuda::rewrite_tables,
          .begin = begin,
          .end = end,
          .send_tables = send,
          .await_sent = cuda::await_sent};
}

}  // namespace fathom
