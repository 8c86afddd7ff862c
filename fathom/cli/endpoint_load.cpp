#include "fathom/cli/endpoint_load.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <queue>
#include <set>
#include <stop_token>
#include <thread>

#include "fathom/net/http_client.h"
#include "fathom/net/server_sent_events.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kRecent = 1000;

std::string address_of(const std::string& url, const std::string& path) {
  std::string base = url;
  while (base.ends_with('/')) base.pop_back();
  if (base.ends_with("/v1")) base.resize(base.size() - 3);
  return base + path;
}

net::EndpointRequest request_to(const std::string& address, const std::string& key) {
  net::EndpointRequest request;
  request.url = address;
  if (!key.empty()) request.fields.add("Authorization", "Bearer " + key);
  return request;
}

std::string address_of(const EndpointLoadOptions& options) {
  return address_of(options.url, options.api == EndpointApi::chat ? "/v1/chat/completions" : "/v1/completions");
}

/// How one request ended.
struct Outcome {
  FinishReason reason = FinishReason::stop;
  std::string failure, message;  // kind and text when it failed or was refused
  std::string text;
  EndpointEvent usage;
};

/// The last values, for the live table.
struct Recent {
  std::deque<float> values;
  void add(double value) {
    values.push_back(float(value));
    if (values.size() > kRecent) values.pop_front();
  }
  Quantiles quantiles() const {
    std::vector<float> copy(values.begin(), values.end());
    return quantiles_of(copy);
  }
};

class Runner {
 public:
  Runner(std::span<const TraceRequest> trace, const EndpointLoadOptions& options)
      : trace_(trace),
        options_(options),
        address_(
            address_of(options.url, options.api == EndpointApi::chat ? "/v1/chat/completions" : "/v1/completions")) {
    std::map<std::string, size_t> last_of;
    followers_.assign(trace.size(), kNone);
    for (size_t i = 0; i < trace.size(); ++i) {
      const TraceRequest& one = trace[i];
      bool follows = false;
      if (!one.session.empty()) {
        const auto [at, is_new] = last_of.try_emplace(one.session, i);
        if (!is_new) {
          follows = one.pause_seconds.has_value();
          if (follows) followers_[at->second] = i;
          at->second = i;
        }
      }
      if (!follows) push(options.back_to_back ? 0 : one.arrival, i);
      total_ += one.answers;
      for (const TextPart& part : one.prefix) repeated_.insert(part.seed);
    }
  }

