// Reads the input as a checkpoint file, as it is and with its checksums put
// right. The sections of a file that is accepted fit into it, can be read, and
// are the same when they are written and read again.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {
namespace {

// The places of fields in the headers, which have 64 bytes each.
constexpr size_t kHeader = 64, kNameBytes = 8, kCount = 8, kBytes = 16,
                 kDigest = 24, kChecksum = 56;

template <typename T>
T Get(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, &bytes[at], sizeof(value));
  return value;
}

template <typename T>
void Put(const T& value, size_t at, std::string& bytes) {
  std::memcpy(&bytes[at], &value, sizeof(value));
}

void PutChecksum(size_t at, size_t size, std::string& bytes) {
  Put(uint64_t{0}, at + kChecksum, bytes);
  Put(DigestOf(absl::string_view(bytes).substr(at, size)).low, at + kChecksum,
      bytes);
}

// Writes the checksums and digests of all that fits.
void PutRight(std::string& bytes) {
  if (bytes.size() < 2 * kHeader) return;
  PutChecksum(0, kHeader, bytes);
  std::string headers;
  uint64_t count = 0;
  size_t at = kHeader;
  for (; at + kHeader <= bytes.size() && bytes.substr(at, 4) == "LSCS";
       ++count) {
    const size_t name = Get<uint32_t>(bytes, at + kNameBytes);
    const auto content = Get<uint64_t>(bytes, at + kBytes);
    const size_t room = bytes.size() - at - kHeader;
    if (name > room || content > room - name) return;
    internal_checkpoint::PieceDigest digest;
    digest.Add(absl::string_view(bytes).substr(at + kHeader + name, content));
    Put(digest.Finish(), at + kDigest, bytes);
    PutChecksum(at, kHeader + name, bytes);
    headers += bytes.substr(at, kHeader + name);
    at += kHeader + name + content;
  }
  if (at + kHeader > bytes.size()) return;
  Put(count, at + kCount, bytes);
  Put(uint64_t{at}, at + kBytes, bytes);
  Put(DigestOf(headers), at + kDigest, bytes);
  PutChecksum(at, kHeader, bytes);
}

std::string Content(const CheckpointReader& reader,
                    const CheckpointSection& section) {
  std::string bytes(section.bytes, '\0');
  LOCKSTEP_CHECK(reader.Read(section, 0, absl::MakeSpan(bytes)).ok());
  char one = 0;
  LOCKSTEP_CHECK(absl::IsOutOfRange(
      reader.Read(section, section.bytes, absl::MakeSpan(&one, 1))));
  return bytes;
}

// Writes the same sections to `path`.
absl::Status Write(const CheckpointReader& reader, const std::string& path) {
  const auto writer = CheckpointWriter::Create(path);
  LOCKSTEP_CHECK(writer.ok());
  for (const CheckpointSection& section : reader.sections()) {
    LOCKSTEP_RETURN_IF_ERROR(
        (*writer)->Begin(section.name, section.version, section.dtype));
    LOCKSTEP_CHECK((*writer)->Append(Content(reader, section)).ok());
  }
  return (*writer)->Finish();
}

void Check(absl::string_view bytes) {
  static MemoryFile& file = *new MemoryFile();
  static const std::string& again = *new std::string(FuzzFolder() + "/again");
  file.Put(bytes);
  CheckpointReader::OpenHeaders(file.path()).IgnoreError();
  const auto reader = CheckpointReader::Open(file.path());
  if (!reader.ok()) return;
  ++fuzz_accepts;
  LOCKSTEP_CHECK(CheckpointReader::Recognize(file.path()).ok());
  const absl::Status written = Write(**reader, again);
  LOCKSTEP_CHECK(written.ok());
  const auto second = CheckpointReader::Open(again);
  LOCKSTEP_CHECK(second.ok());
  LOCKSTEP_CHECK((*second)->sections().size() == (*reader)->sections().size());
  for (const CheckpointSection& section : (*reader)->sections()) {
    const CheckpointSection* const same = (*second)->Find(section.name);
    LOCKSTEP_CHECK(same != nullptr && same->dtype == section.dtype &&
                   same->version == section.version);
    LOCKSTEP_CHECK(Content(**second, *same) == Content(**reader, section));
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  lockstep::Check(bytes);
  lockstep::PutRight(bytes);
  lockstep::Check(bytes);
  return 0;
}
