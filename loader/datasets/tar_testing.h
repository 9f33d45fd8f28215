// Helpers of the tests of tar files: they make archives of each format in
// memory, open them, and read what testdata/tar/digests.txt says.
//
//   TarWriter tar;
//   tar.Add("a/7.cls", "3");
//   tar.GnuName(long_name).Add(long_name.substr(0, 100), "7");
//   tar.Records({{"path", "ä.cls"}, {"size", "1"}}).Add("header", "7");
//   const TokenFolder folder;
//   const OpenTar file(folder.Write("a.tar", tar.Finish()));
//   TarWalk walk(*file, file.path(), file.size(), /*begin=*/0);
#ifndef LOCKSTEP_LOADER_DATASETS_TAR_TESTING_H_
#define LOCKSTEP_LOADER_DATASETS_TAR_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/file_set.h"

namespace lockstep {

// Returns a number as a field of a header has it: octal digits and a zero.
inline std::string TarOctal(int64_t number, size_t width = 12) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%0*llo", static_cast<int>(width) - 1,
                static_cast<unsigned long long>(number));  // NOLINT: %llo
  return std::string(digits).substr(0, width - 1) + '\0';
}

// Returns a number to the base 256, as for a size of 8 GiB or more.
inline std::string TarBase256(int64_t number, size_t width = 12) {
  std::string bytes(width, number < 0 ? '\xff' : '\0');
  for (size_t i = 0; i < width && i < 8; ++i) {
    bytes[width - 1 - i] = static_cast<char>(number >> (8 * i));
  }
  bytes[0] = static_cast<char>(bytes[0] | '\x80');
  return bytes;
}

// The fields of a header. Those that are too long are cut.
// Thread-safety: thread-compatible.
struct TarHeader {
  std::string name;
  char type = '0';
  std::string size = TarOctal(0);  // the bytes of the field, at most 12
  std::string link;
  std::string prefix;
  // "ustar\0" "00" is POSIX's, "ustar  \0" is GNU's, and "" is that of v7.
  std::string magic = std::string("ustar\0", 6) + "00";
  bool has_signed_sum = false;

  // Returns the block, with its checksum.
  std::string Bytes() const;
};

inline void PutTarField(std::string& block, size_t at, size_t most,
                        absl::string_view bytes) {
  std::copy_n(bytes.begin(), std::min(bytes.size(), most),
              block.begin() + static_cast<std::ptrdiff_t>(at));
}

// Puts the right checksum into the header that begins at a byte of `bytes`.
inline void PutTarSum(std::string& bytes, size_t at = 0,
                      bool is_signed = false) {
  LOCKSTEP_CHECK(at + 512 <= bytes.size());
  PutTarField(bytes, at + 148, 8, "        ");
  int64_t sum = 0;
  for (size_t i = at; i < at + 512; ++i) {
    sum += is_signed ? static_cast<signed char>(bytes[i])
                     : static_cast<unsigned char>(bytes[i]);
  }
  PutTarField(bytes, at + 148, 7, TarOctal(sum, 7));
}

inline std::string TarHeader::Bytes() const {
  std::string block(512, '\0');
  PutTarField(block, 0, 100, name);
  PutTarField(block, 100, 8, TarOctal(0644, 8));
  PutTarField(block, 108, 8, TarOctal(1000, 8));
  PutTarField(block, 116, 8, TarOctal(1000, 8));
  PutTarField(block, 124, 12, size);
  PutTarField(block, 136, 12, TarOctal(1600000000));
  block[156] = type;
  PutTarField(block, 157, 100, link);
  PutTarField(block, 257, 8, magic);
  PutTarField(block, 345, 155, prefix);
  PutTarSum(block, 0, has_signed_sum);
  return block;
}

// Returns a record of a PAX header: "18 path=a/b/c.cls\n".
inline std::string TarRecord(absl::string_view key, absl::string_view value) {
  size_t length = key.size() + value.size() + 3;
  while (absl::StrCat(length).size() + key.size() + value.size() + 3 !=
         length) {
    ++length;
  }
  return absl::StrCat(length, " ", key, "=", value, "\n");
}

// Writes an archive into memory. Thread-safety: thread-compatible.
class TarWriter {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // Appends a file. Its header has the first 100 bytes of the name.
  TarWriter& Add(absl::string_view name, absl::string_view content = "",
                 char type = '0') {
    TarHeader header;
    header.name = std::string(name);
    header.type = type;
    return Add(std::move(header), content);
  }

