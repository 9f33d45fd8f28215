#include "lockstep/loader/datasets/shard_index.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/tar_archive.h"

namespace lockstep::internal_loader {
namespace {

constexpr absl::string_view kVersion = "v1.2";

template <typename T>
void AppendBytes(const T& value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Gathers members into samples. Thread-safety: thread-compatible.
class Samples {
 public:
  explicit Samples(const ShardFields& fields, absl::string_view path)
      : fields_(fields), path_(path), current_(fields.extensions.size()) {
    index_.missing.resize(current_.size());
    index_.first_missing.resize(current_.size());
  }

  // Returns the place of an extension in a field's list, or -1.
  int64_t RankOf(size_t field, absl::string_view extension) const {
    const std::vector<std::string>& accepted = fields_.extensions[field];
    for (size_t i = 0; i < accepted.size(); ++i) {
      if (absl::EqualsIgnoreCase(accepted[i], extension)) {
        return static_cast<int64_t>(i);
      }
    }
    return -1;
  }

  bool IsField(absl::string_view extension) const {
    for (size_t field = 0; field < current_.size(); ++field) {
      if (RankOf(field, extension) >= 0) return true;
    }
    return false;
  }

  absl::Status Add(absl::string_view key, absl::string_view extension,
                   const ShardMember& member) {
    if (members_ == 0 || key != key_) {
      Close();
      key_.assign(key.data(), key.size());
    }
    ++members_;
    ++index_.named;
    Count(extension, member);
    for (size_t field = 0; field < current_.size(); ++field) {
      const int64_t rank = RankOf(field, extension);
      Current& current = current_[field];
      if (rank < 0) continue;
      if (rank == current.rank) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", path_, "', byte ", member.offset - kTarBlock, ": the sample '",
            absl::CHexEscape(key_), "' has a second member '",
            absl::CHexEscape(extension), "', after that at byte ",
            current.member.offset - kTarBlock,
            ": give samples different names up to their first dots"));
      }
      if (current.rank < 0 || rank < current.rank) current = {rank, member};
    }
    return absl::OkStatus();
  }

  void AddUnnamed() { ++index_.unnamed; }

  ShardIndex Finish() {
    Close();
    index_.members.shrink_to_fit();
    index_.key_ends.shrink_to_fit();
    index_.keys.shrink_to_fit();
    return std::move(index_);
  }

 private:
  struct Current {
    int64_t rank = -1;
    ShardMember member;
  };

  void Count(absl::string_view extension, const ShardMember& member) {
    bytes_.clear();
    AppendBytes(index_.digest, bytes_);
    AppendBytes(member.offset, bytes_);
    AppendBytes(member.size, bytes_);
    bytes_.append(extension.data(), extension.size());
    index_.digest = DigestOf(bytes_).low;
    const auto found = index_.extensions.find(extension);
    if (found != index_.extensions.end()) {
      ++found->second;
    } else if (index_.extensions.size() < ShardIndex::kMostExtensions) {
      index_.extensions.emplace(extension, 1);
    }
  }

  // Ends the sample, if there is one.
  void Close() {
    if (members_ == 0) return;
    bool skip = false;
    for (size_t field = 0; field < current_.size(); ++field) {
      if (current_[field].rank < 0 && fields_.skips[field]) skip = true;
    }
    int64_t used = 0;
    for (size_t field = 0; field < current_.size(); ++field) {
      const ShardMember& member = current_[field].member;
      if (member.size < 0 && skip == fields_.skips[field]) {
        if (index_.missing[field]++ == 0) index_.first_missing[field] = key_;
      }
      // Several fields may be made of one member.
      const auto same = [&member](const Current& other) {
        return other.member.offset == member.offset;
      };
      const auto end = current_.begin() + static_cast<int64_t>(field);
      if (member.size >= 0 && std::none_of(current_.begin(), end, same)) {
        ++used;
      }
    }
    if (skip) {
      ++index_.skipped;
    } else {
      index_.unused += members_ - used;
      for (const Current& current : current_) {
        index_.members.push_back(current.member);
      }
      ++index_.samples;
      if (fields_.keeps_keys) {
        index_.keys += key_;
        index_.key_ends.push_back(static_cast<int64_t>(index_.keys.size()));
      }
    }
    std::fill(current_.begin(), current_.end(), Current());
    members_ = 0;
  }

  const ShardFields& fields_;
  const absl::string_view path_;
  ShardIndex index_;
  std::string key_;
  int64_t members_ = 0;           // of the present sample
  std::vector<Current> current_;  // its fields
  std::string bytes_;
};

absl::Status NotPlain(absl::string_view path, const TarMember& member) {
  return absl::UnimplementedError(absl::StrCat(
      "'", path, "', byte ", member.offset - kTarBlock, ": the member '",
      absl::CHexEscape(member.name), "' of a sample is ",
      member.kind == TarKind::kLink
          ? "a link, which has no content of its own: make the file again by "
            "tar --dereference --hard-dereference"
      : member.kind == TarKind::kSparse
          ? "a sparse file: make the tar file again without --sparse"
          : "no file"));
}

