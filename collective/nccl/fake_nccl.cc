// The NCCL of fake_gpu.h.
//
// Ranks meet in a file that all of them map. Every operation consists of
// messages between two ranks (or of a rank with itself): an all-reduce is a
// message to each rank and one from each. A message carries the identity of its
// operation, so that a rank with another operation never receives it (or, if a
// switch asks for this, only its number of bytes). A send ends when the message
// was received, so that the sender waits, too.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>  // NOLINT: sleeping between two looks
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>  // NOLINT: names of files
#include <string>
#include <thread>  // NOLINT: sleeping between two looks
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/float16.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/gpu/fake_gpu.h"

namespace lockstep::internal_collective {
namespace {

using internal_gpu::CudaStream;
using internal_gpu::FakeCurrentDevice;
using internal_gpu::FakeEnqueue;
using internal_gpu::FakeGpuGet;
using internal_gpu::FakeMemory;
using internal_gpu::FakeMemoryAt;

constexpr int kMostSeats = 16;
constexpr size_t kChunk = size_t{64} << 10;

// A channel from one rank to another, for one chunk at a time. Zeroed memory is
// an empty channel.
// Memory ordering: the sender writes `operation` and `data` and then increments
// `written`; the receiver copies them and then increments `read`. Each side
// loads the other's counter before it touches `data`. Acquire and release would
// be enough; the default order is stronger.
struct Channel {
  std::atomic<uint32_t> written;  // chunks written so far
  std::atomic<uint32_t> read;
  uint64_t operation;  // identity of the chunk that is in the channel
  char data[kChunk];
};

// A rank's entry in the file.
struct Seat {
  int device;
  std::atomic<bool> taken;  // set after the other fields were written
  std::atomic<bool> used;   // set when its rank has called an operation
};

// The contents of the file. Collectives have one channel and messages that
// users send have another.
struct Meeting {
  Seat seats[kMostSeats];
  Channel channels[kMostSeats][kMostSeats][2];  // from, to
};

// The factor of the inputs of a sum.
struct Scalar {
  NcclDataType type;
  const void* on_device;  // or nullptr
  char value[8];
};

enum class Kind {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kSend,
  kRecv,
};

struct Operation {
  Kind kind;
  const void* in;
  void* out;
  size_t count;
  NcclDataType type;
  NcclRedOp op;
  int peer;  // or root
  std::shared_ptr<NcclComm> comm;
  CudaStream* stream;
  std::optional<Scalar> scalar;
};

}  // namespace

// A communicator. The user's handle, the operations that are queued on streams,
// and threads in a call (while another thread aborts it) keep it alive.
// Thread-safety: as NCCL's: one thread calls at a time, and any may abort.
struct NcclComm : std::enable_shared_from_this<NcclComm> {
  ~NcclComm() {
    if (meeting != nullptr) munmap(meeting, sizeof(Meeting));
  }

  std::shared_ptr<NcclComm> handle;  // this object, until it is destroyed
  int device = 0;
  bool blocking = true;
  const bool lazy = FakeGpuGet("connects_lazily") != 0;
  const bool meets_by_bytes = FakeGpuGet("meets_by_bytes") != 0;

  std::string path;
  Meeting* meeting = nullptr;
  int size = 0;
  int rank = 0;
  bool complete = false;  // all ranks are known to have come

