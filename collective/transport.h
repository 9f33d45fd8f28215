// What a backend between processes provides: moving bytes and reducing them,
// in calls that block and can be cancelled. Everything else (numbers, lanes,
// deadlines, who is missing, what a failure is) is the engine's, engine.h.
//
//   GroupOptions options;
//   options.backend = "mine";
//   options.transport = [](const TransportContext& context)
//       -> absl::StatusOr<std::unique_ptr<Transport>> {
//     return std::make_unique<MyTransport>(context);
//   };
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
//
// examples/skeletons/backend_test.cc is one, with the suite that it passes.
//
// Calls come in these threads: Connect first, alone. Then, at the same time as
// one another, one Run, one Send to each rank and one Recv from each; of each
// of these the next begins when the last has returned. Cancel at any time.
//
// A transport whose collectives a device does has Prepare in place of Run.
#ifndef LOCKSTEP_COLLECTIVE_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/work.h"

namespace lockstep {

// The group that a transport is for.
struct TransportContext {
  int rank = 0;
  int size = 1;

  // Unique in the job and over its whole life: what ranks tell each other
  // stands in the store under it.
  std::string key;

  // Outlives the transport. It may be slow: a request to another host.
  Store* store = nullptr;

  // Of this rank, for the others to reach it: the address of the interface
  // that the job uses. "127.0.0.1" where all ranks are on this host.
  std::string address = "127.0.0.1";

  // Of transports of CUDA devices: the device, or -1, by which that is the only
  // one that there is, or the one of the rank's number on this host; and the
  // libraries, "" as the dynamic loader finds them.
  int device = -1;
  int local_rank = 0;
  std::string nccl_library;
  std::string cuda_library;
};

// A collective's way through a device. Begin and Look are called by one thread
// at a time; it is destroyed before its transport.
class Launch {
 public:
  virtual ~Launch() = default;

  enum class State {
    kLaunching,  // the device's library goes on with it by itself
    kQueued,     // on the device, behind those that were launched before
    kDone,       // and the device is done with it and its memory
  };

  // Once, when those that were launched before are queued. Waits neither for
  // the device nor for other ranks.
  virtual absl::StatusOr<State> Begin() = 0;

  // What has become of it. Does not wait.
  virtual absl::StatusOr<State> Look() = 0;

  // Makes what is queued on `stream` from now on wait for it, which is queued.
  // From any thread.
  virtual absl::Status WaitOnStream(Stream stream) = 0;
};

class Transport {
 public:
  // No call is running then. The others may go on.
  virtual ~Transport() = default;

  virtual absl::string_view name() const = 0;  // "shm"

  // Whether Run, Send and Recv can do it. UNIMPLEMENTED or INVALID_ARGUMENT.
  virtual absl::Status CheckSupported(const Operation& op) const = 0;

  // Reaches the other ranks, waiting for them as long as it takes.
  virtual absl::Status Connect() = 0;

  // Offers this rank's part of the collective that Run will be called with
  // next, if that can be done without waiting and without using the caller's
  // memory afterwards, and if the others then need nothing more of this rank;
  // returns whether it did. Called between two Runs, or never.
  virtual bool Post(const Operation& /*op*/, uint64_t /*fingerprint*/) {
    return false;
  }

  // Whether collectives are done by a device: then by a Launch, and not by Run.
  virtual bool launches() const { return false; }

  // Takes in a collective, which is to come after what `op.after` has queued by
  // now, also before Connect. What a device does has no fingerprint: where
  // ranks differ, it waits for ever or writes what means nothing.
  virtual absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& /*op*/) {
    return absl::UnimplementedError("this transport has no device");
  }

  // Does a collective: returns when this rank's output is there, and its input
  // is no longer needed. Floats are reduced in the order of ranks, reduce.h, so
  // that every backend has the same bits. All ranks have the same
  // `fingerprint`; where one has another, no byte of one operation reaches the
  // other's memory, and the call goes on waiting, or returns
  // FAILED_PRECONDITION if it can tell.
  //
  // Counts of all-to-all are not in the fingerprint and may contradict each
  // other; the same holds for them.
  virtual absl::Status Run(const Operation& op, uint64_t fingerprint) = 0;

  // Between this rank and another (never itself). The n-th Send to a rank
  // belongs to its n-th Recv from this one; both have the same `tag`, or one
  // waits for ever, or FAILED_PRECONDITION. A Send may return before it was
  // received.
  virtual absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) = 0;
  virtual absl::Status Recv(int from, const Buffer& out, uint64_t tag) = 0;

  // What a rank sends to itself, of as many elements; returns when it is done.
  virtual absl::Status Move(const ConstBuffer& in, const Buffer& out) {
    if (in.count > 0) {
      std::memmove(out.data, in.data,
                   static_cast<size_t>(in.count * SizeOf(in.dtype)));
    }
    return absl::OkStatus();
  }

  // From any thread, more than once, and does not wait: calls that run return
  // soon, with any status, and later ones at once; what was launched is done
  // soon. No caller's memory is touched then. Other ranks are not told.
  virtual void Cancel() = 0;
};

// Makes a rank's transport of a group. The context is complete.
using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(
        const TransportContext& context)>;

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TRANSPORT_H_
