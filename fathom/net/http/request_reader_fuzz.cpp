// Any bytes as requests of a connection: request_properties.h. Seeds: request_reader_corpus/.
#include "fathom/net/http/request_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fathom::net::check_request_properties({reinterpret_cast<const char*>(data), size});
  return 0;
}
