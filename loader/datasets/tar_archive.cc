// A header has a name (100 bytes), and from byte 124 on the size (12), from 148
// the sum of its bytes (8), at 156 the type, from 257 the magic and the version
// (8), and from 345 on, if the magic is POSIX's, what comes before the name
// (155). What has no room there is in members of other types before it: GNU's
// 'L' has the name, and POSIX's 'x' has records such as "18 path=a/b/c.cls\n".
#include "lockstep/loader/datasets/tar_archive.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {
namespace {

using ::lockstep::internal_base::ExtendCrc32c;

// The most bytes of a name, and of the records of a member.
constexpr int64_t kMostName = 65536;
constexpr int64_t kMostRecords = int64_t{1} << 20;

// The bytes that are read at once: a few headers, or many if they lie closer
// together than kClose.
constexpr int64_t kFew = 4096;
constexpr int64_t kMany = int64_t{1} << 18;
constexpr int64_t kClose = 32768;

// Returns the text in a part of a header, which may end with a zero.
absl::string_view TextAt(const char* header, size_t begin, size_t most) {
  return {header + begin, ::strnlen(header + begin, most)};
}

absl::string_view NameOf(const char* header) { return TextAt(header, 0, 100); }

absl::string_view PrefixOf(const char* header) {
  // Other formats have other things at its place.
  return std::memcmp(header + 257, "ustar", 6) == 0 ? TextAt(header, 345, 155)
                                                    : absl::string_view();
}

// Returns a number in octal digits, or in bytes of which the first one has its
// highest bit set; -1 if it is no number, negative, or too large.
int64_t NumberAt(const char* header, size_t begin, size_t width) {
  const auto* at = reinterpret_cast<const unsigned char*>(header) + begin;
  const unsigned char* const end = at + width;
  int64_t number = 0;
  if ((*at & 0x80) != 0) {
    number = *at & 0x7f;
    for (++at; at < end; ++at) {
      if (number >= int64_t{1} << 55) return -1;
      number = number * 256 + *at;
    }
    return number;
  }
  while (at < end && *at == ' ') ++at;
  for (; at < end && *at != ' ' && *at != '\0'; ++at) {
    if (*at < '0' || *at > '7') return -1;
    number = number * 8 + (*at - '0');
  }
  return number;
}

bool IsZero(const char* bytes, int64_t count) {
  return count == 0 ||
         (bytes[0] == 0 &&
          std::memcmp(bytes, bytes + 1, static_cast<size_t>(count - 1)) == 0);
}

// Old programs have summed bytes with a sign.
bool HasItsSum(const char* header) {
  constexpr size_t kBegin = 148, kEnd = 156;
  int64_t sum = (kEnd - kBegin) * ' ';
  int64_t signed_sum = sum;
  for (size_t i = 0; i < kTarBlock; ++i) {
    if (i >= kBegin && i < kEnd) continue;
    sum += static_cast<unsigned char>(header[i]);
    signed_sum += static_cast<signed char>(header[i]);
  }
  const int64_t expected = NumberAt(header, kBegin, kEnd - kBegin);
  return expected == sum || expected == signed_sum;
}

TarKind KindOf(char type, absl::string_view name) {
  switch (type) {
    case '\0':
    case '0':
    case '7':
      return !name.empty() && name.back() == '/' ? TarKind::kFolder
                                                 : TarKind::kFile;
    case '1':
    case '2':
      return TarKind::kLink;
    case '5':
      return TarKind::kFolder;
    case 'S':
      return TarKind::kSparse;
    default:
      return TarKind::kOther;
  }
}

// Returns false for members that have no content, whatever their size says.
bool HasContent(char type) { return type < '1' || type > '6'; }

// Returns the program that has compressed a file, or "".
absl::string_view CompressorOf(const char* header) {
  constexpr std::pair<absl::string_view, absl::string_view> kBegins[] = {
      {"\x1f\x8b", "gzip"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"\xfd\x37zXZ", "xz"},
      {"BZh", "bzip2"},
      {"\x04\x22\x4d\x18", "lz4"}};
  for (const auto& [begin, program] : kBegins) {
    if (std::memcmp(header, begin.data(), begin.size()) == 0) return program;
  }
  return "";
}

}  // namespace

uint32_t MarkOf(absl::Span<const char> header) {
  const absl::string_view prefix = PrefixOf(header.data());
  uint32_t mark = 0;
  if (!prefix.empty()) mark = ExtendCrc32c(ExtendCrc32c(0, prefix), "/");
  mark = ExtendCrc32c(mark, NameOf(header.data()));
  return mark == 0 ? 1 : mark;
}