  EndpointLoad run(const std::function<bool(const EndpointProgress&)>& tick) {
    {
      const std::lock_guard lock(mutex_);
      spawn();
    }
    EndpointLoad out;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return over(); });
        if (over()) break;
        cut_late();
      }
      if (!tick(progress())) {
        const std::lock_guard lock(mutex_);
        out.interrupted = stopping_ = true;
        for (Running* one : running_) one->stop.request_stop();
      }
    }
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      work_.notify_all();
      others_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    tick(progress());
    out.load = meter_.report();
    out.failures = std::move(failures_);
    out.most_running = most_running_;
    return out;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Due {
    double time = 0;
    size_t index = 0;
    bool operator>(const Due& other) const { return std::pair(time, index) > std::pair(other.time, other.index); }
  };
  struct Running {
    std::stop_source stop;
    double cancel_at = kNever;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // All below: the caller holds the mutex, unless it says otherwise.

  bool closed() const { return stopping_ || (options_.seconds > 0 && now() >= options_.seconds); }
  bool over() const { return running_.empty() && (closed() || due_.empty()); }

  /// Every answer of a request is a request of its own: endpoints differ in what they make of `n`.
  void push(double time, size_t index) {
    for (int i = 0; i < trace_[index].answers; ++i) due_.push({time, index});
  }

  void spawn() {
    if (int64_t(threads_.size()) < std::min(options_.streams, kMostStreams)) {
      ++idle_;
      threads_.emplace_back([this] { work(); });
    }
  }

  void cut_late() {
    const double at = now();
    for (Running* one : running_) {
      if (at >= one->cancel_at) one->stop.request_stop();
    }
  }

  /// Waits for the next request that is due; one thread by the clock, the others for their turn, or each request would
  /// wake them all. Nothing: the load is over.
  std::optional<Due> next(std::unique_lock<std::mutex>& lock) {
    while (!ended_) {
      if (watched_) {
        others_.wait(lock);
        continue;
      }
      const double wait = closed() || due_.empty() ? 0.2 : due_.top().time - now();
      if (wait > 0) {
        watched_ = true;
        work_.wait_for(lock, std::chrono::duration<double>(std::min(wait, 0.2)));
        watched_ = false;
        continue;
      }
      Due due = due_.top();
      due_.pop();
      others_.notify_one();
      if (options_.back_to_back) due.time = std::max(due.time, now());
      return due;
    }
    return {};
  }

  /// A thread of one stream. Takes the mutex.
  void work() {
    net::HttpClient client;
    std::unique_lock lock(mutex_);
    while (const auto due = next(lock)) {
      --idle_;
      // Whoever leaves makes sure that somebody waits for the next request.
      if (idle_ == 0) spawn();
      const TraceRequest& request = trace_[due->index];
      const size_t answer = meter_.arrive(due->time, request.prompt_tokens, request.tenant);
      Running running;
      if (request.cancel_seconds) running.cancel_at = due->time + *request.cancel_seconds;
      running_.push_back(&running);
      most_running_ = std::max(most_running_, int64_t(running_.size()));
      const auto prompt =
          options_.prompts.empty() ? prompt_of(request, answers_, options_.tokens_per_word) : std::vector<PromptPart>();
      lock.unlock();
      const Outcome outcome = ask(client, request, due->index, prompt, answer, running.stop.get_token());
      lock.lock();
      std::erase(running_, &running);
      end(request, *due, answer, outcome);
      ++idle_;
    }
  }

  /// Sends one request and reads its stream. Without the mutex.
  Outcome ask(net::HttpClient& client, const TraceRequest& request, size_t index, const std::vector<PromptPart>& prompt,
              size_t answer, std::stop_token stop) {
    net::EndpointRequest question = request_to(address_, options_.api_key);
    const Json* own = options_.prompts.empty() ? nullptr : &options_.prompts[index % options_.prompts.size()];
    question.body = body_of(options_.api, options_.model, prompt, request.output_tokens, own, options_.body);
    Outcome out;
    net::SseParser parser;
    bool done = false, finished = false;
    const auto fail = [&](std::string kind, std::string message) {
      out.reason = FinishReason::failed;
      out.failure = std::move(kind);
      out.message = std::move(message);
    };
    const auto take = [&](std::string_view bytes) {
      const double at = now();
      if (auto fed = parser.feed(bytes); !fed) {
        fail("unreadable event", to_string(fed.error()));
        return false;
      }
      while (const auto message = parser.next()) {
        const auto event = read_event(message->data);
        if (!event) {
          fail("unreadable event", to_string(event.error()));
          return false;
        }
        if (!event->error.empty()) {
          fail("error in the stream: " + event->error_type, event->error);
          return false;
        }
        if (event->brings_text) got_text(answer, at);
        out.text += event->text;
        done = done || event->done;
        finished = finished || !event->finish.empty();
        if (event->prompt_tokens >= 0) out.usage = *event;
        if (event->finish == "length") out.reason = FinishReason::length;
      }
      return true;
    };
    {
      const std::lock_guard lock(mutex_);
      meter_.begin(answer, now());
    }
    const auto sent = client.send(question, take, stop);
    if (!out.failure.empty()) return out;
    if (!sent && sent.error().code == ErrorCode::interrupted) {
      out.reason = FinishReason::cancelled;
    } else if (!sent) {
      const bool begun = [&] {
        const std::lock_guard lock(mutex_);
        return meter_.answer(answer).first_token >= 0;
      }();
      fail(begun ? "broken answer" : "no answer", to_string(sent.error()));
    } else if (sent->status < 200 || sent->status > 299) {
      fail("HTTP " + std::to_string(sent->status), error_message_of(sent->body));
      if (sent->status == 429 || sent->status == 503) out.reason = FinishReason::rejected;
    } else if (!done && !finished) {
      fail("no end of the stream", "the stream closed without finish_reason and [DONE]");
    }
    return out;
  }

  /// Takes the mutex.
  void got_text(size_t answer, double at) {
    const std::lock_guard lock(mutex_);
    const AnswerRecord& record = meter_.answer(answer);
    ++events_;
    if (record.first_token < 0) {
      recent_first_.add(at - record.arrived);
    } else {
      recent_gap_.add(at - record.last_token);
    }
    meter_.tokens(answer, at, 1);
  }

  void end(const TraceRequest& request, const Due& due, size_t answer, const Outcome& outcome) {
    const double at = now();
    AnswerRecord& record = meter_.answer(answer);
    // Without usage an event counts as a token.
    const bool estimated = outcome.failure.empty() && options_.prompts.empty();
    record.prompt_tokens = outcome.usage.prompt_tokens >= 0 ? outcome.usage.prompt_tokens
                           : estimated                      ? request.prompt_tokens
                                                            : 0;
    if (outcome.usage.output_tokens >= 0) record.output_tokens = outcome.usage.output_tokens;
    record.cached_tokens = std::max<int64_t>(outcome.usage.cached_tokens, 0);
    meter_.end(answer, at, outcome.reason);
    if (!outcome.failure.empty()) {
      EndpointFailures& kind = failures_[outcome.failure];
      if (kind.count++ == 0) kind.first = outcome.message;
      ++failed_;
    } else if (outcome.reason != FinishReason::cancelled) {
      recent_total_.add(at - record.arrived);
    }
    ++ends_;
    if (repeated_.contains(request.output_seed)) answers_.try_emplace(request.output_seed, outcome.text);
    const size_t next = followers_[due.index];
    if (next != kNone && !stopping_) {
      followers_[due.index] = kNone;  // once, when a request has several answers
      const double after = at + *trace_[next].pause_seconds;
      push(options_.back_to_back ? after : std::max(after, trace_[next].arrival), next);
      work_.notify_one();
    }
    changed_.notify_one();
  }

  /// Takes the mutex.
  EndpointProgress progress() {
    const std::lock_guard lock(mutex_);
    EndpointProgress out;
    out.seconds = now();
    out.running = int64_t(running_.size());
    out.ended = ends_;
    out.sent = ends_ + out.running;
    out.failed = failed_;
    out.total = total_;
    history_.push_back({out.seconds, ends_, events_});
    while (history_.size() > 2 && out.seconds - history_[1].seconds > 1) history_.pop_front();
    const double past = out.seconds - history_.front().seconds;
    if (past > 0) {
      out.requests_per_s = double(ends_ - history_.front().ends) / past;
      out.events_per_s = double(events_ - history_.front().events) / past;
    }
    out.first_token = recent_first_.quantiles();
    out.gap = recent_gap_.quantiles();
    out.total_time = recent_total_.quantiles();
    return out;
  }

  struct Moment {
    double seconds = 0;
    int64_t ends = 0, events = 0;
  };

  const std::span<const TraceRequest> trace_;
  const EndpointLoadOptions& options_;
  const std::string address_;
  const Clock::time_point begin_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable work_, others_, changed_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<size_t> followers_;  // of each request, the one of its session that its end makes due
  std::set<uint64_t> repeated_;    // seeds that a later prompt names
  std::vector<std::thread> threads_;
  int64_t idle_ = 0;
  bool watched_ = false;  // a thread waits for the next request by the clock
  std::vector<Running*> running_;
  bool stopping_ = false, ended_ = false;

  LoadMeter meter_;
  std::map<uint64_t, std::string> answers_;
  std::map<std::string, EndpointFailures> failures_;
  int64_t total_ = 0, ends_ = 0, failed_ = 0, events_ = 0, most_running_ = 0;
  Recent recent_first_, recent_gap_, recent_total_;
  std::deque<Moment> history_;
};

}  // namespace

