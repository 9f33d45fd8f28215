// A SectionSink receives the sections of a checkpoint that is saved. It writes
// them to a file piece by piece, or copies them into memory for a later
// WriteTo. Internal.
//
//   SectionSink sink;
//   sink.Start(nullptr);  // a copy
//   LOCKSTEP_RETURN_IF_ERROR(sink.Begin("weights", DType::kF32));
//   LOCKSTEP_RETURN_IF_ERROR(sink.Put(bytes));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(sink.WriteTo(*writer));
#ifndef LOCKSTEP_CHECKPOINT_SECTION_SINK_H_
#define LOCKSTEP_CHECKPOINT_SECTION_SINK_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep::internal_checkpoint {

// Requires: Start comes first, then Begin for each section.
// Thread-safety: thread-compatible.
class SectionSink {
 public:
  // Starts a checkpoint. Sections go into the file of `writer`, or into a copy
  // if it is null.
  void Start(std::unique_ptr<CheckpointWriter> writer);

  // Returns the writer of the file, or nullptr for a copy.
  CheckpointWriter* writer() const { return writer_.get(); }

  // Allocates the memory for a copy of at most this many sections and bytes in
  // all.
  void Reserve(int64_t sections, int64_t bytes);

  // Begins a section. `like` is the address of its data, if known. The copy
  // gets the same offset within a line of the processor's cache, which makes
  // copying a tenth faster.
  absl::Status Begin(absl::string_view name,
                     std::optional<DType> dtype = std::nullopt,
                     const void* like = nullptr);

  // Returns memory for the next bytes of the section. It may be smaller than
  // wanted.
  absl::Span<char> Room(int64_t wanted);
  // Appends the first `bytes` bytes of that memory to the section.
  absl::Status Take(int64_t bytes);

  // Appends bytes to the section.
  absl::Status Put(absl::string_view bytes);

  // Writes the copy to a file.
  absl::Status WriteTo(CheckpointWriter& writer) const;

 private:
  struct Entry {
    std::string name;
    std::optional<DType> dtype;
    int64_t begin = 0;
    int64_t bytes = 0;
  };

  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  // Throws std::bad_alloc if there is not enough memory.
  void Grow(int64_t bytes);

  std::unique_ptr<CheckpointWriter> writer_;
  std::vector<Entry> entries_;
  // The memory never shrinks, since new memory of the system is slow to fill.
  std::unique_ptr<char, Free> memory_;
  int64_t size_ = 0;
  int64_t used_ = 0;
};

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SECTION_SINK_H_
