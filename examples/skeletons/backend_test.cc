// A backend of your own. A Transport moves bytes between ranks, which are
// threads here, and Lockstep does the rest. GroupOptions::transport takes it.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/transport.h"
#include "lockstep/examples/skeletons/board.h"

namespace {

using lockstep::Transport;
using lockstep::TransportContext;

class ThreadTransport : public Transport {
 public:
  explicit ThreadTransport(const TransportContext& context) : group_(context) {}

  absl::string_view name() const override { return "threads"; }
  bool adds_shards() const override { return true; }
  absl::Status CheckSupported(const lockstep::Operation& op) const override {
    for (const lockstep::Device& device : {op.in.device, op.out.device}) {
      if (device.kind != lockstep::Device::Kind::kHost) {
        return absl::UnimplementedError("'threads' takes memory of the host");
      }
    }
    return absl::OkStatus();
  }
  // Rank 0 publishes its address for the others in the job's store.
  absl::Status Connect() override {
    static std::atomic<int> boards{0};
    const std::string key = group_.key + "/board";
    if (group_.rank == 0) {
      LOCKSTEP_RETURN_IF_ERROR(
          group_.store->Set(key, std::to_string(++boards)));
    }
    while (!cancelled_) {
      const auto number =
          group_.store->Get(key, absl::Now() + absl::Milliseconds(50));
      if (number.ok()) board_ = &skeletons::Board::Numbered(*number);
      if (!absl::IsDeadlineExceeded(number.status())) return number.status();
    }
    return absl::CancelledError();
  }
  absl::Status Run(const lockstep::Operation& op,
                   uint64_t fingerprint) override {
    return board_->Meet(group_.rank, group_.size, op, fingerprint, cancelled_);
  }
  absl::Status Send(int to, const lockstep::ConstBuffer& in,
                    uint64_t tag) override {
    const auto size = static_cast<size_t>(in.count * SizeOf(in.dtype));
    board_->Send(group_.rank, to, tag,
                 {static_cast<const char*>(in.data), size});
    return absl::OkStatus();
  }
  absl::Status Recv(int from, const lockstep::Buffer& out,
                    uint64_t tag) override {
    const auto bytes = board_->Receive(from, group_.rank, tag, cancelled_);
    if (!bytes.has_value()) return absl::CancelledError();
    std::memcpy(out.data, bytes->data(), bytes->size());
    return absl::OkStatus();
  }
  void Cancel() override { cancelled_ = true; }

 private:
  const TransportContext group_;
  skeletons::Board* board_ = nullptr;
  // It publishes no other memory, so its order does not matter.
  std::atomic<bool> cancelled_{false};
};

TEST(ThreadTransport, Conforms) {
  lockstep::ExpectConforms([](const TransportContext& context) {
    return absl::StatusOr<std::unique_ptr<Transport>>(
        std::make_unique<ThreadTransport>(context));
  });
}

}  // namespace