  Mutex mutex;
  CondVar changed;
  NcclResult error = NcclResult::kSuccess;
  std::atomic<bool> stopped{false};  // aborted
  bool running = false;
  bool finalized = false;
  uint64_t queued = 0;  // groups of operations
  uint64_t done = 0;
  long long operations = 0;
  long long polls = 0;  // how many more looks find it in progress
  std::vector<Scalar> scalars;
};

namespace {

// ---- Errors.

struct LastError {
  Mutex mutex;
  std::string text;
};
LastError& last_error = *new LastError;

NcclResult Error(NcclResult result, const std::string& text) {
  MutexLock lock(last_error.mutex);
  last_error.text = text;
  return result;
}

void Doze() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

std::shared_ptr<NcclComm> Keep(NcclComm* comm) {
  return comm == nullptr ? nullptr : comm->shared_from_this();
}

// ---- Meeting.

std::string Folder() {
  for (const char* variable : {"TEST_TMPDIR", "TMPDIR"}) {
    const char* const folder = std::getenv(variable);
    if (folder != nullptr) return folder;
  }
  return "/tmp";
}

// Returns true if `is_so` holds for the seats of all ranks.
template <typename Predicate>
bool All(const NcclComm& comm, const Predicate& is_so) {
  const Seat* const first = comm.meeting->seats;
  return std::all_of(first, first + comm.size, is_so);
}

bool AllTaken(const NcclComm& comm) {
  return All(comm, [](const Seat& seat) { return seat.taken.load(); });
}

NcclResult Join(NcclComm& comm, const std::string& path, int size, int rank) {
  comm.path = path;
  comm.size = size;
  comm.rank = rank;
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, sizeof(Meeting)) == 0) {
    memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED,
                  file, 0);
  }
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) {
    return Error(NcclResult::kSystemError, "can't map " + path);
  }
  comm.meeting = static_cast<Meeting*>(memory);
  Seat& mine = comm.meeting->seats[rank];
  mine.device = comm.device;
  mine.taken.store(true);
  if (AllTaken(comm)) unlink(path.c_str());  // the last one, at least, sees it
  return NcclResult::kSuccess;
}

// Returns an error if ranks share a device.
// Requires: all seats are taken.
NcclResult CheckDevices(const NcclComm& comm) {
  if (FakeGpuGet("allow_duplicate_gpu") != 0) return NcclResult::kSuccess;
  std::map<int, int> ranks;  // by device
  for (int rank = 0; rank < comm.size; ++rank) {
    const auto [other, fresh] =
        ranks.emplace(comm.meeting->seats[rank].device, rank);
    if (fresh) continue;
    return Error(NcclResult::kInvalidUsage, "Duplicate GPU detected: ranks " +
                                                std::to_string(other->second) +
                                                " and " + std::to_string(rank) +
                                                " are both on device " +
                                                std::to_string(other->first));
  }
  return NcclResult::kSuccess;
}

// Returns the state of the communicator's operations, and continues those that
// need it.
NcclResult State(NcclComm& comm) {
  MutexLock lock(comm.mutex);
  if (comm.error != NcclResult::kSuccess) return comm.error;
  if (!comm.complete) {
    if (!AllTaken(comm)) return NcclResult::kInProgress;
    comm.complete = true;
    comm.error = CheckDevices(comm);
    if (comm.error != NcclResult::kSuccess) return comm.error;
  }
  if (comm.lazy && comm.queued > 0 && !comm.stopped &&
      !All(comm, [](const Seat& seat) { return seat.used.load(); })) {
    return NcclResult::kInProgress;
  }
  const bool ends =
      comm.stopped ? comm.running : comm.finalized && comm.done < comm.queued;
  return ends ? NcclResult::kInProgress : comm.error;
}

// Returns an error if no further call on it is allowed.
NcclResult CheckReady(NcclComm* comm) {
  if (comm == nullptr) {
    return Error(NcclResult::kInvalidArgument, "the communicator is NULL");
  }
  const NcclResult state = State(*comm);
  if (state == NcclResult::kInProgress || comm->polls > 0) {
    return Error(NcclResult::kInvalidArgument,
                 "the last call on this communicator is still in progress");
  }
  return state;
}

// Returns the result of a call that began something on the communicator.
NcclResult Begun(NcclComm& comm) {
  if (!comm.blocking) {
    comm.polls = FakeGpuGet("in_progress");
    const NcclResult state = State(comm);
    const bool pending = state == NcclResult::kSuccess && comm.polls > 0;
    return pending ? NcclResult::kInProgress : state;
  }
  NcclResult state;
  while ((state = State(comm)) == NcclResult::kInProgress) Doze();
  return state;
}

void Stop(NcclComm& comm) {
  MutexLock lock(comm.mutex);
  comm.stopped = true;
  comm.changed.NotifyAll();
}

void GiveUp(NcclComm& comm) {
  if (!comm.complete) unlink(comm.path.c_str());
}

// ---- Reducing.

