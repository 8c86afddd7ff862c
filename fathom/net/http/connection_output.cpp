// HttpConnection: what responders say, from any thread, and how the io thread sends it.
#include <array>

#include "fathom/net/http/connection.h"

namespace fathom::net {

namespace asio = boost::asio;

namespace {

constexpr size_t kPieceBytes = 16 * 1024;  // answers are gathered in pieces of this size

/// Up to 16 pieces that are sent with one call.
struct Gather {
  using value_type = asio::const_buffer;
  using const_iterator = const asio::const_buffer*;
  std::array<asio::const_buffer, 16> buffers;
  size_t count = 0;
  const_iterator begin() const { return buffers.data(); }
  const_iterator end() const { return buffers.data() + count; }
};

Gather gather(const std::vector<std::string>& pieces, size_t at) {
  Gather all;
  for (const std::string& piece : pieces) {
    if (all.count == all.buffers.size()) break;
    all.buffers[all.count++] = asio::const_buffer(piece.data() + at, piece.size() - at);
    at = 0;
  }
  return all;
}

}  // namespace

// ---- what responders say; any thread

/// Queues bytes; the lock is held.
void HttpConnection::say(std::string bytes) {
  queued_ += int64_t(bytes.size());
  if (!pending_.empty() && pending_.back().size() + bytes.size() <= kPieceBytes) {
    pending_.back() += bytes;
  } else {
    pending_.push_back(std::move(bytes));
  }
}

void HttpConnection::say_head(int status, const HttpFields& fields, Framing framing, int64_t content_length) {
  if (framing == Framing::close || shared_.draining) keep_alive_ = false;
  framing_ = framing;
  std::string head;
  head.reserve(256);
  append_head(head, {.status = status,
                     .fields = &fields,
                     .framing = framing,
                     .content_length = content_length,
                     .keep_alive = keep_alive_,
                     .minor_version = minor_version_,
                     .server_name = shared_.options.server_name});
  say(std::move(head));
}

void HttpConnection::wake(std::unique_lock<std::mutex> lock) {
  if (in_handler_ == this || std::exchange(awake_, true)) return;
  lock.unlock();
  worker_->wake(shared_from_this());
}

void HttpConnection::respond(uint64_t request, int status, HttpFields fields, std::string body) {
  std::unique_lock lock(mutex_);
  if (request != request_ || phase_ != Phase::waiting || gone_) return;
  phase_ = Phase::ended;
  const bool with_body = may_have_body(status);
  say_head(status, fields, with_body ? Framing::length : Framing::none, int64_t(body.size()));
  if (with_body && !head_only_ && !body.empty()) say(std::move(body));
  wake(std::move(lock));
}

void HttpConnection::begin_stream(uint64_t request, int status, HttpFields fields) {
  std::unique_lock lock(mutex_);
  if (request != request_ || phase_ != Phase::waiting || gone_) return;
  phase_ = Phase::streaming;
  const Framing framing = !may_have_body(status) ? Framing::none
                          : minor_version_ == 0  ? Framing::close
                                                 : Framing::chunks;
  say_head(status, fields, framing, 0);
  wake(std::move(lock));
}

bool HttpConnection::write(uint64_t request, std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (request != request_ || phase_ != Phase::streaming || gone_) return false;
  if (bytes.empty() || head_only_ || framing_ == Framing::none) return true;
  if (queued_ + int64_t(bytes.size()) > shared_.options.queued_bytes && queued_ > 0) {
    gone_ = too_slow_ = true;
    wake(std::move(lock));
    return false;
  }
  if (pending_.empty() || pending_.back().size() + bytes.size() > kPieceBytes) pending_.emplace_back();
  std::string& piece = pending_.back();
  const size_t before = piece.size();
  if (framing_ == Framing::chunks) {
    append_chunk(piece, bytes);
  } else {
    piece += bytes;
  }
  queued_ += int64_t(piece.size() - before);
  wake(std::move(lock));
  return true;
}

void HttpConnection::end(uint64_t request) {
  std::unique_lock lock(mutex_);
  if (request != request_ || phase_ != Phase::streaming || gone_) return;
  phase_ = Phase::ended;
  if (framing_ == Framing::chunks && !head_only_) say(std::string(kLastChunk));
  wake(std::move(lock));
}

void HttpConnection::abort(uint64_t request) {
  std::unique_lock lock(mutex_);
  if (request != request_ || (phase_ != Phase::waiting && phase_ != Phase::streaming) || gone_) return;
  cut_asked_ = true;
  wake(std::move(lock));
}

void HttpConnection::dropped(uint64_t request) {
  std::unique_lock lock(mutex_);
  if (request != request_ || (phase_ != Phase::waiting && phase_ != Phase::streaming) || gone_) return;
  (phase_ == Phase::waiting ? dropped_ : cut_asked_) = true;
  wake(std::move(lock));
}

void HttpConnection::on_gone(uint64_t request, std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (request != request_ || phase_ == Phase::none) return;
    if (!gone_) {
      gone_callback_.swap(callback);
      return;  // the old one is destroyed without the lock
    }
  }
  if (callback) callback();
}