uint32_t MarkOfName(absl::string_view name) {
  const uint32_t mark = ExtendCrc32c(0, name);
  return mark == 0 ? 1 : mark;
}

bool IsHeaderOf(absl::Span<const char> header, uint32_t mark, int64_t size) {
  const char* const bytes = header.data();
  // A name that fits is enough, and the sum takes longer.
  if (mark != 0 ? MarkOf(header) != mark : !HasItsSum(bytes)) return false;
  // A part of a long name may end with a slash, as names of folders do.
  if (KindOf(bytes[156], /*name=*/"") != TarKind::kFile) return false;
  return size < 0 || NumberAt(bytes, 124, 12) == size;
}

std::string ShownName(absl::Span<const char> header) {
  if (!HasItsSum(header.data())) return "no header";
  const absl::string_view prefix = PrefixOf(header.data());
  return absl::StrCat(
      "'",
      absl::CHexEscape(absl::StrCat(prefix, prefix.empty() ? "" : "/",
                                    NameOf(header.data()))),
      "'");
}

absl::Status TarWalk::Torn(int64_t byte, absl::string_view what) const {
  return absl::DataLossError(
      absl::StrCat("'", path_, "', byte ", byte, ": ", what));
}

// Returns bytes of the file, which are valid until the next call. Requires that
// the file has them.
absl::StatusOr<const char*> TarWalk::Fetch(int64_t at, int64_t bytes) {
  const auto have = static_cast<int64_t>(piece_.size());
  if (at < piece_at_ || at + bytes > piece_at_ + have) {
    const int64_t piece = std::max(bytes, distance_ < kClose ? kMany : kFew);
    piece_.resize(static_cast<size_t>(std::min(piece, size_ - at)));
    piece_at_ = at;
    LOCKSTEP_RETURN_IF_ERROR(file_.ReadAt(at, absl::MakeSpan(piece_)));
  }
  return piece_.data() + (at - piece_at_);
}

// Returns the status for a block that is no header.
absl::Status TarWalk::NoHeader() {
  LOCKSTEP_RETURN_IF_ERROR(CheckCompression());
  return Torn(at_, at_ == 0
                       ? "this is no tar archive, which begins with a header"
                       : "there should be the header of a member, or the end "
                         "of the archive, and there are other bytes: make the "
                         "file again");
}

// Returns an error if the walk is at the begin of a compressed file.
absl::Status TarWalk::CheckCompression() {
  constexpr int64_t kMagicBytes = 6;
  if (at_ != 0 || size_ < kMagicBytes) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const char* const bytes, Fetch(0, kMagicBytes));
  const absl::string_view program = CompressorOf(bytes);
  if (program.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path_, "' is compressed by ", program,
      ", so that its members can't be read one by one: decompress it (images "
      "are hardly larger then)"));
}

// Called at a block of zeros. Returns true if it and all blocks behind it are
// zeros, of which there are two or more.
absl::StatusOr<bool> TarWalk::AtEnd() {
  if (size_ - at_ < 2 * kTarBlock) return false;
  for (int64_t at = at_; at < size_; at += kMany) {
    const int64_t count = std::min(kMany, size_ - at);
    LOCKSTEP_ASSIGN_OR_RETURN(const char* const bytes, Fetch(at, count));
    if (!IsZero(bytes, count)) return false;
  }
  return true;
}

// Reads the content of a member that describes the next one, and goes on to the
// header behind it. The text is valid until the next call of Fetch.
absl::StatusOr<absl::string_view> TarWalk::ReadText(int64_t size, int64_t most,
                                                    absl::string_view what) {
  if (size > most) {
    return Torn(at_, absl::StrCat("the ", what,
                                  " of a member should have at "
                                  "most ",
                                  most, " bytes, and have ", size));
  }
  const int64_t begin = at_ + kTarBlock;
  at_ = TarEnd(begin, size);
  if (size == 0) return absl::string_view();
  LOCKSTEP_ASSIGN_OR_RETURN(const char* const text, Fetch(begin, size));
  return absl::string_view(text, static_cast<size_t>(size));
}