template <typename T>
T Load(const char* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

template <typename A>
A Combine(NcclRedOp op, A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    if (op == NcclRedOp::kMin) return std::min(a, b);
    if (op == NcclRedOp::kMax) return std::max(a, b);
    // Products and sums wrap around.
    const uint64_t x = static_cast<std::make_unsigned_t<A>>(a);
    const uint64_t y = static_cast<std::make_unsigned_t<A>>(b);
    return static_cast<A>(op == NcclRedOp::kProd ? x * y : x + y);
  } else {
    if (op == NcclRedOp::kMin) return std::fmin(a, b);
    if (op == NcclRedOp::kMax) return std::fmax(a, b);
    return op == NcclRedOp::kProd ? a * b : a + b;
  }
}

// Returns how many elements NCCL 2.28 reduces for a rank alone whose inputs
// have a factor: each block of threads takes its share, rounded down and then
// up to packs of 16 bytes, so the last elements may be left out.
size_t ReducedAlone(size_t count, size_t bytes_of_each) {
  const size_t bytes = count * bytes_of_each;
  const size_t blocks =
      std::clamp<size_t>((bytes + (16 << 10) - 1) / (16 << 10), 1, 32);
  const size_t pack = 16 / bytes_of_each;
  const size_t share = (count / blocks + pack - 1) / pack * pack;
  return std::min(count, blocks * share);
}

template <typename T>
void ReduceAs(const Operation& op,
              const std::vector<std::vector<char>>& parts) {
  using A = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  // NCCL makes a factor of the average's division, too.
  const bool has_factor = op.scalar.has_value() || op.op == NcclRedOp::kAvg;
  const size_t reduced = parts.size() == 1 && has_factor
                             ? ReducedAlone(op.count, sizeof(T))
                             : op.count;
  const char* scalar = nullptr;
  if (op.scalar.has_value()) {
    scalar = op.scalar->on_device == nullptr
                 ? op.scalar->value
                 : static_cast<const char*>(op.scalar->on_device);
  }
  for (size_t i = 0; i < reduced; ++i) {
    const auto value = [&](const std::vector<char>& part) {
      const A own = static_cast<A>(Load<T>(part.data(), i));
      if (scalar == nullptr) return own;
      return Combine(NcclRedOp::kProd, own, static_cast<A>(Load<T>(scalar, 0)));
    };
    A sum = value(parts[0]);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      sum = Combine(op.op, sum, value(parts[rank]));
    }
    if (op.op == NcclRedOp::kAvg) {
      sum = static_cast<A>(sum / static_cast<A>(parts.size()));
    }
    const T result(sum);
    std::memcpy(static_cast<char*>(op.out) + i * sizeof(T), &result, sizeof(T));
  }
}

struct TypeInfo {
  size_t bytes;
  void (*reduce)(const Operation&, const std::vector<std::vector<char>>&);
};

template <typename T>
constexpr TypeInfo kInfo = {sizeof(T), ReduceAs<T>};

// Indexed by NcclDataType.
constexpr TypeInfo kTypes[] = {
    kInfo<int8_t>,  kInfo<uint8_t>,  kInfo<int32_t>, kInfo<uint32_t>,
    kInfo<int64_t>, kInfo<uint64_t>, kInfo<Float16>, kInfo<float>,
    kInfo<double>,  kInfo<BFloat16>,
};
constexpr int kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);

const TypeInfo& Info(NcclDataType type) {
  return kTypes[static_cast<int>(type)];
}

// ---- Exchanging messages.

struct Message {
  const char* in = nullptr;  // to send, or
  char* out = nullptr;       // to receive
  size_t bytes = 0;
  uint64_t operation = 0;
  size_t moved = 0;
  bool all_moved = false;
};

// One queue for each peer's seat, lane and direction.
using Messages = std::map<std::tuple<int, int, bool>, std::deque<Message>>;

// Moves a chunk if this is possible now, and returns true if it did.
bool Step(Channel& channel, Message& message, bool sends) {
  const bool is_full = channel.written.load() != channel.read.load();
  if (message.all_moved || sends == is_full) return false;
  if (!sends && channel.operation != message.operation) return false;
  const size_t chunk = std::min(kChunk, message.bytes - message.moved);
  if (chunk > 0 && sends) {
    std::memcpy(channel.data, message.in + message.moved, chunk);
  } else if (chunk > 0) {
    std::memcpy(message.out + message.moved, channel.data, chunk);
  }
  if (sends) channel.operation = message.operation;
  ++(sends ? channel.written : channel.read);
  message.moved += chunk;
  message.all_moved = message.moved == message.bytes;
  return true;
}

