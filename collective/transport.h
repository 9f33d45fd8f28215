// A transport is the part that each backend between processes provides. It
// moves bytes, and reduces them, between the ranks of one group. Lockstep's
// engine does everything else: numbers, order, deadlines, missing ranks, and
// the meaning of failures. Derive a transport of your own from
//
//   * Transport, if the host does the collectives, in calls that block, or from
//   * DeviceTransport, if a device does them. In place of Run it has Prepare,
//     which returns a Launch.
//
//   GroupOptions options;
//   options.backend = "mine";
//   options.transport = [](const TransportContext& context)
//       -> absl::StatusOr<std::unique_ptr<Transport>> {
//     return std::make_unique<MyTransport>(context);
//   };
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
//
// All ranks set the same `backend` and a transport of the same kind.
// examples/skeletons/backend_test.cc has a Transport, with the suite that it
// passes.
//
// These threads make the calls:
//
//   call            thread                                        may it wait?
//   factory         the one in MakeGroup or Split                 no
//   CheckSupported  one that issues an operation                  no
//   Connect         a thread of the group's                       yes
//   Post            one that issues a collective                  no
//   Run             one that waits for a collective, or a         yes
//                   thread of the group's
//   Prepare         one that issues a collective                  no
//   Begin, Look     one that issues or waits for a collective,    no
//                   one that closes the communicator or the
//                   world, or a thread of the group's
//   WaitOnStream    any thread                                    no
//   Allocate,       one that allocates memory of the group        not for
//   AllocateOnDevice                                              other ranks
//   Send, Recv      a thread of the group's, another one for      yes
//                   each other rank and direction
//   Move            one that issues a Send, Recv or SendRecv, or  yes
//                   that allocates memory of the group
//   Cancel          any thread, also the one that keeps the       no
//                   rank in touch with the others
//   destructor      the one that destroys the communicator        a few seconds
//
// Connect returns before the first Post, Run, Begin, Send and Recv;
// CheckSupported, Prepare, Allocate, AllocateOnDevice and Move may come
// earlier. At most one call of each row runs at a time, with these exceptions:
// CheckSupported and WaitOnStream may run on several threads, and each other
// rank has one Send and one Recv.
// Post and Run do not run at the same time. All other calls may.
//
// During Post, Prepare, Move, and Begin on the issuing thread, a lock is held
// for which other threads that issue operations wait. During Post and Cancel
// one is held for which all threads of the group wait, also the one that keeps
// the rank in touch with the others. So these calls must not call the
// communicator, and Cancel must not wait for a lock that a call of the
// transport holds while it waits. A call that waits returns soon after Cancel.
//
// An error of Connect, Run, Send, Recv, Move, Begin or Look ends the group, and
// so does an exception of one of these or of Post, which becomes an error
// (catch_all.h). The code decides what happens first:
//
//   RESOURCE_EXHAUSTED   Memory, threads or descriptors have run out on this
//                        rank. If it is not from Begin or Look, the other ranks
//                        are told at once.
//   FAILED_PRECONDITION  The ranks do different things. Rank 0 compares what
//                        they have issued, and its words count if it finds the
//                        difference. From Connect it is like all other codes,
//                        since nothing has been issued yet.
//   UNAVAILABLE, and     A connection has ended, or anything else. Rank 0 first
//   all other codes      asks all ranks, since one of them may know the cause.
//
// An error of Move fails the group at once, whatever its code, since no other
// rank takes part. After Cancel, the code does not matter. An error of
// CheckSupported or Prepare refuses that operation alone, which then has not
// been issued on this rank. An error of the factory is MakeGroup's or Split's,
// and fails the group. An error of WaitOnStream is only returned to the caller.
// Cancel and the destructor must not throw, since that would end the process.
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
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

// The group and the rank that a transport is made for.
struct TransportContext {
  // The rank in the group, and the number of the group's ranks.
  int rank = 0;
  int size = 1;

  // A name that no other group of the job has, before or after this one. The
  // transport begins the keys that it uses in the store with it.
  std::string key;

  // The store in which the ranks of the group leave addresses for each other.
  // It outlives the transport. Get waits until its deadline, and Cancel does
  // not end that. So call it with deadlines of about 100 ms, and look between
  // two calls whether the transport was cancelled.
  Store* store = nullptr;

  // The address at which other ranks reach this one: that of the interface that
  // the job uses, or "127.0.0.1" if all ranks are on this host.
  std::string address = "127.0.0.1";

  // The number of this rank among those of its host, and so the number of its
  // device where each rank has one.
  int local_rank = 0;
};

