// SavedSections are the sections of a checkpoint file. Rank 0 reads the file,
// and gives all ranks what it reads. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const SavedSections saved,
//       SavedSections::Open(group, [&] { return store->OpenNewest(); }));
//   if (!saved.exists()) ...  // there is no file
//   for (const CheckpointSection& section : saved.sections()) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
//                               saved.ReadBytes(section));
//   }
#ifndef LOCKSTEP_CHECKPOINT_SAVED_SECTIONS_H_
#define LOCKSTEP_CHECKPOINT_SAVED_SECTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/section.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_checkpoint {

// Requires: all ranks call the same functions in the same order.
// Thread-safety: thread-compatible.
class SavedSections {
 public:
  using Reader = std::unique_ptr<CheckpointReader>;

  // Makes an object without a file and without sections.
  explicit SavedSections(Communicator& group) : group_(&group) {}

  // Calls `open` on rank 0, and returns its error or its sections on all ranks.
  // `open` may return nullptr, if there is no file.
  static absl::StatusOr<SavedSections> Open(
      Communicator& group, const std::function<absl::StatusOr<Reader>()>& open);

  bool exists() const { return !path_.empty(); }
  // The path of the file, on rank 0.
  const std::string& path() const { return path_; }
  absl::Span<const CheckpointSection> sections() const { return sections_; }
  // Returns nullptr if there is no section of that name.
  const CheckpointSection* Find(absl::string_view name) const;

  // Returns the bytes of a section on all ranks.
  absl::StatusOr<std::string> ReadBytes(const CheckpointSection& saved) const;

  // Loads the saved section into the trainer's section. If the section consists
  // of parts, each rank loads its own. If the trainer's functions return an
  // error, returns describe(error). Errors of the file and of the group are
  // returned as they are.
  absl::Status Load(
      const CheckpointSection& saved, const Section& section,
      const std::function<absl::Status(const absl::Status&)>& describe) const;

 private:
  // Calls `take` on each rank with the pieces of a section, in order.
  absl::Status ReadPieces(
      const CheckpointSection& saved,
      const std::function<absl::Status(int64_t offset, absl::string_view)>&
          take) const;

  Communicator* group_;
  Reader reader_;  // on rank 0
  std::string path_;
  std::vector<CheckpointSection> sections_;
};

// Gives all ranks rank 0's content of a section of elements that is no part.
absl::Status ShareSection(Communicator& group, const Section& section);

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SAVED_SECTIONS_H_