// Returns false if the communicator was stopped before all messages were
// exchanged.
bool Exchange(NcclComm& comm, Messages messages) {
  int idle = 0;
  while (!messages.empty()) {
    if (comm.stopped) return false;
    ++idle;
    for (auto next = messages.begin(); next != messages.end();) {
      const auto [peer, lane, sends] = next->first;
      Channel& channel = sends ? comm.meeting->channels[comm.rank][peer][lane]
                               : comm.meeting->channels[peer][comm.rank][lane];
      std::deque<Message>& queue = next->second;
      if (Step(channel, queue.front(), sends)) idle = 0;
      const bool taken =
          !sends || channel.written.load() == channel.read.load();
      if (queue.front().all_moved && taken) queue.pop_front();
      next = queue.empty() ? messages.erase(next) : std::next(next);
    }
    if (idle > 100) {
      Doze();
    } else if (idle > 0) {
      std::this_thread::yield();
    }
  }
  return true;
}

// Returns a number that is the same on all ranks that do the same operation.
uint64_t Identity(const Operation& op) {
  if (op.comm->meets_by_bytes) return op.count * Info(op.type).bytes;
  const bool to_user = op.kind == Kind::kSend || op.kind == Kind::kRecv;
  const int kind = static_cast<int>(to_user ? Kind::kSend : op.kind);
  const int reduction = op.scalar.has_value() ? 5 : static_cast<int>(op.op);
  uint64_t identity = op.count;
  identity = identity * 16 + static_cast<int>(op.type);
  identity = identity * 8 + kind;
  identity = identity * 8 + reduction;
  return identity * kMostSeats + (to_user ? 0 : op.peer);
}

// The messages of the operations of a group, and the parts of its reductions.
// Thread-safety: thread-compatible.
class Program {
 public:
  Program(const NcclComm& comm, const std::vector<Operation>& operations)
      : comm_(comm), operations_(operations), parts_(operations.size()) {
    for (size_t i = 0; i < operations_.size(); ++i) {
      Add(operations_[i], parts_[i]);
    }
  }

  const Messages& messages() const { return messages_; }

  void Reduce() const {
    for (size_t i = 0; i < operations_.size(); ++i) {
      if (parts_[i].empty()) continue;
      Info(operations_[i].type).reduce(operations_[i], parts_[i]);
    }
  }

 private:
  void Add(const Operation& op, std::vector<std::vector<char>>& parts) {
    const size_t bytes = op.count * Info(op.type).bytes;
    const uint64_t identity = Identity(op);
    const int size = comm_.size;
    const char* const in = static_cast<const char*>(op.in);
    char* const out = static_cast<char*>(op.out);
    const bool is_root = op.peer == comm_.rank;
    const auto send = [&](int rank, const char* from, int lane = 0) {
      messages_[{rank, lane, true}].push_back({from, nullptr, bytes, identity});
    };
    const auto receive = [&](int rank, char* to, int lane = 0) {
      messages_[{rank, lane, false}].push_back({nullptr, to, bytes, identity});
    };
    const auto receive_parts = [&] {
      parts.assign(size, std::vector<char>(bytes));
      for (int rank = 0; rank < size; ++rank) receive(rank, parts[rank].data());
    };
    switch (op.kind) {
      case Kind::kAllReduce:
        for (int rank = 0; rank < size; ++rank) send(rank, in);
        return receive_parts();
      case Kind::kReduce:
        send(op.peer, in);
        if (is_root) receive_parts();
        return;
      case Kind::kReduceScatter:
        for (int rank = 0; rank < size; ++rank) send(rank, in + rank * bytes);
        return receive_parts();
      case Kind::kBroadcast:
        for (int rank = 0; rank < size && is_root; ++rank) send(rank, in);
        return receive(op.peer, out);
      case Kind::kAllGather:
        for (int rank = 0; rank < size; ++rank) {
          send(rank, in);
          receive(rank, out + rank * bytes);
        }
        return;
      case Kind::kSend:
        return send(op.peer, in, 1);
      case Kind::kRecv:
        return receive(op.peer, out, 1);
    }
  }

  const NcclComm& comm_;
  const std::vector<Operation>& operations_;
  std::vector<std::vector<std::vector<char>>> parts_;
  Messages messages_;
};