// The options of the backend "nccl".
struct NcclOptions {
  // The CUDA device of this rank. -1 means the only one that there is, or, if
  // there are several, the one whose number is the local rank.
  int device = -1;
  // The paths of NCCL and of the CUDA driver, which are loaded when they are
  // needed. If a path is empty, the dynamic loader finds libnccl.so.2 or
  // libcuda.so.1.
  std::string nccl_library;
  std::string cuda_library;
};

// One collective that a device does.
//
// Begin is called at most once: a launch may be destroyed before it. After
// Begin, whatever it returned, Look is called until it returns kDone. After an
// error of Begin or Look, that comes only after Cancel: until then, the device
// may still use the collective's memory. A device that has not let go of a
// collective 5 s after Cancel hangs, and its launches are destroyed.
// Requires: the Launch is destroyed before its transport.
// Thread-safety: one thread at a time calls Begin and Look. Any thread may call
// WaitOnStream, also at the same time.
class Launch {
 public:
  virtual ~Launch() = default;

  enum class State {
    kLaunching,  // the device's library is still launching it
    kQueued,     // on the device, behind the earlier ones
    kDone,       // the device no longer uses its memory
  };

  // Launches the collective. Called when all earlier ones are queued. Waits
  // neither for the device nor for other ranks: if the library has to wait, the
  // launch goes on in the background, and Begin returns kLaunching.
  virtual absl::StatusOr<State> Begin() = 0;

  // Returns the present state. Does not wait.
  virtual absl::StatusOr<State> Look() = 0;

  // Makes all work that is queued on `stream` from now on wait for the
  // collective. Returns UNIMPLEMENTED if the stream is being captured into a
  // graph.
  // Requires: the state is kQueued or kDone.
  virtual absl::Status WaitOnStream(Stream stream) = 0;
};

// Memory of one rank that the other ranks of its group may reach, too. The
// ranks call these functions in this order: they tell each other the addresses
// and call Reach, they tell each other the results, and call Settle.
// Thread-safety: thread-compatible. The destructor may be called on any thread,
// before the end of the transport or after it, but not while an operation uses
// the memory.
class RankMemory {
 public:
  virtual ~RankMemory() = default;

  // Returns the memory, which is 0 at first.
  virtual char* data() const = 0;
  // Returns the text by which other ranks reach the memory, of at most
  // kMostAddressBytes.
  virtual std::string Address() const = 0;
  static constexpr int64_t kMostAddressBytes = 160;

  // Reaches the memory of the others. The addresses are by rank.
  virtual absl::Status Reach(absl::Span<const std::string> addresses) = 0;

  // If `is_shared` is true, all ranks have reached the memory of all, and
  // operations may use that from now on. Otherwise, the memory is this rank's
  // alone.
  virtual void Settle(bool is_shared) = 0;
};

// The calls that both kinds of transports have. Derive from Transport or
// DeviceTransport.
// Thread-safety: the table at the top of this file says which calls may run at
// the same time.
class TransportBase {
 public:
  // The destructor is the last call, also if Connect has failed. Other ranks
  // may still use the group. A Transport was cancelled before, unless the group
  // failed before Connect was called. A DeviceTransport was not, if all that it
  // launched is done and the group has not failed: then its data may still be
  // on the way to other ranks, and the destructor lets it arrive.
  virtual ~TransportBase() = default;

  // Returns the name for error messages: "shm".
  virtual absl::string_view name() const = 0;

  // Returns UNIMPLEMENTED or INVALID_ARGUMENT if the transport can't do `op`,
  // which has no number yet. The engine refuses op.after for a Transport. The
  // answer should be the same on all ranks: a rank that is refused issues
  // nothing, and the others would wait for it.
  virtual absl::Status CheckSupported(const Operation& op) const = 0;

  // Returns true if the transport does all-reduces of shards. Their data do not
  // lie as those of other reductions (Operation::in), so a transport that does
  // not say so gets none: the call is UNIMPLEMENTED.
  virtual bool adds_shards() const { return false; }

  // Connects to the other ranks. Waits for them for any length of time. Called
  // once.
  virtual absl::Status Connect() = 0;

  // Makes memory of this rank for Communicator::Allocate. A transport whose
  // ranks can't reach each other's memory need not override it. After an error,
  // all ranks take memory of their own that no other rank reaches, and users
  // are shown the message.
  virtual absl::StatusOr<std::unique_ptr<RankMemory>> Allocate(
      int64_t /*bytes*/) {
    return absl::UnimplementedError(
        absl::StrCat("ranks can't reach each other's memory over ", name()));
  }

