// The sections of a Checkpoint: what a trainer adds to it.
//
//   CheckpointState state;
//   state.save = [&] { return random.SaveState(); };
//   state.load = [&](absl::string_view bytes) {
//     return random.RestoreState(bytes);
//   };
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("random", state));
//
// checkpoint.h includes this header.
#ifndef LOCKSTEP_CHECKPOINT_SECTION_H_
#define LOCKSTEP_CHECKPOINT_SECTION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {

// A section of arbitrary bytes.
struct CheckpointState {
  // Save calls this on rank 0.
  std::function<absl::StatusOr<std::optional<std::string>>()> save;

  // Restore calls this on each rank, with the saved bytes, and so does
  // RestoreFrom if it takes this section. It is not called if no file with this
  // section is restored.
  std::function<absl::Status(absl::string_view bytes)> load;

  // True if `save` may return nullopt. Then the section is left out, and
  // Restore accepts a checkpoint without it.
  bool may_be_missing = false;
};

// A section of elements in memory that only the trainer can access, such as
// memory of a device. The functions copy a piece of the section's bytes, and
// return when the copy is complete. Offsets are in bytes.
struct CheckpointMemory {
  DType dtype = DType::kF32;
  int64_t count = 0;  // elements
  std::function<absl::Status(int64_t offset, absl::Span<char> to)> read;
  std::function<absl::Status(int64_t offset, absl::string_view from)> write;
};

// Returns true if a checkpoint has a section of that name beside those that
// are added.
bool IsOwnSection(absl::string_view name);

namespace internal_checkpoint {

// The sections that a checkpoint has beside those that are added.
inline constexpr char kStep[] = "step";
inline constexpr char kJob[] = "job";
inline constexpr char kBest[] = "best value";     // of a file of SaveIfBest
inline constexpr char kNoted[] = "noted values";  // of SaveIfBest until then

// Returns the memory that `find` finds. It is found anew for each use, and must
// keep its size.
CheckpointMemory MemoryOf(std::function<Buffer()> find);

// One section.
// Thread-safety: thread-compatible.
struct Section {
  std::string name;
  CheckpointMemory memory;       // for a section of elements
  std::function<Buffer()> find;  // finds the elements on the host, if set
  CheckpointState state;         // for a section of bytes
  bool is_part = false;
  std::vector<int64_t> counts;  // the sizes of all ranks' parts

  bool is_state() const { return state.load != nullptr; }
  // The bytes of this rank, and those of all ranks' parts.
  int64_t bytes() const;
  int64_t all_bytes() const;
  // Returns an error if the saved section does not fit, such as "has 3 elements
  // of f32, and this program's has 4 elements of f32".
  absl::Status CheckFits(const CheckpointSection& saved) const;
};

// The sections of a checkpoint, in the order in which they were added.
// Thread-safety: thread-compatible.
class Sections {
 public:
  // Returns an error if a section can't be added under this name.
  absl::Status CheckName(absl::string_view name) const;

  // Adds a section, or returns an error if the section lacks something.
  // Requires: CheckName has accepted the name.
  absl::Status Add(absl::string_view name, Section section);

  // Returns nullptr if there is no section of that name.
  const Section* Find(absl::string_view name) const;

  // Adds the facts that ranks compare.
  void Describe(Fingerprint& layout) const;

  // Gets the sizes of all ranks' parts.
  absl::Status DealParts(Communicator& group);

  std::vector<Section>::const_iterator begin() const { return all_.begin(); }
  std::vector<Section>::const_iterator end() const { return all_.end(); }
  int64_t size() const { return static_cast<int64_t>(all_.size()); }

 private:
  std::vector<Section> all_;
};

}  // namespace internal_checkpoint
}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_SECTION_H_