// Reads records such as "18 path=a/b/c.cls\n", whose first number is the length
// of the record. `at` is the byte of the header.
absl::Status TarWalk::ReadRecords(absl::string_view text, int64_t at,
                                  bool is_global, Extras& extras) const {
  while (!text.empty()) {
    size_t length = 0;
    const size_t space = text.substr(0, 20).find(' ');
    if (space == absl::string_view::npos ||
        !absl::SimpleAtoi(text.substr(0, space), &length) ||
        length < space + 2 || length > text.size() ||
        text[length - 1] != '\n') {
      return Torn(at, "a record of a PAX header is torn: make the file again");
    }
    const absl::string_view record = text.substr(space + 1, length - space - 2);
    text.remove_prefix(length);
    const size_t equal = record.find('=');
    const absl::string_view key = record.substr(0, equal);
    const absl::string_view value =
        equal == absl::string_view::npos ? "" : record.substr(equal + 1);
    const bool is_sparse =
        absl::string_view(key.substr(0, 11)) == "GNU.sparse.";
    if (key != "path" && key != "size" && !is_sparse) continue;
    if (is_global) {
      return absl::UnimplementedError(absl::StrCat(
          "'", path_, "', byte ", at, ": a global header sets the ",
          absl::CHexEscape(key),
          " of all members, which can't be read: make the file again"));
    }
    if (is_sparse) extras.is_sparse = true;
    if (key == "path" || key == "GNU.sparse.name") {
      extras.name = std::string(value);
    }
    if (key == "size" &&
        (!absl::SimpleAtoi(value, &extras.size) || extras.size < 0)) {
      return Torn(at, absl::StrCat("the size of a member in a PAX header is '",
                                   absl::CHexEscape(value), "'"));
    }
  }
  return absl::OkStatus();
}

// Goes past the blocks with the places of the rest of a sparse file, which
// follow its header in GNU's format.
absl::Status TarWalk::SkipSparseBlocks(const char* header) {
  bool more = header[482] != 0;
  while (more) {
    if (size_ - at_ < 2 * kTarBlock) {
      return Torn(at_, "the file ends within the header of a sparse member");
    }
    at_ += kTarBlock;
    LOCKSTEP_ASSIGN_OR_RETURN(const char* const block, Fetch(at_, kTarBlock));
    more = block[504] != 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<const TarMember*> TarWalk::Next() {
  Extras extras;
  const int64_t first = at_;
  char header[kTarBlock];
  while (true) {
    if (size_ - at_ < kTarBlock) {
      LOCKSTEP_RETURN_IF_ERROR(CheckCompression());
      return Torn(
          size_,
          size_ == 0
              ? "the file is empty: make it again"
              : "the file ends without the two blocks of zeros that end an "
                "archive: it was cut; make it again");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const char* const block, Fetch(at_, kTarBlock));
    std::memcpy(header, block, kTarBlock);
    if (IsZero(header, kTarBlock)) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool at_end, AtEnd());
      if (at_end && at_ == first) return nullptr;
      return Torn(at_,
                  at_end ? "the archive ends where a member should follow the "
                           "header that describes it: make the file again"
                         : "there should be two blocks of zeros and nothing "
                           "else at the end: the file was cut, or archives "
                           "were joined without tar --concatenate");
    }
    if (!HasItsSum(header)) return NoHeader();
    const char type = header[156];
    int64_t size = NumberAt(header, 124, 12);
    const bool describes =
        type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
    if (!describes && extras.size >= 0) size = extras.size;
    if (!HasContent(type)) size = 0;
    const int64_t header_at = at_;
    if (type == 'S') LOCKSTEP_RETURN_IF_ERROR(SkipSparseBlocks(header));
    if (size < 0 || size > size_ - at_ - kTarBlock) {
      return Torn(
          header_at,
          absl::StrCat("the member ", ShownName(header), " should have ",
                       size < 0 ? "a size" : absl::StrCat(size, " bytes"),
                       ", and the file ends at byte ", size_,
                       ": make the file again"));
    }
    if (describes) {
      LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view text,
                                type == 'L' || type == 'K'
                                    ? ReadText(size, kMostName, "name")
                                    : ReadText(size, kMostRecords, "records"));
      if (type == 'L') {
        extras.name = std::string(text.substr(0, text.find('\0')));
      } else if (type != 'K') {
        LOCKSTEP_RETURN_IF_ERROR(
            ReadRecords(text, header_at, type == 'g', extras));
      }
      continue;
    }
    const absl::string_view prefix = PrefixOf(header);
    if (!extras.name.empty()) {
      member_.name = std::move(extras.name);
    } else {
      member_.name.assign(prefix.data(), prefix.size());
      if (!prefix.empty()) member_.name += '/';
      const absl::string_view name = NameOf(header);
      member_.name.append(name.data(), name.size());
    }
    member_.kind =
        extras.is_sparse ? TarKind::kSparse : KindOf(type, member_.name);
    member_.offset = at_ + kTarBlock;
    member_.size = size;
    member_.has_size = extras.size < 0 || NumberAt(header, 124, 12) == size;
    member_.mark = MarkOf(header);
    at_ = TarEnd(member_.offset, size);
    distance_ = (7 * distance_ + (at_ - first)) / 8;
    return &member_;
  }
}

}  // namespace lockstep::internal_loader