// Does what the switches ask for. Returns true if the group must not run.
bool Fails(NcclComm& comm, size_t operations)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(comm.mutex) {
  const long long first = comm.operations + 1;
  comm.operations += static_cast<long long>(operations);
  const long long faulty = FakeGpuGet("fault_rank");
  if (faulty >= 0 && faulty != comm.rank) return false;
  const auto is_now = [&](const char* name) {
    const long long number = FakeGpuGet(name);
    return number >= first && number <= comm.operations;
  };
  if (is_now("async_error_at")) {
    comm.error = static_cast<NcclResult>(FakeGpuGet("async_error"));
    Error(comm.error, "the switch async_error_at was set");
    comm.changed.NotifyAll();
    return true;
  }
  return is_now("hang_at");
}

// Runs a group of operations when its stream has come to it. A group that
// failed does not end before the communicator is aborted, as with NCCL's
// kernels.
void RunGroup(NcclComm& comm, const std::vector<Operation>& operations,
              uint64_t number) {
  {
    MutexLock lock(comm.mutex);
    while (!comm.stopped && comm.done + 1 < number) {
      comm.changed.Wait(comm.mutex);
    }
    if (!comm.stopped && Fails(comm, operations.size())) {
      while (!comm.stopped) comm.changed.Wait(comm.mutex);
    }
    comm.running = !comm.stopped;
  }
  if (!comm.stopped) {
    const Program program(comm, operations);
    if (Exchange(comm, program.messages())) program.Reduce();
  }
  MutexLock lock(comm.mutex);
  comm.running = false;
  ++comm.done;
  comm.changed.NotifyAll();
}

// ---- Groups.

struct Group {
  int depth = 0;
  NcclResult error = NcclResult::kSuccess;
  std::vector<Operation> operations;
};
thread_local Group group;

// Queues the operations since GroupStart, separately for each communicator and
// stream.
NcclResult Launch() {
  std::vector<Operation> rest = std::move(group.operations);
  group.operations.clear();
  NcclResult result = std::exchange(group.error, NcclResult::kSuccess);
  while (result == NcclResult::kSuccess && !rest.empty()) {
    const Operation first = rest.front();
    const auto others = std::stable_partition(
        rest.begin(), rest.end(), [&first](const Operation& each) {
          return each.comm == first.comm && each.stream == first.stream;
        });
    std::vector<Operation> operations(rest.begin(), others);
    rest.erase(rest.begin(), others);
    NcclComm& comm = *first.comm;
    MutexLock lock(comm.mutex);
    const uint64_t number = comm.queued + 1;
    if (!FakeEnqueue(first.stream, comm.device,
                     [comm = first.comm, operations = std::move(operations),
                      number] { RunGroup(*comm, operations, number); })) {
      return Error(NcclResult::kUnhandledCudaError,
                   "the stream is of another device than the communicator");
    }
    comm.queued = number;
    comm.meeting->seats[comm.rank].used.store(true);
  }
  return result;
}

NcclResult CheckBuffer(const NcclComm& comm, const char* name,
                       const void* buffer, size_t bytes) {
  if (bytes == 0) return NcclResult::kSuccess;
  const std::optional<FakeMemory> memory = FakeMemoryAt(buffer);
  if (!memory.has_value()) {
    return Error(NcclResult::kInvalidArgument,
                 std::string(name) + " is no memory of CUDA's");
  }
  if (memory->device >= 0 && memory->device != comm.device) {
    return Error(
        NcclResult::kInvalidArgument,
        std::string(name) + " is on device " + std::to_string(memory->device) +
            ", and the communicator on device " + std::to_string(comm.device));
  }
  return NcclResult::kSuccess;
}

