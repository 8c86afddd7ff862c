// fathom/backend/cuda/launch.h
// From views to kernel arguments: types known at run time become template arguments.
#pragma once
#include <cuda_bf16.h>

#include "fathom/backend/cuda/call.h"
#include "fathom/backend/cuda/tiles.h"

namespace fathom::cuda {

/// Rows of typed elements, as a kernel takes them.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;  // elements
  __host__ __device__ T* row(int64_t r) const { return data + r * stride; }
};
template <class T>
Rows<const T> rows_of(const AnyView& view) {
  return {reinterpret_cast<const T*>(view.data), view.row_stride};
}
template <class T>
Rows<T> rows_of(const AnyViewMut& view) {
  return {reinterpret_cast<T*>(view.data), view.row_stride};
}
template <class T>
Rows<T> rows_of(const View<T, 2>& view) {
  return {view.data, view.stride[0]};
}

template <class T>
struct Type {
  using type = T;
};

/// Calls body(Type<float>{}) or body(Type<__nv_bfloat16>{}).
template <class Body>
void with_float_type(DType dtype, const Body& body) {
  check(dtype == DType::f32 || dtype == DType::bf16, "activations are f32 or bf16");
  if (dtype == DType::bf16) {
    body(Type<__nv_bfloat16>{});
  } else {
    body(Type<float>{});
  }
}

/// The vector width that all these views allow; see vector_width().
template <class... Views>
int common_width(int64_t columns, const Views&... views) {
  int width = 8;
  const auto look = [&](const AnyView& view) {
    const int one =
        vector_width(reinterpret_cast<uintptr_t>(view.data), bytes_of(view.dtype, view.row_stride), columns);
    width = width < one ? width : one;
  };
  (look(AnyView(views)), ...);
  return width;
}

/// Calls body(std::integral_constant<int, 8 or 1>{}).
template <class Body>
void with_width(int width, const Body& body) {
  if (width == 8) {
    body(std::integral_constant<int, 8>{});
  } else {
    body(std::integral_constant<int, 1>{});
  }
}

/// Launches a kernel that may begin before the one ahead has ended: it must wait for that itself, in every thread,
/// before it reads or writes anything (wait_for_kernel_ahead, device.cuh).
template <class... Parameters, class... Arguments>
void launch_early(const Call& call, void (*kernel)(Parameters...), dim3 blocks, int threads, int64_t shared_bytes,
                  const Arguments&... arguments) {
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = blocks;
  launch.blockDim = dim3(unsigned(threads));
  launch.dynamicSmemBytes = size_t(shared_bytes);
  launch.stream = call.stream();
  launch.attrs = &early;
  launch.numAttrs = call.may_start_early() ? 1 : 0;
  expect(cudaLaunchKernelEx(&launch, kernel, Parameters(arguments)...), "a launch");
}

inline unsigned grid(int64_t blocks) {
  check(blocks < (int64_t(1) << 31), "a launch has fewer than 2^31 blocks");
  return unsigned(blocks);
}

}  // namespace fathom::cuda
