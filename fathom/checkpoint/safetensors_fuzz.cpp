// Any bytes as a .safetensors file: an error or a header whose views stay inside the file. Also as an index beside it.
#include <array>

#include "fathom/base/check.h"
#include "fathom/checkpoint/checkpoint.h"
#include "fathom/checkpoint/safetensors.h"

using namespace fathom;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  if (const auto header = read_safetensors_header(bytes, "fuzz")) {
    int64_t at = header->header_bytes;
    for (const TensorEntry& tensor : header->tensors) {
      check(tensor.begin == at && tensor.spec.bytes() >= 0, "tensors cover the data without gap or overlap");
      at += tensor.spec.bytes();
    }
    check(at == int64_t(size), "tensors end with the file");
  }
  // The same bytes in every role that a file of a folder can have: alone, as the index of itself, and behind a length
  // field that fits, so that the JSON is reached at once.
  std::vector<uint8_t> framed(8 + size);
  for (size_t i = 0; i < 8; ++i) framed[i] = uint8_t(size >> (8 * i));
  std::copy(data, data + size, framed.begin() + 8);
  const std::string_view config = "{}";
  const std::span<const uint8_t> config_bytes(reinterpret_cast<const uint8_t*>(config.data()), config.size());
  const std::array<EmbeddedFile, 2> single = {{{"config.json", config_bytes}, {"model.safetensors", framed}}};
  const std::array<EmbeddedFile, 3> indexed = {
      {{"config.json", config_bytes}, {"model.safetensors.index.json", bytes}, {"a.safetensors", framed}}};
  for (const std::span<const EmbeddedFile> files :
       {std::span<const EmbeddedFile>(single), std::span<const EmbeddedFile>(indexed)}) {
    std::vector<Error> problems;
    const Checkpoint checkpoint = Checkpoint::open_partly(files, problems);
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      unsigned sum = 0;
      for (const uint8_t byte : checkpoint.bytes_of(tensor)) sum += byte;  // the sanitizer watches the bounds
      check(sum <= 255 * checkpoint.bytes_of(tensor).size(), "a sum of bytes");
      check(checkpoint.tensor(tensor.spec.name).ok(), "every listed tensor has a view");
    }
  }
  return 0;
}
