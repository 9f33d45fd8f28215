// A Transport is the part that each backend between processes provides: it
// moves bytes and reduces them, in calls that block and can be cancelled. The
// engine (engine.h) does everything else: numbers, lanes, deadlines, missing
// ranks, and the meaning of failures.
//
//   GroupOptions options;
//   options.backend = "mine";
//   options.transport = [](const TransportContext& context)
//       -> absl::StatusOr<std::unique_ptr<Transport>> {
//     return std::make_unique<MyTransport>(context);
//   };
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
//
// examples/skeletons/backend_test.cc has a transport, with the suite that it
// passes.
//
// These calls run at the same time: Connect comes first, alone. Then there may
// be one Run, one Send to each rank and one Recv from each rank at a time; the
// next call of each of these begins after the last has returned. Cancel may
// come at any time.
//
// Derive from Transport if the host does the collectives, and from
// DeviceTransport if a device does them: that has Prepare in place of Run.
#ifndef LOCKSTEP_COLLECTIVE_TRANSPORT_H_
#define LOCKSTEP_COLLECTIVE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <variant>

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

// The group and the rank that a transport is made for.
struct TransportContext {
  int rank = 0;
  int size = 1;

  // A name that is unique in the job and over its whole life. Keys of this
  // group in the store begin with it.
  std::string key;

  // The store of the job. It outlives the transport. It may be slow, since it
  // may ask another host.
  Store* store = nullptr;

  // The address at which other ranks reach this one: that of the interface that
  // the job uses, or "127.0.0.1" if all ranks are on this host.
  std::string address = "127.0.0.1";

  // For transports of CUDA devices. `device` is this rank's device. -1 means
  // the only one that there is, or the one whose number is `local_rank`. If a
  // library's path is empty, the dynamic loader finds the library.
  int device = -1;
  int local_rank = 0;
  std::string nccl_library;
  std::string cuda_library;
};

// One collective that a device does.
// Requires: it is destroyed before its transport.
// Thread-safety: one thread at a time calls Begin and Look. Any thread may call
// WaitOnStream.
class Launch {
 public:
  virtual ~Launch() = default;

  enum class State {
    kLaunching,  // the device's library is still launching it
    kQueued,     // on the device, behind the earlier ones
    kDone,       // the device no longer uses its memory
  };

  // Launches the collective. Called once, when all earlier ones are queued.
  // Waits neither for the device nor for other ranks.
  virtual absl::StatusOr<State> Begin() = 0;

  // Returns the present state. Does not wait.
  virtual absl::StatusOr<State> Look() = 0;

  // Makes all work that is queued on `stream` from now on wait for the
  // collective.
  // Requires: the state is kQueued or kDone.
  virtual absl::Status WaitOnStream(Stream stream) = 0;
};

// The calls that both kinds of transports have. Derive from Transport or
// DeviceTransport.
// Thread-safety: the calls listed at the top of this file run at the same time.
class TransportBase {
 public:
  // Requires: no call is running. Other ranks may still use the group.
  virtual ~TransportBase() = default;

  virtual absl::string_view name() const = 0;  // "shm"

  // Returns UNIMPLEMENTED or INVALID_ARGUMENT if the transport can't do `op`.
  virtual absl::Status CheckSupported(const Operation& op) const = 0;

  // Connects to the other ranks. Waits for them for any length of time.
  virtual absl::Status Connect() = 0;

  // Send to and receive from another rank, never this one. The n-th Send to a
  // rank belongs to that rank's n-th Recv from this one. Both have the same
  // `tag`. If the tags differ, the calls wait for ever or return
  // FAILED_PRECONDITION. A Send may return before the data was received.
  virtual absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) = 0;
  virtual absl::Status Recv(int from, const Buffer& out, uint64_t tag) = 0;

  // Copies the data that a rank sends to itself. Both buffers have the same
  // number of elements. Returns when the copy is complete.
  virtual absl::Status Move(const ConstBuffer& in, const Buffer& out) {
    if (in.count > 0) {
      std::memmove(out.data, in.data,
                   static_cast<size_t>(in.count * SizeOf(in.dtype)));
    }
    return absl::OkStatus();
  }

  // Cancels all calls. It may be called more than once, and from any thread,
  // and does not wait. Calls that are running then return soon, with any
  // status; later ones return at once. Launched collectives are done soon. None
  // of them touches the caller's memory after that. Cancel does not tell the
  // other ranks.
  virtual void Cancel() = 0;
};

// The transport of one rank of a group, if the host does the collectives.
class Transport : public TransportBase {
 public:
  // Offers this rank's part of the collective that the next Run will do, and
  // returns true. Returns false, and does nothing, if this would have to wait,
  // if the caller's memory would be used after the call, or if the other ranks
  // would still need this rank afterwards. Called between two calls of Run, or
  // never.
  virtual bool Post(const Operation& /*op*/, uint64_t /*fingerprint*/) {
    return false;
  }

  // Does a collective. Returns when this rank's output is complete, and its
  // input is not needed any more. Floats are reduced in the order of ranks
  // (reduce.h), so that all backends give the same bits.
  //
  // All ranks have the same `fingerprint`. If another rank has a different one,
  // no byte of one operation reaches the memory of the other. Then the call
  // goes on waiting, or returns FAILED_PRECONDITION if it notices the
  // difference. The same applies to an all-to-all whose counts contradict each
  // other: its counts are not in the fingerprint.
  virtual absl::Status Run(const Operation& op, uint64_t fingerprint) = 0;
};

// The transport of one rank of a group, if a device does the collectives.
class DeviceTransport : public TransportBase {
 public:
  // Makes a Launch for a collective. The collective must come after the work
  // that `op.after` has queued by now. Called also before Connect. Work of a
  // device has no fingerprint: if ranks differ, the device waits for ever, or
  // writes meaningless data.
  virtual absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op) = 0;
};

// A transport of either kind. A pointer to one of them converts to it.
using AnyTransport =
    std::variant<std::unique_ptr<Transport>, std::unique_ptr<DeviceTransport>>;

// Makes one rank's transport of a group. All fields of the context are set.
using TransportFactory = std::function<absl::StatusOr<AnyTransport>(
    const TransportContext& context)>;

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TRANSPORT_H_
