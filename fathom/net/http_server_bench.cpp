// What one io thread carries: small requests on 256 connections, 4,000 streams, 10,000 idle connections.
//
// The clients are another process, so that memory and processor time are the server's own. `server_us` is the server
// process's time on a processor for each request: on a busy machine it says more than requests a second.
#include <benchmark/benchmark.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/net/http/raw_client.h"
#include "fathom/net/http_server.h"
#include "fathom/net/server_sent_events.h"

namespace fathom::net {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double resident_mb() {
  long pages = 0, resident = 0;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen("/proc/self/statm", "r"), fclose);
  check(file && fscanf(file.get(), "%ld %ld", &pages, &resident) == 2, "statm is read");
  return double(resident) * double(sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Runs `client` in a process of its own, begun before the server's threads; it is told the port and gives numbers
/// back.
class ClientProcess {
 public:
  explicit ClientProcess(const std::function<std::vector<double>(int port)>& client) {
    check(pipe(to_child_) == 0 && pipe(from_child_) == 0, "pipes");
    child_ = fork();
    ::close(child_ != 0 ? from_child_[1] : from_child_[0]);  // a client that dies ends the wait for it
    if (child_ != 0) return;
    int port = 0;
    check(read(to_child_[0], &port, sizeof port) == sizeof port, "the port");
    const std::vector<double> numbers = client(port);
    check(write(from_child_[1], numbers.data(), numbers.size() * sizeof(double)) >= 0, "the result");
    _exit(0);
  }
  ~ClientProcess() {
    waitpid(child_, nullptr, 0);
    for (const int end : {to_child_[0], to_child_[1], from_child_[0]}) ::close(end);
  }
  void go(int port) { check(write(to_child_[1], &port, sizeof port) == sizeof port, "the port"); }
  std::vector<double> result() {
    std::vector<double> numbers(16);
    const ssize_t got = read(from_child_[0], numbers.data(), numbers.size() * sizeof(double));
    numbers.resize(size_t(std::max<ssize_t>(got, 0)) / sizeof(double));
    return numbers;
  }

 private:
  int to_child_[2], from_child_[2];
  pid_t child_ = 0;
};

/// Reads from all connections until `until` and gives the bytes of each to `take(connection, bytes)`.
template <class Take>
void read_all(std::vector<RawClient>& clients, Clock::time_point until, Take take) {
  const int set = epoll_create1(0);
  for (size_t i = 0; i < clients.size(); ++i) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    epoll_ctl(set, EPOLL_CTL_ADD, clients[i].socket(), &event);
  }
  std::vector<epoll_event> events(512);
  std::vector<char> bytes(65536);
  while (Clock::now() < until) {
    const int ready = epoll_wait(set, events.data(), int(events.size()), 20);
    for (int e = 0; e < ready; ++e) {
      const size_t i = events[size_t(e)].data.u64;
      const ssize_t got = ::recv(clients[i].socket(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got > 0) take(i, std::string_view(bytes.data(), size_t(got)));
      if (got == 0) epoll_ctl(set, EPOLL_CTL_DEL, clients[i].socket(), nullptr);
    }
  }
  ::close(set);
}

std::vector<RawClient> connect_many(int port, int count) {
  std::vector<RawClient> clients;
  clients.reserve(size_t(count));
  for (int i = 0; i < count; ++i) clients.emplace_back(port);
  return clients;
}

HttpServerOptions any_port() {
  HttpServerOptions options;
  options.port = 0;
  return options;
}

void health(HttpRequest, std::shared_ptr<HttpResponder> responder) {
  responder->respond(200, {{"Content-Type", "application/json"}}, R"({"status":"ok"})");
}

void small_requests(benchmark::State& state) {
  const int count = int(state.range(0));
  constexpr double seconds = 5;
  for (auto _ : state) {
    ClientProcess client([&](int port) {
      auto clients = connect_many(port, count);
      const std::string request = "GET /health HTTP/1.1\r\nHost: bench\r\n\r\n";
      clients[0].send(request);
      clients[0].read_until("{\"status\":\"ok\"}");
      size_t answers = 0;
      for (RawClient& one : clients) one.send(request);
      const auto begin = Clock::now();
      read_all(clients, begin + std::chrono::milliseconds(int(seconds * 1000)), [&](size_t i, std::string_view) {
        ++answers;  // one is smaller than a segment: it comes whole
        clients[i].send(request);
      });
      return std::vector<double>{double(answers), std::chrono::duration<double>(Clock::now() - begin).count()};
    });
    HttpServer server(any_port(), health);
    check(server.start().ok(), "the server starts");
    const double cpu = cpu_seconds();
    client.go(server.port());
    const auto result = client.result();
    state.counters["requests/s"] = result[0] / result[1];
    state.counters["server_us"] = (cpu_seconds() - cpu) / result[0] * 1e6;
    server.stop();
  }
}
BENCHMARK(small_requests)
    ->ArgName("connections")
    ->Arg(1)
    ->Arg(256)
    ->Iterations(1)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);

/// The same with wrk, where it is installed.
void wrk_requests(benchmark::State& state) {
  for (auto _ : state) {
    HttpServer server(any_port(), health);
    check(server.start().ok(), "the server starts");
    const double cpu = cpu_seconds();
    const std::string command =
        "wrk -t1 -c256 -d5s --latency http://127.0.0.1:" + std::to_string(server.port()) + "/health 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
    char line[256];
    double rate = 0, requests = 0;
    while (output && fgets(line, sizeof line, output.get())) {
      (void)sscanf(line, "Requests/sec: %lf", &rate);
      (void)sscanf(line, " %lf requests in", &requests);
      if (strstr(line, "Non-2xx") || strstr(line, "Socket errors")) state.SkipWithError(line);
    }
    if (requests == 0) return state.SkipWithError("wrk is not installed");
    state.counters["requests/s"] = rate;
    state.counters["server_us"] = (cpu_seconds() - cpu) / requests * 1e6;
    server.stop();
  }
}
BENCHMARK(wrk_requests)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

/// Events with the time at which they were written, spread evenly over all streams; the client subtracts.
void streams(benchmark::State& state) {
  const int count = int(state.range(0));
  const int events_per_second = int(state.range(1));  // of all streams together
  for (auto _ : state) {
    ClientProcess client([&](int port) {
      auto clients = connect_many(port, count);
      for (RawClient& one : clients) one.request("GET", "/stream");
      std::vector<double> late;
      read_all(clients, Clock::now() + std::chrono::seconds(10), [&](size_t, std::string_view bytes) {
        const auto now = Clock::now().time_since_epoch().count();
        for (size_t at = bytes.find("data: "); at != bytes.npos; at = bytes.find("data: ", at + 1)) {
          int64_t written = 0;
          std::from_chars(bytes.data() + at + 6, bytes.data() + bytes.size(), written);
          if (written > 0) late.push_back(double(now - written) * 1e-6);
        }
      });
      std::ranges::sort(late);
      const auto quantile = [&](double part) {
        return late.empty() ? -1 : late[size_t(double(late.size() - 1) * part)];
      };
      return std::vector<double>{double(late.size()), quantile(0.5), quantile(0.99), quantile(1)};
    });
    const double resident = resident_mb();
    std::mutex mutex;
    std::vector<std::shared_ptr<HttpResponder>> responders;
    HttpServer server(any_port(), [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
      responder->begin_stream(200, event_stream_fields());
      const std::lock_guard lock(mutex);
      responders.push_back(std::move(responder));
    });
    check(server.start().ok(), "the server starts");
    client.go(server.port());
    const auto all = [&] {
      const std::lock_guard lock(mutex);
      return responders.size() == size_t(count);
    };
    while (!all()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // An engine's commit gives a token to each running sequence at once: a burst every 5 ms.
    std::string event;
    size_t next = 0;
    double most_resident = 0;
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    for (auto turn = begin; turn < begin + std::chrono::seconds(7); turn += std::chrono::milliseconds(5)) {
      std::this_thread::sleep_until(turn);
      for (int i = 0; i < events_per_second / 200; ++i) {
        event.clear();
        append_sse_data(event, std::to_string(Clock::now().time_since_epoch().count()) + std::string(200, ' '));
        responders[next++ % responders.size()]->write(event);
      }
      most_resident = std::max(most_resident, resident_mb());
    }
    const double used = cpu_seconds() - cpu;
    const auto result = client.result();
    state.counters["events"] = result[0];
    state.counters["p50_ms"] = result[1];
    state.counters["p99_ms"] = result[2];
    state.counters["max_ms"] = result[3];
    state.counters["server_MB"] = most_resident - resident;
    state.counters["server_us"] = used / std::max(1.0, result[0]) * 1e6;
    for (const auto& responder : responders) responder->end();
    responders.clear();
    server.stop();
  }
}
BENCHMARK(streams)
    ->ArgNames({"streams", "events_per_second"})
    ->Args({64, 20'000})
    ->Args({4'000, 20'000})
    ->Iterations(1)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);

void idle_connections(benchmark::State& state) {
  const int count = int(state.range(0));
  for (auto _ : state) {
    ClientProcess client([&](int port) {
      auto clients = connect_many(port, count);
      for (RawClient& one : clients) one.request("GET", "/health");
      double answered = 0;
      for (RawClient& one : clients) answered += one.read_answer().status == 200;
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return std::vector<double>{answered};
    });
    const double resident = resident_mb();
    HttpServer server(any_port(), health);
    check(server.start().ok(), "the server starts");
    client.go(server.port());
    while (server.counts().requests < count) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double cpu = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    state.counters["idle_cpu_percent"] = (cpu_seconds() - cpu) / 2 * 100;
    state.counters["server_MB"] = resident_mb() - resident;
    state.counters["answered"] = client.result().at(0);
    server.stop();
  }
}
BENCHMARK(idle_connections)->ArgName("connections")->Arg(9'500)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

}  // namespace
}  // namespace fathom::net
