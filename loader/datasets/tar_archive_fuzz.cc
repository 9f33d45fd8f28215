// Walks over the input as a tar file, as it is, with the checksums of headers
// put right, and cut. All members lie one behind the other in the file, a walk
// can begin at each, and no archive is accepted if its end is cut. If an index
// of it can be written, it is read as the headers are.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_testing.h"

namespace lockstep::internal_loader {
namespace {

using Members = std::vector<TarMember>;

constexpr int kMostRepairs = 64;
constexpr size_t kMostBegins = 16;

const OpenTar Open(absl::string_view bytes) {
  static MemoryFile& file = *new MemoryFile();
  file.Put(bytes);
  return OpenTar(file.path());
}

absl::StatusOr<Members> Walk(const OpenTar& file, int64_t begin) {
  TarWalk walk(*file, file.path(), file.size(), begin);
  Members members;
  int64_t end = begin;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const member, walk.Next());
    if (member == nullptr) break;
    LOCKSTEP_CHECK(member->offset % kTarBlock == 0);
    LOCKSTEP_CHECK(member->offset >= end + kTarBlock);
    LOCKSTEP_CHECK(member->size >= 0);
    LOCKSTEP_CHECK(member->size <= file.size() - member->offset);
    end = TarEnd(member->offset, member->size);
    members.push_back(*member);
  }
  LOCKSTEP_CHECK(end <= file.size() - 2 * kTarBlock);
  return members;
}

void CheckEqual(const Members& members, size_t from, const Members& others) {
  LOCKSTEP_CHECK(members.size() - from == others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    const TarMember& member = members[from + i];
    LOCKSTEP_CHECK(member.name == others[i].name);
    LOCKSTEP_CHECK(member.kind == others[i].kind);
    LOCKSTEP_CHECK(member.offset == others[i].offset);
    LOCKSTEP_CHECK(member.size == others[i].size);
    LOCKSTEP_CHECK(member.mark == others[i].mark);
    LOCKSTEP_CHECK(member.has_size == others[i].has_size);
  }
}

int64_t EndOf(const Members& members, size_t count) {
  return count == 0
             ? 0
             : TarEnd(members[count - 1].offset, members[count - 1].size);
}

void CheckIndex(const OpenTar& file) {
  ShardFields fields;
  fields.extensions = {{"txt", "json"}, {"cls"}, {"jpg"}};
  fields.skips = {false, true, false};
  fields.keeps_keys = true;
  std::atomic<int64_t> count{0};
  std::string text;
  const auto scanned =
      ScanShard(*file, file.path(), file.size(), fields, count, &text);
  if (!scanned.ok()) return;
  const auto parsed =
      ParseShardIndex(text, *file, file.path(), file.size(), fields, count);
  LOCKSTEP_CHECK(parsed.ok());
  LOCKSTEP_CHECK(parsed->digest == scanned->digest);
  LOCKSTEP_CHECK(parsed->keys == scanned->keys);
  LOCKSTEP_CHECK(parsed->samples == scanned->samples);
  LOCKSTEP_CHECK(parsed->skipped == scanned->skipped);
  LOCKSTEP_CHECK(parsed->unused == scanned->unused);
  LOCKSTEP_CHECK(parsed->members.size() == scanned->members.size());
  for (size_t i = 0; i < parsed->members.size(); ++i) {
    LOCKSTEP_CHECK(parsed->members[i].offset == scanned->members[i].offset);
    LOCKSTEP_CHECK(parsed->members[i].size == scanned->members[i].size);
    LOCKSTEP_CHECK(parsed->members[i].mark == scanned->members[i].mark);
  }
}

// Returns the status of the walk.
absl::Status Check(const std::string& bytes) {
  const OpenTar file = Open(bytes);
  const absl::StatusOr<Members> members = Walk(file, 0);
  if (!members.ok()) return members.status();
  fuzz_accepts += static_cast<int64_t>(members->size());
  for (size_t i = 0; i <= members->size() && i < kMostBegins; ++i) {
    const absl::StatusOr<Members> rest = Walk(file, EndOf(*members, i));
    LOCKSTEP_CHECK(rest.ok());
    CheckEqual(*members, i, *rest);
  }
  for (const TarMember& member : *members) {
    const auto header = absl::MakeConstSpan(bytes).subspan(
        member.offset - kTarBlock, kTarBlock);
    ShownName(header);
    LOCKSTEP_CHECK(
        member.kind != TarKind::kFile ||
        IsHeaderOf(header, member.mark, member.has_size ? member.size : -1));
  }
  CheckIndex(file);
  const auto end = static_cast<size_t>(EndOf(*members, members->size()));
  const absl::string_view whole = bytes;
  const absl::StatusOr<Members> shortest =
      Walk(Open(whole.substr(0, end + 2 * kTarBlock)), 0);
  LOCKSTEP_CHECK(shortest.ok());
  CheckEqual(*members, 0, *shortest);
  for (const size_t cut : {end + 2 * kTarBlock - 1, end + kTarBlock, end,
                           end / 2, size_t{bytes[0] & 0xffU}}) {
    if (cut >= end + 2 * kTarBlock) continue;
    LOCKSTEP_CHECK(!Walk(Open(whole.substr(0, cut)), 0).ok());
  }
  return absl::OkStatus();
}

// Returns the byte that an error names, if a header can be there.
std::optional<size_t> HeaderIn(const absl::Status& status, size_t size) {
  absl::string_view text = status.message();
  const size_t at = text.find("', byte ");
  if (at == absl::string_view::npos) return std::nullopt;
  text.remove_prefix(at + 8);
  size_t byte = 0;
  if (!absl::SimpleAtoi(text.substr(0, text.find(':')), &byte) ||
      byte % kTarBlock != 0 || byte + kTarBlock > size) {
    return std::nullopt;
  }
  return byte;
}

}  // namespace
}  // namespace lockstep::internal_loader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT: a fuzzer's only function
  using namespace lockstep::internal_loader;  // NOLINT
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (int i = 0; i < kMostRepairs; ++i) {
    const absl::Status status = Check(bytes);
    const std::optional<size_t> header = HeaderIn(status, size);
    if (status.ok() || !header.has_value()) break;
    const std::string before = bytes.substr(*header, kTarBlock);
    PutTarSum(bytes, *header);
    if (bytes.compare(*header, kTarBlock, before) == 0) break;
  }
  return 0;
}