NcclResult CheckOperation(Operation& op) {
  NcclResult result = CheckReady(op.comm.get());
  if (result != NcclResult::kSuccess) return result;
  NcclComm& comm = *op.comm;
  if (comm.stopped) {
    return Error(NcclResult::kInvalidUsage, "the communicator was aborted");
  }
  const int type = static_cast<int>(op.type);
  if (type < 0 || type >= kTypeCount) {
    return Error(NcclResult::kInvalidArgument, "unknown data type");
  }
  if (op.peer < 0 || op.peer >= comm.size) {
    return Error(NcclResult::kInvalidArgument,
                 "no rank " + std::to_string(op.peer));
  }
  const int custom = static_cast<int>(op.op) - 5;  // index of the user's
  if (custom >= static_cast<int>(comm.scalars.size())) {
    return Error(NcclResult::kInvalidArgument, "unknown reduction");
  }
  if (custom >= 0) op.scalar = comm.scalars[custom];
  if (custom >= 0 && op.scalar->type != op.type) {
    return Error(NcclResult::kInvalidArgument,
                 "the scalar of the reduction is of another type");
  }
  const size_t bytes = op.count * Info(op.type).bytes;
  const bool is_root = op.peer == comm.rank;
  const bool reads =
      op.kind != Kind::kRecv && (op.kind != Kind::kBroadcast || is_root);
  const bool writes =
      op.kind != Kind::kSend && (op.kind != Kind::kReduce || is_root);
  if (reads) result = CheckBuffer(comm, "the input", op.in, bytes);
  if (writes && result == NcclResult::kSuccess) {
    result = CheckBuffer(comm, "the output", op.out, bytes);
  }
  return result;
}

NcclResult Call(Operation op) {
  const NcclResult result = CheckOperation(op);
  if (result != NcclResult::kSuccess) {
    if (group.depth > 0) group.error = result;
    return result;
  }
  const bool is_message = op.kind == Kind::kSend || op.kind == Kind::kRecv;
  if (op.count > 0 || is_message) group.operations.push_back(op);
  if (group.depth > 0) return NcclResult::kSuccess;
  const NcclResult launched = Launch();
  return launched == NcclResult::kSuccess ? Begun(*op.comm) : launched;
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = static_cast<int>(FakeGpuGet("version"));
  return NcclResult::kSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "%08x%08x%08x", random(),
                random(), random());
  return NcclResult::kSuccess;
}

const char* ncclGetErrorString(NcclResult result) {
  constexpr const char* kTexts[] = {
      "no error",       "unhandled cuda error", "unhandled system error",
      "internal error", "invalid argument",     "invalid usage",
      "remote error",   "operation in progress"};
  const int number = static_cast<int>(result);
  const bool known = number >= 0 && number <= 7;
  return known ? kTexts[number] : "unknown result";
}

