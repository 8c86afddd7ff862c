#include "fathom/cli/text_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "fathom/base/mapped_file.h"

namespace fathom::cli {

std::string read_standard_input() {
  std::string text;
  std::array<char, 1 << 16> piece;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece.data(), size_t(count));
  }
}

Result<std::string> read_text_input(const std::string& path) {
  if (path == "-") return read_standard_input();
  return read_file(path);
}

}  // namespace fathom::cli