EndpointLoad run_endpoint_load(std::span<const TraceRequest> trace, const EndpointLoadOptions& options,
                               const std::function<bool(const EndpointProgress&)>& tick) {
  return Runner(trace, options).run(tick);
}

Result<double> first_requests(const EndpointLoadOptions& options) {
  constexpr int64_t kWords = 256;
  net::HttpClient client;
  int64_t tokens[2] = {-1, -1};
  for (int i = 0; i < 2; ++i) {
    net::EndpointRequest question = request_to(address_of(options), options.api_key);
    std::string text;
    append_words(0, i == 0 ? 1 : 1 + kWords, text);
    question.body = body_of(options.api, options.model, {{false, text}}, 1, nullptr, options.body);
    net::SseParser parser;
    std::string problem;
    const auto answer = client.send(question, [&](std::string_view bytes) {
      if (auto fed = parser.feed(bytes); !fed) problem = to_string(fed.error());
      while (const auto message = parser.next()) {
        const auto event = read_event(message->data);
        if (!event) problem = to_string(event.error());
        if (event && !event->error.empty()) problem = event->error;
        if (event && event->prompt_tokens >= 0) tokens[i] = event->prompt_tokens;
      }
      return problem.empty();
    });
    if (problem.empty() && !answer) problem = answer.error().message;
    if (problem.empty() && answer->status != 200) {
      problem = "HTTP " + std::to_string(answer->status) + ": " + error_message_of(answer->body);
    }
    if (!problem.empty()) {
      return Error{ErrorCode::bad_input, "the first request was not answered: " + problem, question.url,
                   "see --model-name, --api, --body and FATHOM_API_KEY"};
    }
  }
  return tokens[0] >= 0 && tokens[1] > tokens[0] ? double(tokens[1] - tokens[0]) / double(kWords) : 1;
}

