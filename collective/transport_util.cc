#include "lockstep/collective/transport_util.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"

namespace lockstep::internal_collective {
namespace {

constexpr absl::Duration kCheckEvery = absl::Milliseconds(100);

}  // namespace

std::vector<Slice> SlicesOf(const std::vector<int64_t>& counts, DType dtype) {
  std::vector<Slice> slices;
  SetSlices(counts, dtype, slices);
  return slices;
}

void SetSlices(const std::vector<int64_t>& counts, DType dtype,
               std::vector<Slice>& slices) {
  slices.clear();
  int64_t first = 0;
  for (const int64_t count : counts) {
    slices.push_back({first, count * SizeOf(dtype)});
    first += slices.back().bytes;
  }
}

int64_t LargestOf(const std::vector<Slice>& slices) {
  int64_t largest = 0;
  for (const Slice& slice : slices) largest = std::max(largest, slice.bytes);
  return largest;
}

absl::StatusOr<std::string> AwaitKey(
    Store& store, absl::string_view key,
    const std::function<absl::Status()>& check) {
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(check());
    absl::StatusOr<std::string> value =
        store.Get(key, absl::Now() + kCheckEvery);
    if (!absl::IsDeadlineExceeded(value.status())) return value;
  }
}

absl::Status TransportCancelled() {
  return absl::CancelledError("the transport was cancelled");
}

absl::Status CheckOnHost(absl::string_view backend, const Operation& op) {
  for (const Device& device : {op.in.device, op.out.device}) {
    if (device.kind != Device::Kind::kHost) {
      return absl::UnimplementedError(absl::StrCat(
          backend,
          " moves memory of the host, and this is of a CUDA device: copy it to "
          "the host, or use the nccl backend"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRank(const TransportContext& context) {
  if (context.rank >= 0 && context.rank < context.size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("rank should be 0 to size - 1, but got rank=", context.rank,
                   ", size=", context.size));
}

}  // namespace lockstep::internal_collective
