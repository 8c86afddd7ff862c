#include "fathom/base/sha256.h"

#include <openssl/evp.h>

#include "fathom/base/check.h"

namespace fathom {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check(state_->context && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1, "libcrypto has SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::span<const uint8_t> bytes) {
  check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "a digest takes bytes until it is taken");
}

std::array<uint8_t, 32> Sha256::digest() {
  std::array<uint8_t, 32> out{};
  check(EVP_DigestFinal_ex(state_->context, out.data(), nullptr) == 1, "a digest is taken once");
  return out;
}

std::string sha256_text(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hex_text(hash.digest());
}

std::string hex_text(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace fathom
