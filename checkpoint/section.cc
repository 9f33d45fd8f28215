#include "lockstep/checkpoint/section.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/share.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace lockstep {

bool IsOwnSection(absl::string_view name) {
  using internal_checkpoint::kBest;
  using internal_checkpoint::kJob;
  using internal_checkpoint::kNoted;
  using internal_checkpoint::kStep;
  return name == kStep || name == kJob || name == kBest || name == kNoted;
}

namespace internal_checkpoint {
namespace {

// Returns a text such as "100 elements of f32" or "100 bytes".
std::string SizeInWords(int64_t bytes, std::optional<DType> dtype) {
  if (!dtype.has_value()) return absl::StrCat(bytes, " bytes");
  return absl::StrCat(bytes / SizeOf(*dtype), " elements of ", Name(*dtype));
}

}  // namespace

CheckpointMemory MemoryOf(std::function<Buffer()> find) {
  const Buffer first = find();
  CheckpointMemory memory;
  memory.dtype = first.dtype;
  memory.count = first.count;
  const auto data = [find = std::move(find), count = first.count](
                        int64_t offset) -> absl::StatusOr<char*> {
    const Buffer now = find();
    if (now.count != count) {
      return absl::FailedPreconditionError(
          absl::StrCat("its vector has ", now.count, " elements, but had ",
                       count, " when it was added: give it this size again"));
    }
    return static_cast<char*>(now.data) + offset;
  };
  memory.read = [data](int64_t offset, absl::Span<char> to) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const char* const from, data(offset));
    std::memcpy(to.data(), from, to.size());
    return absl::OkStatus();
  };
  memory.write = [data](int64_t offset,
                        absl::string_view from) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(char* const to, data(offset));
    std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  };
  return memory;
}

int64_t Section::bytes() const { return memory.count * SizeOf(memory.dtype); }

int64_t Section::all_bytes() const {
  if (!is_part) return bytes();
  return std::accumulate(counts.begin(), counts.end(), int64_t{0}) *
         SizeOf(memory.dtype);
}

absl::Status Section::CheckFits(const CheckpointSection& saved) const {
  std::optional<DType> dtype;
  if (!is_state()) dtype = memory.dtype;
  if (saved.dtype == dtype && (is_state() || saved.bytes == all_bytes())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "has ", SizeInWords(saved.bytes, saved.dtype),
      ", and this program's has ",
      is_state() ? "bytes of no type" : SizeInWords(all_bytes(), dtype),
      is_part ? " in all ranks' parts" : ""));
}

absl::Status Sections::CheckName(absl::string_view name) const {
  const std::string shown = absl::CHexEscape(name.substr(0, 64));
  if (name.empty() || static_cast<int64_t>(name.size()) > kMostSectionName) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name of a section has ", name.size(), " bytes; accepted are 1 to ",
        kMostSectionName, ": '", shown, "'"));
  }
  if (IsOwnSection(name) || Find(name) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        "the checkpoint has a section '", shown,
        "' already: each needs a name of its own, and '", kStep, "', '", kJob,
        "', '", kBest, "' and '", kNoted, "' are taken"));
  }
  return absl::OkStatus();
}

absl::Status Sections::Add(absl::string_view name, Section section) {
  const CheckpointMemory& memory = section.memory;
  if (!section.is_state() && (memory.count < 0 || SizeOf(memory.dtype) == 0 ||
                              !memory.read || !memory.write)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the section '", absl::CHexEscape(name), "' has ", memory.count,
        " elements of ", lockstep::Name(memory.dtype),
        "; accepted are 0 or more of a known type, with both functions set"));
  }
  section.name = std::string(name);
  all_.push_back(std::move(section));
  return absl::OkStatus();
}

const Section* Sections::Find(absl::string_view name) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(),
                   [name](const Section& each) { return each.name == name; });
  return found == all_.end() ? nullptr : &*found;
}

void Sections::Describe(Fingerprint& layout) const {
  for (const Section& section : all_) {
    layout.Add(section.name,
               section.is_state()
                   ? "bytes"
                   : absl::StrCat(
                         section.is_part
                             ? "a part"
                             : absl::StrCat(section.memory.count, " elements"),
                         " of ", lockstep::Name(section.memory.dtype)));
  }
}

absl::Status Sections::DealParts(Communicator& group) {
  for (Section& section : all_) {
    if (!section.is_part) continue;
    section.counts.assign(group.size(), 0);
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.AllGather(
        ConstBufferOf(&section.memory.count, 1), BufferOf(section.counts),
        CallFor(InOperation("the parts of", section.name)))));
  }
  return absl::OkStatus();
}

}  // namespace internal_checkpoint
}  // namespace lockstep
