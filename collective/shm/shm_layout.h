// The layout of the memory that each rank shares with the others: a Control, a
// ring to each other rank, and two slots.
//
//   const ShmLayout layout(size);
//   SharedMemory::Create(layout.total);
#ifndef LOCKSTEP_COLLECTIVE_SHM_SHM_LAYOUT_H_
#define LOCKSTEP_COLLECTIVE_SHM_SHM_LAYOUT_H_

#include <atomic>
#include <cstdint>

#include "lockstep/base/language.h"
#include "lockstep/collective/shm/message_ring.h"
#include "lockstep/collective/shm/shared_word.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

constexpr int kMostShmRanks = 1024;

// The bytes of a slot. Copying a slot takes longer than ranks need to meet, and
// two slots fit into the cache of a processor.
constexpr int64_t kSlotBytes = 512 << 10;
// An all-to-all has two counts for each rank before the regions of a slot.
static_assert(kSlotBytes >= kMostShmRanks * (16 + kCacheLine));

// Where data lie in the memory that a rank has lent.
struct Place {
  uint64_t memory = 0;  // its number at the rank that lends it; 0: in none
  int64_t offset = 0;   // in bytes
};

// The places of the data that a rank has lent for an operation. They are stored
// and loaded with relaxed order, for the same reason as `fingerprints` below.
// Thread-safety: thread-safe, also between processes.
class LentPlaces {
 public:
  void Store(const Place& in, const Place& out) {
    in_.Store(in);
    out_.Store(out);
  }
  Place in() const { return in_.Load(); }
  Place out() const { return out_.Load(); }

 private:
  struct Shared {
    void Store(const Place& place) {
      memory.store(place.memory, std::memory_order_relaxed);
      offset.store(place.offset, std::memory_order_relaxed);
    }
    Place Load() const {
      return {memory.load(std::memory_order_relaxed),
              offset.load(std::memory_order_relaxed)};
    }

    std::atomic<uint64_t> memory{0};
    std::atomic<int64_t> offset{0};
  };

  Shared in_;
  Shared out_;
};

// The state of a rank's collectives. Only the rank itself writes it, except for
// `mapped` and the counts of sleeping threads in the words.
//
// Collectives go in steps, which are numbered from 1 over all operations. In
// each step, a rank puts the data that others need into its slot step % 2, then
// its fingerprint into `fingerprints`, and then adds 1 to `ready`. It waits
// until all ranks are ready, and takes the data that it needs from their slots.
// So a rank that is ready for a step has finished the step before. When all are
// ready, nobody reads the slot of that earlier step any more.
//
// In the first step of a large operation, a rank says where its data lie. If
// all that give data have lent them, the others take them there.
//
// Thread-safety: thread-safe, also between processes.
struct Control {
  // The number of other ranks that have mapped this memory, which they add to.
  alignas(kCacheLine) SharedWord mapped;
  // The last step that the rank is ready for.
  alignas(kCacheLine) SharedWord ready;
  // The fingerprints, by slot. They are stored and loaded with relaxed order,
  // since `ready` publishes them: the store comes before the Add, and the load
  // comes after the Load that sees this Add.
  std::atomic<uint64_t> fingerprints[2]{};
  // True from before a Run returns an error.
  std::atomic<bool> failed{false};
  // The places of the data in the first step of a large operation, by slot.
  alignas(kCacheLine) LentPlaces places[2];

  static_assert(std::atomic<uint64_t>::is_always_lock_free,
                "processes share them");
};

// Offsets and sizes in bytes, which are the same on all ranks of a group.
struct ShmLayout {
  explicit ShmLayout(int size) {
    while (ring_bytes * size > kMostBytesOfRings) ring_bytes /= 2;
    ring_stride = static_cast<int64_t>(sizeof(RingCounters)) + ring_bytes;
    slots = rings + (size - 1) * ring_stride;
    total = slots + 2 * kSlotBytes;
  }

  static constexpr int64_t kMostBytesOfRings = 4 << 20;

  int64_t rings = sizeof(Control);  // where the rings begin
  int64_t ring_bytes = 64 << 10;    // of the data of a ring; a power of two
  int64_t ring_stride = 0;          // from one ring to the next one
  int64_t slots = 0;                // where the slots begin
  int64_t total = 0;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_SHM_LAYOUT_H_
