#include "fathom/net/content_encoding.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "fathom/net/http_message.h"

namespace fathom::net {

namespace {

constexpr size_t kStepBytes = 64 * 1024;

Error too_long(int64_t most_bytes) {
  return {ErrorCode::out_of_range, "the unpacked body is longer than " + std::to_string(most_bytes) + " bytes",
          "Content-Encoding", "send less at once, or raise --max-body"};
}

Error damaged(std::string_view encoding) {
  return {ErrorCode::bad_input, "the body is no whole " + std::string(encoding) + " data", "Content-Encoding",
          "send the body as the header says, or without a Content-Encoding"};
}

struct EndInflate {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};
struct FreeZstd {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

/// `window_bits` as zlib wants it: 15 for the zlib format, 15 + 16 for gzip.
Result<std::string> inflated(std::string_view name, std::string_view body, int window_bits, int64_t most_bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, window_bits) != Z_OK) return Error{ErrorCode::out_of_memory, "no memory to unpack", "", ""};
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  if (body.size() > std::numeric_limits<unsigned>::max()) return too_long(most_bytes);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = unsigned(body.size());
  std::string out;
  std::vector<char> piece(kStepBytes);
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = unsigned(piece.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) return damaged(name);
    const size_t made = piece.size() - stream.avail_out;
    if (int64_t(out.size() + made) > most_bytes) return too_long(most_bytes);
    out.append(piece.data(), made);
    if (status != Z_STREAM_END) continue;
    if (stream.avail_in == 0) return out;
    // A gzip file may have several members; anything else after the end is none of our business.
    if (window_bits <= 15 || inflateReset(&stream) != Z_OK) return damaged(name);
  }
}

Result<std::string> unpacked_zstd(std::string_view body, int64_t most_bytes) {
  const std::unique_ptr<ZSTD_DStream, FreeZstd> stream(ZSTD_createDStream());
  if (!stream) return Error{ErrorCode::out_of_memory, "no memory to unpack", "", ""};
  // 8 MiB, what RFC 9659 asks of senders: a frame cannot make us keep a window of gigabytes.
  if (ZSTD_isError(ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, 23))) return damaged("zstd");
  ZSTD_inBuffer in{body.data(), body.size(), 0};
  std::string out;
  std::vector<char> piece(kStepBytes);
  size_t expected = 1;
  while (true) {
    ZSTD_outBuffer next{piece.data(), piece.size(), 0};
    const size_t read_before = in.pos;
    expected = ZSTD_decompressStream(stream.get(), &next, &in);
    if (ZSTD_isError(expected)) return damaged("zstd");
    if (int64_t(out.size() + next.pos) > most_bytes) return too_long(most_bytes);
    out.append(piece.data(), next.pos);
    if (in.pos < in.size) continue;
    if (expected == 0) return out;
    if (next.pos == 0 && in.pos == read_before) return damaged("zstd");  // it wants bytes that are not there
  }
}

}  // namespace

Result<std::string> unpacked_body(std::string_view content_encoding, std::string body, int64_t most_bytes) {
  std::vector<std::string> names;
  for (std::string_view rest = content_encoding; !rest.empty();) {
    std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    while (name.starts_with(' ') || name.starts_with('\t')) name.remove_prefix(1);
    while (name.ends_with(' ') || name.ends_with('\t')) name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
  }
  // Nobody packs three times but to make work.
  if (names.size() > 2)
    return Error{ErrorCode::unsupported, "the body is packed more than twice", "Content-Encoding", "pack it once"};
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    Result<std::string> next = std::string();
    if (equals_ignoring_case(*name, "identity")) continue;
    if (equals_ignoring_case(*name, "gzip") || equals_ignoring_case(*name, "x-gzip")) {
      next = inflated("gzip", body, 15 + 16, most_bytes);
    } else if (equals_ignoring_case(*name, "deflate")) {
      next = inflated("deflate", body, 15, most_bytes);
    } else if (equals_ignoring_case(*name, "zstd")) {
      next = unpacked_zstd(body, most_bytes);
    } else {
      return Error{ErrorCode::unsupported, "content encoding " + name->substr(0, 40) + " is not supported",
                   "Content-Encoding", "send gzip, deflate, zstd, or the body as it is"};
    }
    if (!next) return next;
    body = std::move(*next);
  }
  if (int64_t(body.size()) > most_bytes) return too_long(most_bytes);
  return body;
}

}  // namespace fathom::net
