# Included with -DFATHOM_CUDA=ON (preset cuda): finds nvcc 13 and enables CUDA for sm_90a, the arch of H100 and H200,
# and with -DFATHOM_CUDA_SM100=ON (preset cuda-sm100) for sm_100a too, that of B200. The kernels lie in
# fathom/backend/cuda/.
if(NOT CMAKE_CUDA_COMPILER)
  # .deps holds one where scripts/setup --cuda found none that is new enough.
  if(DEFINED ENV{CUDACXX})  # the program itself, as CMake reads it
    set(nvcc $ENV{CUDACXX})
  endif()
  find_program(nvcc nvcc HINTS ${CMAKE_SOURCE_DIR}/.deps/cuda-13.0 ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT nvcc)
    message(FATAL_ERROR "fathom: nvcc was not found (FATHOM_CUDA=ON): run scripts/setup --cuda, put "
                        "the bin folder of CUDA 13.0 into PATH, name it with -DCMAKE_CUDA_COMPILER=, or configure with -DFATHOM_CUDA=OFF.")
  endif()
  set(CMAKE_CUDA_COMPILER ${nvcc} CACHE FILEPATH "nvcc" FORCE)
endif()
# 90a and 100a, not 90 and 100: wgmma, setmaxnreg and tcgen05 exist in the architecture-specific sets only. What is
# listed here gets the kernels that need none of them; fathom/backend/CMakeLists.txt names the others' sources.
if(FATHOM_CUDA_SM100)
  set(CMAKE_CUDA_ARCHITECTURES 90a 100a)
else()
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "fathom: nvcc is ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}): 13.0 or newer is needed; "
                      "name another one with -DCMAKE_CUDA_COMPILER=.")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows nvcc's C++17 only
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 13.0 REQUIRED)