const char* ncclGetLastError(NcclComm* comm) {
  thread_local std::string text;
  MutexLock lock(last_error.mutex);
  text = last_error.text;
  return text.c_str();
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int size, NcclUniqueId id,
                                  int rank, NcclConfig* config) {
  *comm = nullptr;
  if (size < 1 || size > kMostSeats || rank < 0 || rank >= size) {
    return Error(
        NcclResult::kInvalidArgument,
        "no rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  if (config->magic != NcclConfig().magic) {
    return Error(NcclResult::kInvalidArgument, "the config is not initialized");
  }
  auto fresh = std::make_shared<NcclComm>();
  fresh->blocking = config->blocking != 0;
  fresh->device = FakeCurrentDevice();
  const std::string path =
      Folder() + "/lockstep_fake_nccl_" + std::string(id.internal);
  NcclResult result = Join(*fresh, path, size, rank);
  if (result != NcclResult::kSuccess) return result;
  result = Begun(*fresh);
  if (fresh->blocking && result != NcclResult::kSuccess) return result;
  *comm = fresh.get();
  fresh->handle = fresh;
  return fresh->blocking ? result : NcclResult::kInProgress;
}

NcclResult ncclCommFinalize(NcclComm* comm) {
  const std::shared_ptr<NcclComm> kept = Keep(comm);
  const NcclResult result = CheckReady(comm);
  if (result != NcclResult::kSuccess) return result;
  if (comm->stopped || comm->finalized) {
    return Error(NcclResult::kInvalidUsage, "the communicator was finalized");
  }
  comm->finalized = true;
  return Begun(*comm);
}

NcclResult ncclCommAbort(NcclComm* comm) {
  Stop(*comm);
  const std::shared_ptr<NcclComm> kept = std::move(comm->handle);
  MutexLock lock(comm->mutex);
  while (comm->running) comm->changed.Wait(comm->mutex);
  GiveUp(*comm);
  return NcclResult::kSuccess;
}

NcclResult ncclCommDestroy(NcclComm* comm) {
  {
    MutexLock lock(comm->mutex);
    while (comm->error == NcclResult::kSuccess && !comm->stopped &&
           comm->done < comm->queued) {
      comm->changed.Wait(comm->mutex);
    }
  }
  return ncclCommAbort(comm);
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* error) {
  const std::shared_ptr<NcclComm> kept = Keep(comm);
  *error = State(*comm);
  if (*error == NcclResult::kSuccess && comm->polls > 0) {
    --comm->polls;
    *error = NcclResult::kInProgress;
  }
  return NcclResult::kSuccess;
}

NcclResult ncclAllReduce(const void* in, void* out, size_t count,
                         NcclDataType type, NcclRedOp op, NcclComm* comm,
                         CudaStream* stream) {
  return Call(
      {Kind::kAllReduce, in, out, count, type, op, 0, Keep(comm), stream, {}});
}

NcclResult ncclBroadcast(const void* in, void* out, size_t count,
                         NcclDataType type, int root, NcclComm* comm,
                         CudaStream* stream) {
  return Call({Kind::kBroadcast,
               in,
               out,
               count,
               type,
               NcclRedOp::kSum,
               root,
               Keep(comm),
               stream,
               {}});
}

NcclResult ncclReduce(const void* in, void* out, size_t count,
                      NcclDataType type, NcclRedOp op, int root, NcclComm* comm,
                      CudaStream* stream) {
  return Call(
      {Kind::kReduce, in, out, count, type, op, root, Keep(comm), stream, {}});
}

NcclResult ncclAllGather(const void* in, void* out, size_t in_count,
                         NcclDataType type, NcclComm* comm,
                         CudaStream* stream) {
  return Call({Kind::kAllGather,
               in,
               out,
               in_count,
               type,
               NcclRedOp::kSum,
               0,
               Keep(comm),
               stream,
               {}});
}

NcclResult ncclReduceScatter(const void* in, void* out, size_t out_count,
                             NcclDataType type, NcclRedOp op, NcclComm* comm,
                             CudaStream* stream) {
  return Call({Kind::kReduceScatter,
               in,
               out,
               out_count,
               type,
               op,
               0,
               Keep(comm),
               stream,
               {}});
}

NcclResult ncclSend(const void* in, size_t count, NcclDataType type, int peer,
                    NcclComm* comm, CudaStream* stream) {
  return Call({Kind::kSend,
               in,
               nullptr,
               count,
               type,
               NcclRedOp::kSum,
               peer,
               Keep(comm),
               stream,
               {}});
}

NcclResult ncclRecv(void* out, size_t count, NcclDataType type, int peer,
                    NcclComm* comm, CudaStream* stream) {
  return Call({Kind::kRecv,
               nullptr,
               out,
               count,
               type,
               NcclRedOp::kSum,
               peer,
               Keep(comm),
               stream,
               {}});
}

NcclResult ncclGroupStart() {
  ++group.depth;
  return NcclResult::kSuccess;
}

NcclResult ncclGroupEnd() {
  if (group.depth == 0) {
    return Error(NcclResult::kInvalidUsage, "GroupEnd without GroupStart");
  }
  if (--group.depth > 0) return NcclResult::kSuccess;
  std::vector<std::shared_ptr<NcclComm>> comms;
  for (const Operation& op : group.operations) comms.push_back(op.comm);
  NcclResult result = Launch();
  for (const auto& comm : comms) {
    if (result == NcclResult::kSuccess) result = Begun(*comm);
  }
  return result;
}

NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar,
                                    NcclDataType type,
                                    NcclScalarResidence residence,
                                    NcclComm* comm) {
  const std::shared_ptr<NcclComm> kept = Keep(comm);
  const NcclResult result = CheckReady(comm);
  if (result != NcclResult::kSuccess) return result;
  Scalar made = {type, nullptr, {}};
  if (residence == NcclScalarResidence::kDevice) {
    made.on_device = scalar;
  } else {
    std::memcpy(made.value, scalar, Info(type).bytes);
  }
  *op = static_cast<NcclRedOp>(5 + comm->scalars.size());
  comm->scalars.push_back(made);
  return NcclResult::kSuccess;
}

// Handles are not used again. The communicator keeps their scalars.
NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm* comm) {
  const int custom = static_cast<int>(op) - 5;
  if (custom < 0 || custom >= static_cast<int>(comm->scalars.size())) {
    return Error(NcclResult::kInvalidArgument, "no reduction of the user's");
  }
  return NcclResult::kSuccess;
}

}  // extern "C"
}  // namespace lockstep::internal_collective
