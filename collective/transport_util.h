// Functions that all transports use: slices of buffers, waiting for a key of
// the store, and checks that do not depend on the backend.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::string address,
//       AwaitKey(*context.store, key, [this] { return CheckCancelled(); }));
//   const std::vector<Slice> gives = SlicesOf(op.send_counts, op.dtype);
//   Copy(At(in, gives[0].first), At(out, 0), gives[0].bytes);
#ifndef LOCKSTEP_COLLECTIVE_TRANSPORT_UTIL_H_
#define LOCKSTEP_COLLECTIVE_TRANSPORT_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The bytes of a cache line.
constexpr int64_t kCacheLine = 64;

// Consecutive bytes of a buffer. `first` is the offset of the first one.
struct Slice {
  int64_t first = 0;
  int64_t bytes = 0;
};

// Cuts a buffer into consecutive slices, of which slice i has counts[i]
// elements.
std::vector<Slice> SlicesOf(const std::vector<int64_t>& counts, DType dtype);

// Does the same, and writes the slices into `slices`, whose memory it uses
// again.
void SetSlices(const std::vector<int64_t>& counts, DType dtype,
               std::vector<Slice>& slices);

// Returns the number of bytes of the largest slice, or 0 if there is none.
int64_t LargestOf(const std::vector<Slice>& slices);

// Returns the address at that offset, in bytes.
inline char* At(void* data, int64_t offset) {
  return static_cast<char*>(data) + offset;
}
inline const char* At(const void* data, int64_t offset) {
  return static_cast<const char*>(data) + offset;
}

// Returns the number of elements of each input that a rank gives to a
// reduction, and the offset in bytes of input i among these. A rank may give
// several sums of shards, each of which is as large as the output.
inline int64_t CountOfInput(const Operation& op) {
  return op.kind == OpKind::kAllReduceShards ? op.out.count : op.in.count;
}
inline int64_t InputAt(const Operation& op, int64_t i) {
  return i * CountOfInput(op) * SizeOf(op.dtype);
}

// Copies bytes, unless both addresses are the same: an operation in place
// leaves its memory as it is. The addresses do not matter if there are no
// bytes.
inline void Copy(const char* from, char* to, int64_t bytes) {
  if (bytes > 0 && from != to) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

// Waits until the store has the key, however long that takes, and returns the
// value. Calls `check` about every 100 ms, and returns its error if it has one.
absl::StatusOr<std::string> AwaitKey(
    Store& store, absl::string_view key,
    const std::function<absl::Status()>& check);

// Returns the Status of all calls after Transport::Cancel.
absl::Status TransportCancelled();

// Returns UNIMPLEMENTED if a buffer of the operation is not in the memory of
// the host. The message begins with the name of the backend.
absl::Status CheckOnHost(absl::string_view backend, const Operation& op);

// Returns INVALID_ARGUMENT unless the rank is 0 to size - 1.
absl::Status CheckRank(const TransportContext& context);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TRANSPORT_UTIL_H_