  // Send to and receive from another rank, never this one. The n-th Send to a
  // rank belongs to that rank's n-th Recv from this one. The engine makes
  // `tag` of the message's number, its name, and the number and the type of its
  // elements, so both ranks should have the same. If the tags differ, nothing
  // is written into `out`, and the calls wait for ever or return
  // FAILED_PRECONDITION. A Send may return before the data was received, if
  // neither Cancel nor the destructor can lose it any more.
  virtual absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) = 0;
  virtual absl::Status Recv(int from, const Buffer& out, uint64_t tag) = 0;

  // Copies the data that a rank sends to itself. Both buffers have the same
  // number of elements. Returns when the copy is complete. This one is for
  // memory of the host: a transport for memory of a device overrides it.
  virtual absl::Status Move(const ConstBuffer& in, const Buffer& out) {
    if (in.count > 0) {
      std::memmove(out.data, in.data,
                   static_cast<size_t>(in.count * SizeOf(in.dtype)));
    }
    return absl::OkStatus();
  }

  // Cancels all calls, for good. It may be called more than once. It returns
  // within milliseconds, and calls no library that may hang: a transport that
  // has to call one does so on a thread of its own. Calls that are running
  // return soon, with any status, and later ones return at once. One Begin may
  // still come, and returns an error. Look returns kDone soon for each
  // collective that was launched. The caller's memory is not in use any more
  // when the call has returned or Look has returned kDone. Cancel does not tell
  // the other ranks.
  virtual void Cancel() = 0;
};

// The transport of one rank of a group, if the host does the collectives.
class Transport : public TransportBase {
 public:
  // Begins the collective that the next Run will do, without waiting: gives the
  // other ranks all that they need from this one, and returns true. Run then
  // does the rest. The rank may come to Run much later, or never if the group
  // fails. So Post returns false if it would have to wait, if the caller's
  // memory is in use after the call, or if the others need this rank once more.
  // Then Run comes soon, and goes on with what Post may have begun. A transport
  // need not override it.
  virtual bool Post(const Operation& /*op*/, uint64_t /*fingerprint*/) {
    return false;
  }

  // Does a collective. Returns when this rank's output is complete, its input
  // is not needed any more, and the other ranks can end theirs even if this one
  // is then cancelled and destroyed. Applies op.scale, and divides for an
  // average. Floats are reduced in the order of ranks, and shards along their
  // tree; f16 and bf16 are rounded once. So all backends on the host give the
  // same bits.
  // (perform.h does that for ranks that share memory. A transport that reduces
  // in another order says so in ConformanceOptions.)
  //
  // All ranks have the same `fingerprint`. If another rank has a different one,
  // no byte of one operation reaches the memory of the other. Then the call
  // goes on waiting, or returns FAILED_PRECONDITION if it notices the
  // difference. It may end well on a rank that shares data only with ranks that
  // have the same one. The same applies to an all-to-all whose counts
  // contradict each other: its counts are not in the fingerprint.
  virtual absl::Status Run(const Operation& op, uint64_t fingerprint) = 0;
};

// The transport of one rank of a group, if a device does the collectives.
class DeviceTransport : public TransportBase {
 public:
  // Makes a Launch for a collective. The device does the collective after the
  // work that is queued on the stream `op.after` by now. Returns UNIMPLEMENTED
  // if that stream is being captured into a graph. A device compares no
  // fingerprints: if ranks differ, it waits for ever, or writes meaningless
  // data. The engine finds that out at a heartbeat.
  virtual absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op) = 0;

  // Makes memory of the device for Communicator::Allocate, which is 0. Its
  // owner may be destroyed on any thread, before the end of the transport or
  // after it. A transport that has no such memory need not override it, but
  // then Gradients can't use it on its device.
  virtual absl::StatusOr<std::shared_ptr<void>> AllocateOnDevice(
      int64_t /*bytes*/) {
    return absl::UnimplementedError(
        absl::StrCat(name(), " makes no memory of its device"));
  }

  // Returns memory of the device in which the ranks tell each other what they
  // have allocated: kNoticeBytes for this rank, and as many for each rank of
  // the group. A transport without AllocateOnDevice has none.
  virtual Buffer notices() const { return {}; }
  static constexpr int64_t kNoticeBytes = 512;
};

// A transport of either kind. A pointer to one of them converts to it.
using AnyTransport =
    std::variant<std::unique_ptr<Transport>, std::unique_ptr<DeviceTransport>>;

// Makes one rank's transport of a group. All fields of the context are set.
// Called for each group, and for each that is split off it.
using TransportFactory = std::function<absl::StatusOr<AnyTransport>(
    const TransportContext& context)>;

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TRANSPORT_H_