bool HttpConnection::gone(uint64_t request) const {
  const std::lock_guard lock(mutex_);
  return request == request_ && gone_;
}

int64_t HttpConnection::queued_bytes(uint64_t request) const {
  const std::lock_guard lock(mutex_);
  return request == request_ ? queued_ : 0;
}

// ---- output

void HttpConnection::on_wake() {
  {
    const std::lock_guard lock(mutex_);
    awake_ = false;
  }
  if (closed_) return;
  flush();
  process();
}

/// Also in the middle of a write.
void HttpConnection::cut_if_asked() {
  bool too_slow = false, asked = false;
  {
    const std::lock_guard lock(mutex_);
    too_slow = too_slow_;
    asked = cut_asked_;
  }
  if (too_slow || asked) cut(too_slow ? Cut::slow : Cut::ours);
}

/// Sends what is queued, without waiting when the system takes it; does what follows when all is sent.
void HttpConnection::flush() {
  cut_if_asked();
  while (!closed_ && !writing_) {
    if (flying_.empty()) {
      std::unique_lock lock(mutex_);
      if (std::exchange(dropped_, false)) {
        lock.unlock();
        const HttpAnswer answer = error_answer(shared_, 500, "the request was not answered");
        HttpConnection* const outer = std::exchange(in_handler_, this);
        respond(request_, answer.status, answer.fields, answer.body);
        in_handler_ = outer;
        continue;
      }
      if (pending_.empty()) {
        const bool ended = phase_ == Phase::ended;
        lock.unlock();
        if (running_ && ended) finish_answer();
        return;
      }
      flying_.swap(pending_);
      write_deadline_ = worker_->now() + shared_.options.write_deadline;
    }
    const Gather pieces = gather(flying_, flying_at_);
    if (!tls_) {
      boost::system::error_code error;
      const size_t sent = socket_.write_some(pieces, error);
      if (!error) {
        advance(sent);
        continue;
      }
      if (error != asio::error::would_block && error != asio::error::try_again) return cut(Cut::client);
    }
    writing_ = true;
    const auto sent = [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
      self->on_written(error, bytes);
    };
    if (tls_) {
      tls_->async_write_some(pieces, sent);
    } else {
      socket_.async_write_some(pieces, sent);
    }
  }
}

void HttpConnection::on_written(const boost::system::error_code& error, size_t bytes) {
  writing_ = false;
  if (closed_) return;
  if (error) return cut(Cut::client);
  advance(bytes);
  flush();
  process();
}

/// Takes what was sent from the flying pieces.
void HttpConnection::advance(size_t bytes) {
  write_deadline_ = worker_->now() + shared_.options.write_deadline;
  size_t whole = 0;
  flying_at_ += bytes;
  while (whole < flying_.size() && flying_at_ >= flying_[whole].size()) flying_at_ -= flying_[whole++].size();
  if (whole == flying_.size()) {
    flying_.clear();
  } else {
    flying_.erase(flying_.begin(), flying_.begin() + ptrdiff_t(whole));
  }
  const std::lock_guard lock(mutex_);
  queued_ -= int64_t(bytes);
}

void HttpConnection::finish_answer() {
  running_ = false;
  if (std::exchange(handed_out_, false)) --shared_.requests_running;
  bool keep_alive = false;
  std::function<void()> callback;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::none;
    callback.swap(gone_callback_);
    keep_alive = keep_alive_;
  }
  if (!keep_alive || shared_.draining) return begin_close();
  set_deadline(Deadline::idle);
}

}  // namespace fathom::net
