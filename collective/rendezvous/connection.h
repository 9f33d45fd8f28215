// A TCP connection of a star. It delivers bytes as they come, and sends frames
// through a queue of limited size.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_CONNECTION_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_CONNECTION_H_

#include <array>
#include <asio/ip/tcp.hpp>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: Asio's errors

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {

// Returns, for example, "127.0.0.1:4000".
std::string Format(const asio::ip::tcp::endpoint& endpoint);

// A TCP connection.
// Requires: a std::shared_ptr owns it.
// Thread-safety: use it on the thread that runs the socket's io_context. Any
// thread may call SilentFor.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // The receivers of input. They are called on the thread that runs the
  // socket's io_context, and not after Close.
  struct Events {
    // Gets the bytes that came and were not taken yet. It removes whole frames
    // from `input`.
    std::function<void(absl::string_view& input)> on_input;
    // Called when the connection has ended. `how` says how: "it was closed".
    // The receiver must still call Close.
    std::function<void(const std::string& how)> on_end;
  };

  // The system tries to reach a silent peer for a limited time, which is longer
  // than `silence`.
  Connection(asio::ip::tcp::socket socket, absl::Duration silence);

  // Begins to read, or goes on with other receivers. They also get the bytes
  // that came before and were not taken.
  void Read(Events events);
  // Stops reading and calling the receivers until Read is called.
  void Pause() { paused_ = true; }

  void Send(FrameType type, absl::string_view payload) {
    SendRaw(EncodeFrame(type, payload));
  }
  // Passes as many bytes as possible to the system before it returns; the
  // system sends these even if the process ends. The other bytes wait in a
  // queue. If more than 64 MiB wait there because the peer does not read, the
  // connection ends.
  void SendRaw(std::string bytes);

  // Ends the sending direction when the queue is empty, and then calls `done`.
  // It also calls `done` when the queue can't be sent any more.
  void FinishSending(std::function<void()> done);

  // Closes the connection. Bytes in the queue are dropped.
  void Close();
  bool closed() const { return closed_; }

  // Adds `time` to the time since the last byte came, and returns the sum.
  // Returns 0 if there are bytes to read.
  absl::Duration CountSilence(absl::Duration time);

  // Returns the time since the last byte came. Any thread may call it.
  absl::Duration SilentFor() const;

  std::string local_address() const;

 private:
  void ReadSome();
  void Deliver();
  void WriteFront();
  void MaybeFinish();
  void End(const std::string& how);

  asio::ip::tcp::socket socket_;
  std::optional<ClosedInForks> closed_in_forks_;
  std::shared_ptr<const Events> events_;
  bool closed_ = false;
  bool paused_ = true;
  std::string ended_;  // how it ended, if it ended while paused

  bool reading_ = false;
  std::array<char, 8192> chunk_;
  std::string input_;

  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  bool can_write_ = true;
  std::function<void()> finished_;

  absl::Duration silent_;
  std::atomic<int64_t> last_heard_;  // nanoseconds of the steady clock
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_CONNECTION_H_
