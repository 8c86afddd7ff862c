// fathom/base/sha256.h
// SHA-256: the checksum that model hubs publish for their files. OpenSSL's libcrypto computes it; it stays in
// sha256.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace fathom {

/// Feed it in pieces of any length, then take the digest once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(std::span<const uint8_t> bytes);
  std::array<uint8_t, 32> digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 64 lower-case hexadecimal digits.
std::string sha256_text(std::span<const uint8_t> bytes);
std::string hex_text(std::span<const uint8_t> bytes);

}  // namespace fathom
