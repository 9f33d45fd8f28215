// Reads the input as the index of small tar files. Whatever is accepted
// lies in the file, and if the header of each member is the one that the index
// says, which is compared when it is read, then these are members of the file.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_testing.h"

namespace lockstep::internal_loader {
namespace {

const ShardFields& Fields() {
  static const ShardFields& fields = *[] {
    auto* const fields = new ShardFields();
    fields->extensions = {{"cls"}, {"txt"}, {"left.jpg"}};
    fields->skips = {false, false, false};
    fields->keeps_keys = true;
    return fields;
  }();
  return fields;
}

// A tar file, and the index of its headers.
// Thread-safety: thread-compatible.
class Shard {
 public:
  explicit Shard(const TarWriter& tar) : bytes_(tar.Finish()) {
    file_.Put(bytes_);
    const OpenTar file(file_.path());
    std::atomic<int64_t> members{0};
    std::string text;
    auto scanned =
        ScanShard(*file, file.path(), file.size(), Fields(), members, &text);
    LOCKSTEP_CHECK(scanned.ok());
    LOCKSTEP_CHECK(scanned->unused == 0);
    scanned_ = *std::move(scanned);
    for (const ShardMember& member : scanned_.members) {
      if (member.size >= 0) sizes_[member.offset] = member.size;
    }
    LOCKSTEP_CHECK(Check(text));
  }

  // Returns true if all is as the headers say.
  bool Check(absl::string_view text) const {
    const OpenTar file(file_.path());
    std::atomic<int64_t> members{0};
    const auto index = ParseShardIndex(text, *file, file.path(), file.size(),
                                       Fields(), members);
    if (!index.ok()) return false;
    LOCKSTEP_CHECK(members.load() == index->named);
    LOCKSTEP_CHECK(index->members.size() ==
                   Fields().extensions.size() *
                       static_cast<size_t>(index->samples));
    int64_t found = 0;
    for (const ShardMember& member : index->members) {
      if (member.size < 0) continue;
      LOCKSTEP_CHECK(member.offset >= kTarBlock);
      LOCKSTEP_CHECK(member.offset % kTarBlock == 0);
      LOCKSTEP_CHECK(member.size <= file.size() - member.offset);
      const auto header = absl::MakeConstSpan(bytes_).subspan(
          member.offset - kTarBlock, kTarBlock);
      if (!IsHeaderOf(header, member.mark, member.size)) continue;
      const auto is = sizes_.find(member.offset);
      LOCKSTEP_CHECK(is != sizes_.end() && is->second == member.size);
      ++found;
    }
    LOCKSTEP_CHECK(found <= scanned_.named);
    if (found < scanned_.named || index->named > found) return false;
    // It lists all members.
    LOCKSTEP_CHECK(index->digest == scanned_.digest);
    LOCKSTEP_CHECK(index->keys == scanned_.keys);
    LOCKSTEP_CHECK(index->key_ends == scanned_.key_ends);
    LOCKSTEP_CHECK(index->missing == scanned_.missing);
    LOCKSTEP_CHECK(index->extensions == scanned_.extensions);
    return true;
  }

 private:
  const std::string bytes_;
  MemoryFile file_;
  ShardIndex scanned_;
  std::map<int64_t, int64_t> sizes_;  // of members, by their offsets
};

const Shard& Plain() {
  static const Shard& shard =
      *new Shard(TarWriter()
                     .Add("a.cls", "1")
                     .Add("a.txt", "sixteen bytes...")
                     .Folder("b")
                     .Add("b/ä.TXT", "sixteen bytes...")
                     .Add("b/README", "x")
                     .Add("b/ä.left.jpg", std::string(600, 'x')));
  return shard;
}

const Shard& Long() {
  static const Shard& shard = *[] {
    TarWriter tar;
    const std::string name = std::string(110, 'n') + ".cls";
    tar.Add("a.cls", "1").GnuName(name).Add(name, "2");
    tar.Records({{"path", "ä.txt"}}).Add("header", "3").Add(".hidden");
    return new Shard(tar);
  }();
  return shard;
}

// Has the one member that most of the corpus has.
const Shard& Single() {
  static const Shard& shard = *new Shard(TarWriter().Add("a.cls", "1"));
  return shard;
}

}  // namespace
}  // namespace lockstep::internal_loader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::internal_loader;  // NOLINT: the only function
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Shard* const shard : {&Plain(), &Long(), &Single()}) {
    if (shard->Check(text)) ++lockstep::fuzz_accepts;
  }
  return 0;
}
