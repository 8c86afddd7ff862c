// fathom/net/http/test_certificate.h
// A certificate of one's own, made anew for a test.
#pragma once
#include <string>

namespace fathom::net {

/// Writes a self-signed certificate for localhost and 127.0.0.1 and its key (P-256), valid for a day, as PEM files.
/// `name` becomes the subject's common name, by which tests tell one from another.
void write_test_certificate(const std::string& certificate_file, const std::string& key_file, const std::string& name);

}  // namespace fathom::net