Result<EndpointModel> find_model(const std::string& url, const std::string& api_key, const std::string& name) {
  net::EndpointRequest question = request_to(address_of(url, "/v1/models"), api_key);
  question.method = "GET";
  question.silence = std::chrono::seconds(30);
  net::HttpClient client;
  const auto answer = client.send(question);
  if (!answer) {
    return Error{ErrorCode::bad_input, answer.error().message, question.url,
                 "start the server, or pass another --endpoint"};
  }
  if (answer->status == 401 || answer->status == 403) {
    return Error{ErrorCode::bad_input, "the endpoint refuses the key: " + error_message_of(answer->body), question.url,
                 "set FATHOM_API_KEY"};
  }
  const auto tree = answer->status == 200 ? parse_json(answer->body, question.url) : Result<Json>(Json());
  const Json* data = tree.ok() ? tree->find("data") : nullptr;
  EndpointModel model{name, 0};
  for (const Json& one : data != nullptr ? data->items : std::vector<Json>()) {
    const Json* id = one.find("id");
    if (id == nullptr || !id->is_string() || (!name.empty() && id->text != name)) continue;
    model.name = id->text;
    const Json* context = one.find("max_model_len");  // vLLM, SGLang
    if (context == nullptr) context = one.find("context_length");
    model.context = context != nullptr ? context->as_int64().value_or(0) : 0;
    break;
  }
  if (!model.name.empty()) return model;
  if (answer->status != 200) {
    return Error{ErrorCode::bad_input, "the endpoint answers with status " + std::to_string(answer->status),
                 question.url, "pass the URL before /v1 of an OpenAI-compatible server, or --model-name NAME"};
  }
  return Error{ErrorCode::bad_input, "the endpoint lists no model", question.url, "pass --model-name NAME"};
}

}  // namespace fathom::cli
