#include "fathom/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "fathom/base/json.h"
#include "fathom/checkpoint/json_scanner.h"

namespace fathom {
namespace {

Error damaged(std::string message, std::string_view where, std::string remedy) {
  return Error{ErrorCode::corrupt, std::move(message), std::string(where), std::move(remedy)};
}

Error of_tensor(const std::string& name, const std::string& message, std::string_view where, std::string remedy) {
  return damaged("tensor " + name + " " + message, where, std::move(remedy));
}

constexpr const char* kFetchAgain = "the header is damaged; fetch this file again";

// What an entry of the header says, before it is believed.
struct Declared {
  std::string dtype;
  Shape shape;
  int64_t begin = -1, end = -1;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

bool read_shape(JsonScanner& json, Shape& shape) {
  return json.array([&] {
    int64_t dim = 0;
    if (!json.integer(dim)) return false;
    if (shape.rank() == Shape::kMaxRank) return json.fail("a shape has more than 8 dimensions");
    shape.push(dim);
    return true;
  });
}

bool read_offsets(JsonScanner& json, Declared& out) {
  return json.expect('[') && json.integer(out.begin) && (json.accept(',') || json.fail("two offsets are expected")) &&
         json.integer(out.end) && json.expect(']');
}

bool read_entry(JsonScanner& json, Declared& out) {
  const auto once = [&](bool& seen) {
    return !std::exchange(seen, true) || json.fail("a key occurs twice in one entry");
  };
  return json.object([&](const std::string& key) {
    if (key == "dtype") return once(out.has_dtype) && json.string(out.dtype);
    if (key == "shape") return once(out.has_shape) && read_shape(json, out.shape);
    if (key == "data_offsets") return once(out.has_offsets) && read_offsets(json, out);
    return json.fail("an entry has a key other than dtype, shape and data_offsets");
  });
}

// product(shape) x itemsize, or nothing when it does not fit 62 bits.
std::optional<int64_t> bytes_declared(const Shape& shape, DType dtype) {
  constexpr int64_t kLimit = int64_t(1) << 62;
  int64_t elements = 1;
  for (const int64_t dim : shape.dims()) {
    if (dim != 0 && elements > kLimit / dim) return {};
    elements *= dim;
  }
  if (elements > kLimit / 64) return {};
  return bytes_of(dtype, elements);
}

Result<TensorEntry> believe(std::string name, const Declared& declared, std::string_view where) {
  if (!declared.has_dtype || !declared.has_shape || !declared.has_offsets) {
    const char* missing = !declared.has_dtype ? "dtype" : !declared.has_shape ? "shape" : "data_offsets";
    return of_tensor(name, std::string("has no ") + missing, where, kFetchAgain);
  }
  const auto dtype = dtype_of(declared.dtype);
  if (!dtype) {
    return Error{ErrorCode::bad_input, "tensor " + name + " has dtype " + declared.dtype, std::string(where),
                 "fathom reads F32, BF16, F8_E4M3, F8_E8M0 and I8; use a checkpoint in the released format"};
  }
  const auto bytes = bytes_declared(declared.shape, *dtype);
  if (!bytes || declared.end < declared.begin || declared.end - declared.begin != *bytes) {
    return of_tensor(name,
                     "has data_offsets [" + std::to_string(declared.begin) + ", " + std::to_string(declared.end) +
                         "] but shape " + to_string(declared.shape) + " of " + declared.dtype + " takes " +
                         (bytes ? with_commas(*bytes) : "more than 2^62") + " bytes",
                     where, kFetchAgain);
  }
  return TensorEntry{TensorSpec{std::move(name), *dtype, declared.shape}, declared.begin};
}

// Data must be covered exactly once: tensors in order of their offsets touch each other, from 0 to the end.
Result<void> check_cover(const std::vector<TensorEntry>& tensors, std::string_view where) {
  int64_t at = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin < at) {
      return of_tensor(tensor.spec.name,
                       "begins at offset " + with_commas(tensor.begin) + " inside tensor " + before->spec.name +
                           ", which ends at " + with_commas(at),
                       where, kFetchAgain);
    }
    if (tensor.begin > at) {
      return of_tensor(
          tensor.spec.name,
          "begins at offset " + with_commas(tensor.begin) + " but the data before it ends at " + with_commas(at), where,
          kFetchAgain);
    }
    at = tensor.begin + tensor.spec.bytes();
    before = &tensor;
  }
  return {};
}

Result<std::vector<TensorEntry>> read_entries(std::string_view text, std::string_view where) {
  std::vector<TensorEntry> tensors;
  std::optional<Error> unbelievable;
  JsonScanner json(text);
  bool metadata_seen = false;
  const auto read_metadata = [&] {
    if (std::exchange(metadata_seen, true)) return json.fail("__metadata__ occurs twice");
    return json.object([&](const std::string&) {
      std::string value;
      return json.string(value);
    });
  };
  const bool whole = json.object([&](std::string& key) {
    if (key == "__metadata__") return read_metadata();
    Declared declared;
    if (!read_entry(json, declared)) {
      unbelievable = of_tensor(
          key,
          std::string("has a damaged entry at byte ") + std::to_string(8 + json.position()) + ": " + json.mistake(),
          where, kFetchAgain);
      return false;
    }
    auto entry = believe(std::move(key), declared, where);
    if (!entry) {
      unbelievable = entry.error();
      return false;
    }
    tensors.push_back(std::move(*entry));
    return true;
  });
  if (whole) json.at_end();
  if (unbelievable) return *unbelievable;
  if (json.failed()) {
    return damaged("header is no JSON at byte " + std::to_string(8 + json.position()) + ": " + json.mistake(), where,
                   kFetchAgain);
  }
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& tensor : tensors) {
    if (!names.insert(tensor.spec.name).second) {
      return of_tensor(tensor.spec.name, "occurs twice in the header", where, kFetchAgain);
    }
  }
  return tensors;
}

}  // namespace

