// fathom/base/sha256.h
// SHA-256 (FIPS 180-4): the checksum that model hubs publish for their files. About 300 MB/s a thread; when OpenSSL
// comes in with TLS, its faster one can stand behind the same functions.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace fathom {

/// Feed it in pieces of any length, then take the digest once.
class Sha256 {
 public:
  void add(std::span<const uint8_t> bytes);
  std::array<uint8_t, 32> digest();

 private:
  void block(const uint8_t* bytes);
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> held_{};
  size_t held_bytes_ = 0;
  uint64_t bytes_ = 0;
};

/// 64 lower-case hexadecimal digits.
std::string sha256_text(std::span<const uint8_t> bytes);
std::string hex_text(std::span<const uint8_t> bytes);

}  // namespace fathom
