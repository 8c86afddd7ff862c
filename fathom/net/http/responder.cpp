// HttpResponder: passes to its connection, or to its sink.
#include <mutex>

#include "fathom/net/http/connection.h"

namespace fathom::net {

/// The states that a connection would keep.
struct HttpResponder::Local {
  HttpSink sink;
  std::mutex mutex;  // of what follows; not held while the sink or the callback is called
  enum class Phase { waiting, streaming, ended } phase = Phase::waiting;
  bool gone = false;
  std::function<void()> gone_callback;

  /// Goes from one phase to the next, if it may.
  bool advance(Phase from, Phase to) {
    const std::lock_guard lock(mutex);
    if (phase != from || gone) return false;
    phase = to;
    return true;
  }
};

HttpResponder::HttpResponder(std::shared_ptr<HttpConnection> connection, uint64_t request)
    : connection_(std::move(connection)), request_(request) {}

HttpResponder::HttpResponder(HttpSink sink) : local_(std::make_unique<Local>()) { local_->sink = std::move(sink); }

HttpResponder::~HttpResponder() {
  if (connection_) {
    connection_->dropped(request_);
  } else {
    abort();
  }
}

void HttpResponder::respond(int status, HttpFields fields, std::string body) {
  if (connection_) return connection_->respond(request_, status, std::move(fields), std::move(body));
  if (local_->advance(Local::Phase::waiting, Local::Phase::ended))
    local_->sink.respond({status, std::move(fields), std::move(body)});
}

void HttpResponder::begin_stream(int status, HttpFields fields) {
  if (connection_) return connection_->begin_stream(request_, status, std::move(fields));
  if (local_->advance(Local::Phase::waiting, Local::Phase::streaming))
    local_->sink.begin_stream(status, std::move(fields));
}

bool HttpResponder::write(std::string_view bytes) {
  if (connection_) return connection_->write(request_, bytes);
  if (!local_->advance(Local::Phase::streaming, Local::Phase::streaming)) return false;
  if (local_->sink.write(bytes)) return true;
  reader_gone();
  return false;
}

void HttpResponder::end() {
  if (connection_) return connection_->end(request_);
  if (local_->advance(Local::Phase::streaming, Local::Phase::ended)) local_->sink.end();
}

void HttpResponder::abort() {
  if (connection_) return connection_->abort(request_);
  if (local_->advance(Local::Phase::waiting, Local::Phase::ended) ||
      local_->advance(Local::Phase::streaming, Local::Phase::ended)) {
    local_->sink.abort();
  }
}

void HttpResponder::on_gone(std::function<void()> callback) {
  if (connection_) return connection_->on_gone(request_, std::move(callback));
  {
    const std::lock_guard lock(local_->mutex);
    if (local_->phase == Local::Phase::ended) return;
    if (!local_->gone) {
      local_->gone_callback.swap(callback);
      return;
    }
  }
  if (callback) callback();
}

void HttpResponder::reader_gone() {
  check(local_ != nullptr, "reader_gone is for a responder with a sink");
  std::function<void()> callback;
  {
    const std::lock_guard lock(local_->mutex);
    if (local_->phase == Local::Phase::ended || local_->gone) return;
    local_->gone = true;
    callback.swap(local_->gone_callback);
  }
  if (callback) callback();
}

bool HttpResponder::gone() const {
  if (connection_) return connection_->gone(request_);
  const std::lock_guard lock(local_->mutex);
  return local_->gone;
}

int64_t HttpResponder::queued_bytes() const { return connection_ ? connection_->queued_bytes(request_) : 0; }

}  // namespace fathom::net