Result<SafetensorsHeader> read_safetensors_header(std::span<const uint8_t> bytes, std::string_view where) {
  const int64_t file_bytes = int64_t(bytes.size());
  if (file_bytes < 8) {
    return damaged("file has " + std::to_string(file_bytes) + " bytes, a safetensors file at least 8", where,
                   "the download stopped early; fetch this file again");
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | bytes[size_t(i)];
  if (length > uint64_t(kMaxHeaderBytes)) {
    return damaged("header length field says " + std::to_string(length) + " bytes", where,
                   "the limit is " + with_commas(kMaxHeaderBytes) + "; this is no safetensors file, or it is damaged");
  }
  if (int64_t(length) > file_bytes - 8) {
    return damaged(
        "file has " + with_commas(file_bytes) + " bytes, its header alone needs " + with_commas(8 + int64_t(length)),
        where, "the download stopped early; fetch this file again");
  }
  SafetensorsHeader header;
  header.header_bytes = 8 + int64_t(length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, size_t(length));
  auto tensors = read_entries(text, where);
  if (!tensors) return tensors.error();
  // Empty tensors share their offset with the tensor that follows.
  std::sort(tensors->begin(), tensors->end(), [](const TensorEntry& a, const TensorEntry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    const int64_t bytes_a = a.spec.bytes(), bytes_b = b.spec.bytes();
    return bytes_a != bytes_b ? bytes_a < bytes_b : a.spec.name < b.spec.name;
  });
  if (const auto covered = check_cover(*tensors, where); !covered) return covered.error();
  const int64_t data_bytes = tensors->empty() ? 0 : tensors->back().begin + tensors->back().spec.bytes();
  header.file_bytes = header.header_bytes + data_bytes;
  if (file_bytes != header.file_bytes) {
    return damaged("file has " + with_commas(file_bytes) + " bytes, its header says " + with_commas(header.file_bytes),
                   where,
                   file_bytes < header.file_bytes ? "the download stopped early; fetch this file again"
                                                  : "bytes follow the last tensor; fetch this file again");
  }
  for (TensorEntry& tensor : *tensors) tensor.begin += header.header_bytes;
  header.tensors = std::move(*tensors);
  return header;
}

std::string write_safetensors_header(std::span<const TensorSpec> tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  int64_t at = 0;
  for (const TensorSpec& tensor : tensors) {
    json += ',';
    append_json_string(json, tensor.name);
    json += R"(:{"dtype":")";
    json += name_of(tensor.dtype);
    json += R"(","shape":[)";
    for (int i = 0; i < tensor.shape.rank(); ++i) {
      if (i > 0) json += ',';
      json += std::to_string(tensor.shape[i]);
    }
    json += R"(],"data_offsets":[)" + std::to_string(at);
    at += tensor.bytes();
    json += ',' + std::to_string(at) + "]}";
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = char(json.size() >> (8 * i));
  return out + json;
}

}  // namespace fathom
