// fathom/net/data_url.h
// What a data URL holds (RFC 2397): "data:image/png;base64,iVBORw0KGgo=".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/base/result.h"

namespace fathom::net {

struct DataUrl {
  std::string media_type;  // lower case, without parameters; "text/plain" when the URL says nothing
  std::string bytes;
};

/// Scheme, media type and ";base64" in any case; other parameters are skipped. base64 may lack its padding and have
/// white space in it, as browsers take it; without ";base64" the content is percent-decoded.
/// Errors: bad_input (no data URL, no base64), out_of_range (more than `most_bytes`, behind which nothing is decoded).
Result<DataUrl> read_data_url(std::string_view url, int64_t most_bytes);

}  // namespace fathom::net
