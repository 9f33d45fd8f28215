// Walks through a tar archive that is not compressed. Internal.
//
//   TarWalk walk(*file, path, size, /*begin=*/0);
//   while (true) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const member, walk.Next());
//     if (member == nullptr) break;
//     Use(member->name, member->offset, member->size);
//   }
#ifndef LOCKSTEP_LOADER_DATASETS_TAR_ARCHIVE_H_
#define LOCKSTEP_LOADER_DATASETS_TAR_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/file_set.h"

namespace lockstep::internal_loader {

// Archives consist of blocks of so many bytes. A member is a block that is its
// header, and as many as its content needs.
inline constexpr int64_t kTarBlock = 512;

// The kinds of members that matter here.
enum class TarKind { kFile, kFolder, kLink, kSparse, kOther };

struct TarMember {
  std::string name;  // the whole path, even if the header has a part of it
  TarKind kind = TarKind::kFile;
  int64_t offset = 0;  // of the content; the header is the block before it
  int64_t size = 0;    // of the content
  uint32_t mark = 0;   // MarkOf the header

  // False if the size is in another header than the one before the content.
  bool has_size = true;
};

// Returns the byte behind the last block of a member. Requires that the sum of
// its offset and its size can be counted.
inline int64_t TarEnd(int64_t offset, int64_t size) {
  return offset + (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

// Returns a digest of the name in a header, and of a name that a header may
// have.
uint32_t MarkOf(absl::Span<const char> header);
uint32_t MarkOfName(absl::string_view name);

// Returns true if the block is the header of a file with that mark and that
// size. A mark of 0 stands for any name in a header that has its sum, and a
// size of -1 for any size.
bool IsHeaderOf(absl::Span<const char> header, uint32_t mark, int64_t size);

// Returns the name in a header, for messages. Characters that can't be printed
// are escaped.
std::string ShownName(absl::Span<const char> header);

// Walks from member to member, and checks that nothing but zeros follows the
// end of the archive. Headers are read in pieces that hold many, if they lie
// close together. Errors name the file and the byte: DATA_LOSS for what is torn
// or no archive, INVALID_ARGUMENT for one that is compressed, and UNIMPLEMENTED
// for settings of a global header that concern members.
// Thread-safety: thread-compatible.
class TarWalk {
 public:
  // Walks from the header, or the end of the archive, at `begin`. `file` has
  // `size` bytes, and outlives the walk.
  TarWalk(const OpenFile& file, absl::string_view path, int64_t size,
          int64_t begin)
      : file_(file), path_(path), size_(size), at_(begin) {}

  // Returns the next member, which is valid until the next call, or nullptr at
  // the end.
  absl::StatusOr<const TarMember*> Next();

 private:
  // The facts that headers before the member's own tell about it.
  struct Extras {
    std::string name;
    int64_t size = -1;
    bool is_sparse = false;
  };

  absl::StatusOr<const char*> Fetch(int64_t at, int64_t bytes);
  absl::StatusOr<bool> AtEnd();
  absl::Status NoHeader();
  absl::Status CheckCompression();
  absl::StatusOr<absl::string_view> ReadText(int64_t size, int64_t most,
                                             absl::string_view what);
  absl::Status ReadRecords(absl::string_view text, int64_t at, bool is_global,
                           Extras& extras) const;
  absl::Status SkipSparseBlocks(const char* header);
  absl::Status Torn(int64_t byte, absl::string_view what) const;

  const OpenFile& file_;
  const std::string path_;
  const int64_t size_;
  int64_t at_;  // the next header

  std::vector<char> piece_;  // the bytes of the file from piece_at_ on
  int64_t piece_at_ = 0;
  // A mean of those between the latest headers. The first piece is small, since
  // some walks have few steps.
  int64_t distance_ = int64_t{1} << 15;
  TarMember member_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_TAR_ARCHIVE_H_
