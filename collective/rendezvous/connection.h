// A TCP connection of a star, on one thread: bytes in as they come, frames out
// through a queue with a bound.
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

// "127.0.0.1:4000"
std::string Format(const asio::ip::tcp::endpoint& endpoint);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Called on the thread that runs the socket's io_context, and not after
  // Close.
  struct Events {
    // What came and was not taken yet; takes whole frames off it.
    std::function<void(absl::string_view& input)> on_input;
    // It has ended, and how: "it was closed". Close is still to be called.
    std::function<void(const std::string& how)> on_end;
  };

  // The system may try to reach the peer for longer than `silence`, but not for
  // ever.
  Connection(asio::ip::tcp::socket socket, absl::Duration silence);

  // Begins to read, or goes on with other receivers, which are told what came
  // and was not taken yet.
  void Read(Events events);
  // Tells nobody of what comes, and reads no more of it, until Read.
  void Pause() { paused_ = true; }

  void Send(FrameType type, absl::string_view payload) {
    SendRaw(EncodeFrame(type, payload));
  }
  // As much as the system takes is with it when this returns, and outlives the
  // process. When the peer does not read and 64 MiB wait for it, it ends
  // instead.
  void SendRaw(std::string bytes);

  // Says that nothing more will be sent, when all that was is out of the queue,
  // and calls `done` then, or when it can't be sent any more.
  void FinishSending(std::function<void()> done);

  // Drops what was not sent.
  void Close();
  bool closed() const { return closed_; }

  // Adds `time` to how long no byte has come, and returns it: nothing if there
  // is one to be read.
  absl::Duration CountSilence(absl::Duration time);

  // How long ago the last byte came. From any thread.
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
  std::string ended_;  // how, while it is paused

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