// Returns true if a header has the name as it is, without another header before
// it.
bool FitsHeader(absl::string_view name) {
  return name.size() <= 100 &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isprint(c); });
}

// Adds a member to the text of an index, in which white space parts words.
absl::Status AppendMember(absl::string_view path, const TarMember& member,
                          absl::string_view extension, std::string& text) {
  for (const char c : member.name) {
    if (absl::ascii_isspace(c) || absl::ascii_iscntrl(c) || c == '\\') {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", path, "', byte ", member.offset - kTarBlock, ": the name '",
          absl::CHexEscape(member.name),
          "' has white space or a backslash, for which an index has no place: "
          "set index = \"read\""));
    }
  }
  if (!member.has_size ||
      (FitsHeader(member.name) && member.mark != MarkOfName(member.name))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "', byte ", member.offset - kTarBlock, ": the header of '",
        absl::CHexEscape(member.name),
        "' has another name or size than its PAX records, for which an index "
        "has no place: set index = \"read\""));
  }
  absl::StrAppend(&text, extension, " ", member.offset, " ", member.size, " ",
                  member.name);
  return absl::OkStatus();
}

}  // namespace

bool SplitName(absl::string_view name, absl::string_view& key,
               absl::string_view& extension) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == absl::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == absl::string_view::npos || dot == base || dot + 1 == name.size()) {
    return false;
  }
  key = name.substr(0, dot);
  extension = name.substr(dot + 1);
  return true;
}

std::string IndexPath(absl::string_view path) {
  return absl::StrCat(absl::StripSuffix(path, ".tar"), ".idx");
}

absl::StatusOr<ShardIndex> ScanShard(const OpenFile& file,
                                     absl::string_view path, int64_t size,
                                     const ShardFields& fields,
                                     std::atomic<int64_t>& members,
                                     std::string* text) {
  Samples samples(fields, path);
  TarWalk walk(file, path, size, /*begin=*/0);
  std::string last_key;
  std::string lines;
  int64_t line_count = 0;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const member, walk.Next());
    if (member == nullptr) break;
    if (member->kind == TarKind::kFolder) continue;
    absl::string_view key;
    absl::string_view extension;
    const bool is_named = SplitName(member->name, key, extension);
    if (member->kind != TarKind::kFile || !is_named) {
      if (is_named && samples.IsField(extension)) {
        return NotPlain(path, *member);
      }
      samples.AddUnnamed();
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(samples.Add(
        key, extension,
        {member->offset, member->size, member->mark, member->has_size}));
    members.fetch_add(1, std::memory_order_relaxed);
    if (text == nullptr) continue;
    if (line_count == 0 || key != last_key) {
      if (line_count++ > 0) lines += '\n';
      last_key.assign(key.data(), key.size());
    } else {
      lines += ' ';
    }
    LOCKSTEP_RETURN_IF_ERROR(AppendMember(path, *member, extension, lines));
  }
  if (text != nullptr) {
    *text = absl::StrCat(kVersion, " ", line_count, "\n", lines,
                         line_count > 0 ? "\n" : "");
  }
  return samples.Finish();
}

// ---- Reading a text.

namespace {

absl::Status NotRight(absl::string_view what) {
  return absl::DataLossError(what);
}

// Takes the next word from a line. Words are parted by one or more blanks.
absl::string_view TakeWord(absl::string_view& line) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!line.empty() && is_blank(line[0])) line.remove_prefix(1);
  size_t end = 0;
  while (end < line.size() && !is_blank(line[end])) ++end;
  const absl::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

// Takes a line, without the white space at its end.
absl::string_view TakeLine(absl::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return absl::StripTrailingAsciiWhitespace(line);
}

// Reads an index whose members are looked for in a file.
class IndexParser {
 public:
  IndexParser(const OpenFile& file, absl::string_view path, int64_t size,
              const ShardFields& fields, std::atomic<int64_t>& members)
      : file_(file),
        path_(path),
        size_(size),
        members_(members),
        samples_(fields, path) {}

  absl::StatusOr<ShardIndex> Parse(absl::string_view text) {
    absl::string_view head = TakeLine(text);
    int64_t count = 0;
    if (TakeWord(head) != kVersion ||
        !absl::SimpleAtoi(TakeWord(head), &count) || !head.empty()) {
      return NotRight("its first line is not 'v1.2' and a number");
    }
    int64_t lines = 0;
    while (!text.empty()) {
      ++lines;
      absl::string_view line = TakeLine(text);
      do {
        LOCKSTEP_RETURN_IF_ERROR(ParseMember(lines + 1, line));
      } while (!line.empty());
    }
    if (lines != count) {
      return NotRight(absl::StrCat("it has ", lines,
                                   " lines of samples, and says ", count));
    }
    if (end_ > 0) LOCKSTEP_RETURN_IF_ERROR(CheckHeader(last_));
    LOCKSTEP_RETURN_IF_ERROR(CheckRest());
    return samples_.Finish();
  }