  // The same, with the size that the content has.
  TarWriter& Add(TarHeader header, absl::string_view content) {
    header.size = TarOctal(static_cast<int64_t>(content.size()));
    return Header(header).Content(content);
  }

  // Appends a header alone.
  TarWriter& Header(const TarHeader& header) { return Raw(header.Bytes()); }

  // Appends bytes, and zeros up to the end of a block.
  TarWriter& Content(absl::string_view content) {
    Raw(content);
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return *this;
  }

  TarWriter& Raw(absl::string_view bytes) {
    bytes_.append(bytes.data(), bytes.size());
    return *this;
  }

  TarWriter& Folder(absl::string_view name) { return Add(name, "", '5'); }

  // Appends a symbolic link ('2') or a hard link ('1').
  TarWriter& Link(absl::string_view name, absl::string_view target,
                  char type = '2') {
    TarHeader header;
    header.name = std::string(name);
    header.type = type;
    header.link = std::string(target);
    return Header(header);
  }

  // Appends what says the name ('L'), or the target ('K'), of the next member.
  TarWriter& GnuName(absl::string_view name, char type = 'L') {
    TarHeader header;
    header.name = "././@LongLink";
    header.type = type;
    header.magic = std::string("ustar  \0", 8);
    return Add(std::move(header), std::string(name) + '\0');
  }

  // Appends a PAX header of the next member ('x'), or of all ('g').
  TarWriter& Records(const Pairs& records, char type = 'x') {
    std::string content;
    for (const auto& [key, value] : records) content += TarRecord(key, value);
    return Add("PaxHeaders/records", content, type);
  }

  // Appends a sparse member in GNU's old format, with so many blocks of
  // places between the header and the content.
  TarWriter& Sparse(absl::string_view name, absl::string_view content,
                    int more_blocks = 0) {
    TarHeader header;
    header.name = std::string(name);
    header.type = 'S';
    header.size = TarOctal(static_cast<int64_t>(content.size()));
    header.magic = std::string("ustar  \0", 8);
    std::string block = header.Bytes();
    block[482] = more_blocks > 0 ? '\1' : '\0';
    PutTarSum(block);
    Raw(block);
    for (int i = more_blocks; i > 0; --i) {
      std::string places(512, '0');
      places[504] = i > 1 ? '\1' : '\0';
      Raw(places);
    }
    return Content(content);
  }

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  const std::string& bytes() const { return bytes_; }

  // Returns the archive with blocks of zeros behind it.
  std::string Finish(size_t blocks = 2) const {
    return bytes_ + std::string(512 * blocks, '\0');
  }

 private:
  std::string bytes_;
};

// A file that is open. Thread-safety: thread-compatible.
class OpenTar {
 public:
  explicit OpenTar(const std::string& path,
                   FileAccess access = FileAccess::kRead) {
    auto files = internal_loader::FileSet::Create({path}, access);
    LOCKSTEP_CHECK(files.ok());
    files_ = *std::move(files);
    auto file = files_->Use(0);
    LOCKSTEP_CHECK(file.ok());
    file_ = *std::move(file);
  }

  const internal_loader::OpenFile& operator*() const { return *file_; }
  const std::string& path() const { return files_->path(0); }
  int64_t size() const { return files_->size(0); }

 private:
  std::unique_ptr<internal_loader::FileSet> files_;
  internal_loader::FileSet::Pointer file_;
};

// ---- Golden shards. Tests of them need the data //testdata:tar.

inline std::string GoldenTarPath(absl::string_view name) {
  return absl::StrCat("testdata/tar/", name);
}

// A line of digests.txt: a member that belongs to a sample.
struct GoldenTarMember {
  std::string shard;
  std::string key;
  std::string extension;  // in lower case
  int64_t size = 0;
  uint32_t crc = 0;  // CRC-32C of the content
};

// Returns the lines of digests.txt, or those of one shard.
inline std::vector<GoldenTarMember> GoldenTarMembers(
    absl::string_view shard = "") {
  std::ifstream file(GoldenTarPath("digests.txt"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  LOCKSTEP_CHECK(!text.empty());
  std::vector<GoldenTarMember> members;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    LOCKSTEP_CHECK(words.size() == 5);
    GoldenTarMember member{words[0], words[1], words[2], 0, 0};
    LOCKSTEP_CHECK(absl::SimpleAtoi(words[3], &member.size));
    LOCKSTEP_CHECK(absl::SimpleHexAtoi(words[4], &member.crc));
    if (shard.empty() || shard == member.shard) {
      members.push_back(std::move(member));
    }
  }
  LOCKSTEP_CHECK(!members.empty());
  return members;
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TAR_TESTING_H_
