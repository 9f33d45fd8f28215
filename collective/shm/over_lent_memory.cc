#include "lockstep/collective/shm/over_lent_memory.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

constexpr int64_t kBytes = 4 << 20;

int64_t BytesOf(const ConstBuffer& buffer) {
  return buffer.count * SizeOf(buffer.dtype);
}

// Thread-safety: as Transport.
class Over : public Transport {
 public:
  Over(const TransportContext& context, std::unique_ptr<Transport> shm,
       int one_stays_of)
      : context_(context), shm_(std::move(shm)), one_stays_of_(one_stays_of) {}

  absl::string_view name() const override { return shm_->name(); }
  bool adds_shards() const override { return shm_->adds_shards(); }
  absl::Status CheckSupported(const Operation& op) const override {
    return shm_->CheckSupported(op);
  }

  absl::Status Connect() override {
    LOCKSTEP_RETURN_IF_ERROR(shm_->Connect());
    if (context_.size == 1) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(memory_, shm_->Allocate(kBytes));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                              Tell("lent", memory_->Address()));
    LOCKSTEP_RETURN_IF_ERROR(memory_->Reach(addresses));
    LOCKSTEP_RETURN_IF_ERROR(Tell("reached", "").status());
    memory_->Settle(/*is_shared=*/true);
    return absl::OkStatus();
  }

  absl::Status Run(const Operation& op, uint64_t fingerprint) override {
    const int64_t in = BytesOf(op.in), out = BytesOf(op.out);
    const bool stays = memory_ == nullptr ||
                       in + out + 2 * kCacheLine > kBytes ||
                       (one_stays_of_ > 0 &&
                        ((fingerprint + context_.rank) % one_stays_of_) == 0);
    if (stays) return shm_->Run(op, fingerprint);
    // The buffers lie to each other as before, for operations in place.
    const char* const ins = static_cast<const char*>(op.in.data);
    const char* const outs = static_cast<const char*>(op.out.data);
    const bool in_place =
        in > 0 && out > 0 && ins < outs + out && outs < ins + in;
    char* in_at = memory_->data();
    char* out_at = in_at + (in / kCacheLine + 1) * kCacheLine;
    if (in_place) {
      out_at = in_at + (ins < outs ? outs - ins : 0);
      in_at += ins < outs ? 0 : ins - outs;
    }
    Copy(outs, out_at, out);
    Copy(ins, in_at, in);
    Operation moved = op;
    moved.in.data = in_at;
    moved.out.data = out_at;
    LOCKSTEP_RETURN_IF_ERROR(shm_->Run(moved, fingerprint));
    Copy(out_at, static_cast<char*>(op.out.data), out);
    return absl::OkStatus();
  }

  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override {
    return shm_->Send(to, in, tag);
  }
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override {
    return shm_->Recv(from, out, tag);
  }
  void Cancel() override {
    cancelled_ = true;
    shm_->Cancel();
  }

 private:
  // Tells the others a text, and returns those of all, by rank.
  absl::StatusOr<std::vector<std::string>> Tell(absl::string_view what,
                                                const std::string& text) {
    const auto key = [&](int rank) {
      return absl::StrCat(context_.key, "/", what, "/", rank);
    };
    LOCKSTEP_RETURN_IF_ERROR(context_.store->Set(key(context_.rank), text));
    std::vector<std::string> texts(context_.size);
    for (int i = 0; i < context_.size; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          texts[i], AwaitKey(*context_.store, key(i), [this] {
            return cancelled_ ? TransportCancelled() : absl::OkStatus();
          }));
    }
    return texts;
  }

  const TransportContext context_;
  const std::unique_ptr<Transport> shm_;
  const int one_stays_of_;
  std::unique_ptr<RankMemory> memory_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::function<
    absl::StatusOr<std::unique_ptr<Transport>>(const TransportContext& context)>
OverLentMemory(const OverLentMemoryOptions& options) {
  return [options](const TransportContext& context)
             -> absl::StatusOr<std::unique_ptr<Transport>> {
    LOCKSTEP_ASSIGN_OR_RETURN(auto shm,
                              MakeShmTransportFor(options.shm, context));
    return std::make_unique<Over>(context, std::move(shm),
                                  options.one_stays_of);
  };
}

}  // namespace lockstep::internal_collective