 private:
  absl::Status ParseMember(int64_t number, absl::string_view& line) {
    const absl::string_view extension = TakeWord(line);
    ShardMember member;
    const bool has_place = absl::SimpleAtoi(TakeWord(line), &member.offset) &&
                           absl::SimpleAtoi(TakeWord(line), &member.size);
    const absl::string_view name = TakeWord(line);
    absl::string_view key;
    absl::string_view extension_of_name;
    const bool is_named = SplitName(name, key, extension_of_name);
    if (!has_place || name.empty() || name.find('\\') != name.npos ||
        (is_named && extension != extension_of_name)) {
      return NotRight(absl::StrCat(
          "line ", number,
          " should have an extension, a byte, a size and a name for each "
          "member, without white space in them"));
    }
    if (member.offset % kTarBlock != 0 || member.offset < end_ + kTarBlock ||
        member.size < 0 || member.size > size_ ||
        member.offset > size_ - member.size) {
      return NotRight(absl::StrCat("the ", member.size, " bytes of '",
                                   absl::CHexEscape(name),
                                   "' can't be at byte ", member.offset));
    }
    const bool is_first = end_ == 0;
    const int64_t begin = end_;
    end_ = TarEnd(member.offset, member.size);
    if (FitsHeader(name)) member.mark = MarkOfName(name);
    // Other names may stand in a header before that of the member, whose place
    // programs have put in an index.
    if (is_first || !FitsHeader(name)) {
      LOCKSTEP_RETURN_IF_ERROR(FindMember(name, begin, member));
    }
    last_ = member;
    if (!is_named) {
      samples_.AddUnnamed();
      return absl::OkStatus();
    }
    members_.fetch_add(1, std::memory_order_relaxed);
    return samples_.Add(key, extension, member);
  }

  // Walks to a member from the end of the one before it, and sets its mark.
  absl::Status FindMember(absl::string_view name, int64_t begin,
                          ShardMember& member) const {
    TarWalk walk(file_, path_, size_, begin);
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const found, walk.Next());
      if (found == nullptr || found->offset > member.offset) {
        return OtherHeader(member.offset);
      }
      if (found->offset < member.offset) {
        LOCKSTEP_RETURN_IF_ERROR(CheckLeftOut(*found));
        continue;
      }
      if (found->kind != TarKind::kFile || found->size != member.size ||
          found->name != name) {
        return OtherHeader(member.offset);
      }
      member.mark = found->mark;
      member.has_size = found->has_size;
      return absl::OkStatus();
    }
  }

  // Checks the header of a member whose mark is known.
  absl::Status CheckHeader(const ShardMember& member) const {
    char header[kTarBlock];
    LOCKSTEP_RETURN_IF_ERROR(
        file_.ReadAt(member.offset - kTarBlock, absl::MakeSpan(header)));
    return IsHeaderOf(header, member.mark, member.has_size ? member.size : -1)
               ? absl::OkStatus()
               : OtherHeader(member.offset);
  }

  absl::Status OtherHeader(int64_t offset) const {
    char header[kTarBlock];
    LOCKSTEP_RETURN_IF_ERROR(
        file_.ReadAt(offset - kTarBlock, absl::MakeSpan(header)));
    return NotRight(absl::StrCat(
        "before byte ", offset, " of the tar file there is ", ShownName(header),
        ", and not the header that the index says"));
  }

  // Checks that a member which the index has not belongs to no sample.
  static absl::Status CheckLeftOut(const TarMember& member) {
    absl::string_view key;
    absl::string_view extension;
    if (member.kind != TarKind::kFile ||
        !SplitName(member.name, key, extension)) {
      return absl::OkStatus();
    }
    return NotRight(absl::StrCat("it does not have the member '",
                                 absl::CHexEscape(member.name), "'"));
  }

  // Checks that only such members follow the last one of the index as belong to
  // no sample.
  absl::Status CheckRest() {
    TarWalk walk(file_, path_, size_, end_);
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const member, walk.Next());
      if (member == nullptr) return absl::OkStatus();
      LOCKSTEP_RETURN_IF_ERROR(CheckLeftOut(*member));
    }
  }

  const OpenFile& file_;
  const absl::string_view path_;
  const int64_t size_;
  std::atomic<int64_t>& members_;
  Samples samples_;
  int64_t end_ = 0;  // of the last member
  ShardMember last_;
};

}  // namespace

absl::StatusOr<ShardIndex> ParseShardIndex(absl::string_view text,
                                           const OpenFile& file,
                                           absl::string_view path, int64_t size,
                                           const ShardFields& fields,
                                           std::atomic<int64_t>& members) {
  return IndexParser(file, path, size, fields, members).Parse(text);
}

}  // namespace lockstep::internal_loader
