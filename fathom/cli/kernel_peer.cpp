#include "fathom/cli/kernel_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "fathom/base/json.h"

extern char** environ;

namespace fathom::cli {
namespace {

constexpr int kPatienceMs = 120000;  // importing a large library, or its largest product

void close_file(int& file) {
  if (file >= 0) ::close(file);
  file = -1;
}

}  // namespace

Error KernelPeer::broken(const std::string& what) const {
  return Error{
      ErrorCode::failed, what, "--peers " + command_,
      "run it by hand to see what it says; bench/peers/kernels/run and bench/peers/cuda/run have ones that work"};
}

Result<KernelPeer> KernelPeer::start(const std::string& command) {
  KernelPeer peer;
  peer.command_ = command;
  std::istringstream text(command);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  if (words.empty()) return Error{ErrorCode::usage, "no command", "--peers", "see bench/peers/kernels/run"};
  int input[2] = {-1, -1}, output[2] = {-1, -1};
  // Its input is a socket: sending to a program that has ended is an error there, and no signal that ends us.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0 || ::pipe2(output, O_CLOEXEC) != 0) {
    close_file(input[0]), close_file(input[1]);
    return peer.broken(std::string("no pipe to it: ") + std::strerror(errno));
  }
  peer.to_ = input[1];
  peer.from_ = output[0];
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], 0);
  posix_spawn_file_actions_adddup2(&actions, output[1], 1);
  const int code = ::posix_spawnp(&peer.process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close_file(input[0]), close_file(output[1]);
  if (code != 0) {
    peer.process_ = -1;
    return peer.broken(std::string("it cannot be run: ") + std::strerror(code));
  }
  const auto line = peer.read_line();
  if (!line) return line.error();
  const auto tree = parse_json(*line, "--peers " + command);
  if (!tree) return tree.error();
  const Json *names = tree->find("peers"), *version = tree->find("version");
  if (names == nullptr || !names->is_array() || version == nullptr || !version->is_string()) {
    return peer.broken("its first line names no peers");
  }
  for (const Json& name : names->items) peer.names_.push_back(name.text);
  peer.version_ = version->text;
  return peer;
}

KernelPeer& KernelPeer::operator=(KernelPeer&& other) noexcept {
  std::swap(command_, other.command_);
  std::swap(version_, other.version_);
  std::swap(unread_, other.unread_);
  std::swap(names_, other.names_);
  std::swap(process_, other.process_);
  std::swap(to_, other.to_);
  std::swap(from_, other.from_);
  return *this;
}

KernelPeer::~KernelPeer() {
  close_file(to_), close_file(from_);
  if (process_ < 0) return;
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> KernelPeer::read_line() {
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd wait{from_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) return broken("interrupted while it worked");
    if (ready <= 0) return broken("it says nothing");
    char bytes[4096];
    const ssize_t count = ::read(from_, bytes, sizeof bytes);
    if (count <= 0) return broken("it ended");
    unread_.append(bytes, size_t(count));
  }
}

Result<std::vector<double>> KernelPeer::sample(const PeerWork& work, double seconds) {
  Json asked = Json::object();
  asked.set("op", Json::of(work.kernel.op));
  asked.set("weights", Json::of(work.kernel.weights));
  asked.set("rows", Json::of(work.rows));
  for (const auto& [name, size] : work.kernel.sizes) asked.set(name, Json::of(size));
  asked.set("copies", Json::of(work.copies));
  asked.set("threads", Json::of(work.threads));
  asked.set("seconds", Json::of(seconds));
  const std::string line = to_string(asked) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = ::send(to_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return broken("it ended");
    done += size_t(count);
  }
  const auto answer = read_line();
  if (!answer) return answer.error();
  const auto tree = parse_json(*answer, "--peers " + command_);
  if (!tree) return tree.error();
  std::vector<double> us;
  for (const std::string& name : names_) {
    const Json* all = tree->find("us");
    if (all == nullptr || !all->is_object()) return broken("it gave no times: " + *answer);
    const Json* one = all->find(name);
    const auto value = one != nullptr ? one->as_double() : 0;
    if (!value || *value < 0) return broken("it gave no time of " + name + ": " + *answer);
    us.push_back(*value);
  }
  return us;
}

}  // namespace fathom::cli
