#include "lockstep/collective/rendezvous/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/post.hpp>
#include <asio/write.hpp>
#include <chrono>  // NOLINT: Asio speaks chrono
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/address.h"

namespace lockstep::internal_collective {
namespace {

constexpr size_t kMostQueuedBytes = size_t{64} << 20;

int64_t SteadyNanoseconds() {
  return absl::ToInt64Nanoseconds(
      absl::FromChrono(SteadyNow().time_since_epoch()));
}

// Sets an option that makes the end of a connection be noticed sooner. If the
// system refuses it, the end is noticed all the same.
void SetOption(int fd, int level, int option, int value) {
  static_cast<void>(::setsockopt(fd, level, option, &value, sizeof(value)));
}

void SetOptions(int fd, absl::Duration silence) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // The system refuses longer times.
  constexpr absl::Duration kLongest = absl::Seconds(32767);
  const absl::Duration bounded =
      std::clamp(silence, absl::Seconds(1), kLongest);
#ifdef TCP_KEEPIDLE
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE,
            static_cast<int>(absl::ToInt64Seconds(bounded)));
#endif
#ifdef TCP_USER_TIMEOUT
  // The missing heartbeats are noticed first, and say more about what has
  // happened. The system counts the time for which this process is stopped,
  // too.
  const absl::Duration given_up = bounded + std::max(bounded, absl::Minutes(1));
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(absl::ToInt64Milliseconds(given_up)));
#endif
}

}  // namespace

std::string Format(const asio::ip::tcp::endpoint& endpoint) {
  return FormatHostPort(endpoint.address().to_string(), endpoint.port());
}

Connection::Connection(asio::ip::tcp::socket socket, absl::Duration silence)
    : socket_(std::move(socket)),
      closed_in_forks_(socket_.native_handle()),
      last_heard_(SteadyNanoseconds()) {
  SetOptions(socket_.native_handle(), silence);
  std::error_code ignored;  // if this fails, all bytes go through the queue
  socket_.non_blocking(true, ignored);
}

void Connection::Read(Events events) {
  events_ = std::make_shared<const Events>(std::move(events));
  paused_ = false;
  // The receivers are not called from within this call, since its caller may
  // not be ready for that.
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->Deliver();
    if (!self->ended_.empty()) return self->End(self->ended_);
    self->ReadSome();
  });
}

void Connection::ReadSome() {
  if (reading_ || paused_ || closed_) return;
  reading_ = true;
  socket_.async_read_some(
      asio::buffer(chunk_),
      [self = shared_from_this()](const std::error_code& error, size_t size) {
        self->reading_ = false;
        if (self->closed_) return;
        if (error) {
          return self->End(error == asio::error::eof ? "it was closed"
                                                     : error.message());
        }
        self->silent_ = absl::ZeroDuration();
        // Relaxed is enough here and in SilentFor, since the time is used
        // alone: it publishes no other memory.
        self->last_heard_.store(SteadyNanoseconds(), std::memory_order_relaxed);
        self->input_.append(self->chunk_.data(), size);
        self->Deliver();
        self->ReadSome();
      });
}

void Connection::Deliver() {
  if (paused_ || closed_ || input_.empty()) return;
  absl::string_view rest = input_;
  const std::shared_ptr<const Events> events = events_;  // may be replaced
  events->on_input(rest);
  input_.erase(0, input_.size() - rest.size());
}

void Connection::SendRaw(std::string bytes) {
  if (closed_ || !can_write_) return;
  if (queue_.empty() && socket_.non_blocking()) {
    // An error is ignored here: it comes again where it is reported.
    std::error_code ignored;
    bytes.erase(0, socket_.write_some(asio::buffer(bytes), ignored));
    if (bytes.empty()) return;
  }
  queued_bytes_ += bytes.size();
  if (queued_bytes_ > kMostQueuedBytes) {
    can_write_ = false;
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->End(absl::StrCat("it does not read: ", self->queued_bytes_,
                             " bytes wait for it"));
    });
    return;
  }
  queue_.push_back(std::move(bytes));
  if (queue_.size() == 1) WriteFront();
}

void Connection::WriteFront() {
  asio::async_write(
      socket_, asio::buffer(queue_.front()),
      [self = shared_from_this()](const std::error_code& error, size_t) {
        if (self->closed_) return;
        if (error) {
          // Bytes that came before the end must still be read. Then the read
          // reports the end.
          self->can_write_ = false;
          self->queue_.clear();
        } else {
          self->queued_bytes_ -= self->queue_.front().size();
          self->queue_.pop_front();
          if (!self->queue_.empty()) return self->WriteFront();
        }
        self->MaybeFinish();
      });
}

void Connection::FinishSending(std::function<void()> done) {
  finished_ = std::move(done);
  MaybeFinish();
}

void Connection::MaybeFinish() {
  if (!finished_ || (!closed_ && !queue_.empty())) return;
  can_write_ = false;
  std::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  asio::post(socket_.get_executor(), std::exchange(finished_, nullptr));
}

void Connection::End(const std::string& how) {
  if (closed_) return;
  if (paused_) {
    ended_ = how;
    return;
  }
  const std::shared_ptr<const Events> events = events_;
  events->on_end(how);
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  closed_in_forks_.reset();
  std::error_code ignored;
  socket_.close(ignored);
}

absl::Duration Connection::CountSilence(absl::Duration time) {
  std::error_code error;
  if (socket_.available(error) > 0) return absl::ZeroDuration();
  silent_ += time;
  return silent_;
}

absl::Duration Connection::SilentFor() const {
  return absl::Nanoseconds(SteadyNanoseconds() -
                           last_heard_.load(std::memory_order_relaxed));
}

std::string Connection::local_address() const {
  std::error_code error;
  return socket_.local_endpoint(error).address().to_string();
}

}  // namespace lockstep::internal_collective
