// fathom/net/content_encoding.h
// Bodies that clients send packed. Coding agents use zstd, attackers gzip: 100 kB of it can be 100 MB of zeros, so
// unpacking stops at the limit and never takes more memory than that.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/base/result.h"

namespace fathom::net {

/// Unpacks a request body by the value of its Content-Encoding: identity or empty, gzip (x-gzip), deflate (zlib),
/// zstd; several are undone from the last to the first. Costs up to a millisecond a MiB: not for an io thread.
/// Errors, with the status to answer: unsupported (415: another encoding; names those accepted), out_of_range (413:
/// more than `most_bytes`), bad_input (400: damaged, truncated, or bytes after the end).
Result<std::string> unpacked_body(std::string_view content_encoding, std::string body, int64_t most_bytes);

}  // namespace fathom::net
