#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/ssl/context.hpp>

#include "fathom/net/http/server_shared.h"

namespace fathom::net {

namespace {

Error tls_error(const char* what, const std::string& file, const char* remedy) {
  std::string message = what;
  if (const unsigned long code = ERR_get_error()) {
    char text[256];
    ERR_error_string_n(code, text, sizeof text);
    message.append(": ").append(text);
  }
  ERR_clear_error();
  return {ErrorCode::bad_input, message, file, remedy};
}

/// A key with a pass phrase would make OpenSSL ask at the terminal, in a server.
int no_pass_phrase(char*, int, int, void*) { return 0; }

int select_http11(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in,
                  unsigned in_length, void*) {
  static constexpr unsigned char ours[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, ours, sizeof ours - 1, in, in_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<std::shared_ptr<boost::asio::ssl::context>> open_tls(const std::string& certificate_file,
                                                            const std::string& key_file) {
  ERR_clear_error();
  auto context = std::make_shared<boost::asio::ssl::context>(boost::asio::ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);  // 34 kB less an idle connection
  SSL_CTX_set_default_passwd_cb(native, no_pass_phrase);
  SSL_CTX_set_alpn_select_cb(native, select_http11, nullptr);
  if (SSL_CTX_use_certificate_chain_file(native, certificate_file.c_str()) != 1) {
    return tls_error("the certificate cannot be used", certificate_file,
                     "pass a PEM file with the server's certificate first, then its chain");
  }
  if (SSL_CTX_use_PrivateKey_file(native, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return tls_error("the key cannot be used with this certificate", key_file,
                     "pass the PEM file of the certificate's key, without a pass phrase");
  }
  if (SSL_CTX_check_private_key(native) != 1) {
    return tls_error("the key is not the certificate's", key_file, "pass the PEM file of the certificate's key");
  }
  return context;
}

}  // namespace fathom::net
