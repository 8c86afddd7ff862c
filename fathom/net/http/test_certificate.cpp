#include "fathom/net/http/test_certificate.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>

#include "fathom/base/check.h"

namespace fathom::net {

namespace {

void add_extension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  check(extension != nullptr, "an extension of a test certificate");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

}  // namespace

void write_test_certificate(const std::string& certificate_file, const std::string& key_file, const std::string& name) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  check(key != nullptr && certificate != nullptr, "a test certificate");
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, subject);
  add_extension(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  check(X509_sign(certificate, key, EVP_sha256()) > 0, "a signature of a test certificate");
  const auto write = [](const std::string& path, auto&& put) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"), std::fclose);
    check(file != nullptr && put(file.get()) == 1, "a file of a test certificate");
  };
  write(certificate_file, [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
  write(key_file,
        [&](std::FILE* file) { return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr); });
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace fathom::net
