// fathom/checkpoint/embedded_model.h
// The trained miniature (models/mini), compiled in as read-only data: a fresh build answers without any download. The
// linker places the bytes, so they are mapped with the program and cost memory only where they are read.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace fathom {

/// A file without a file system.
struct EmbeddedFile {
  std::string_view name;           // as it would stand in the folder, e.g. "config.json"
  std::span<const uint8_t> bytes;  // begins at a multiple of 64
};

/// config.json, the shard, its index, tokenizer.json, tokenizer_config.json, generation_config.json. Lives for ever.
std::span<const EmbeddedFile> embedded_model();

}  // namespace fathom
