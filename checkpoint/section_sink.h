// Where the sections of a checkpoint go when it is saved: into a file, piece by
// piece, or into a copy in memory, which is written later. Internal.
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

// The most bytes that go into a file, or between ranks, at once.
inline constexpr int64_t kPiece = int64_t{1} << 20;

// The version of what all sections mean.
inline constexpr uint32_t kVersion = 1;

// Thread-safety: thread-compatible.
class SectionSink {
 public:
  // From now on, sections go into this file, or, for nullptr, into a copy.
  void Start(std::unique_ptr<CheckpointWriter> writer);

  // Returns the file.
  CheckpointWriter* writer() const { return writer_.get(); }

  // Takes memory for a copy of so many sections with so many bytes in all, and
  // no more than that.
  void Reserve(int64_t sections, int64_t bytes);

  // Memory that is copied from the address `like` gets to a place that lies
  // alike in the lines of the processor's cache, which is a tenth faster.
  absl::Status Begin(absl::string_view name,
                     std::optional<DType> dtype = std::nullopt,
                     const void* like = nullptr);

  // Returns memory for the next bytes of the section: for all that are wanted,
  // or for fewer.
  absl::Span<char> Room(int64_t wanted);
  // Takes the bytes that were put there.
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

  // Throws std::bad_alloc where there is not so much memory.
  void Grow(int64_t bytes);

  std::unique_ptr<CheckpointWriter> writer_;
  std::vector<Entry> entries_;
  // It only grows: memory that the system has just given is slow to fill.
  std::unique_ptr<char, Free> memory_;
  int64_t size_ = 0;
  int64_t used_ = 0;
};

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SECTION_SINK_H_
