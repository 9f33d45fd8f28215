#include "lockstep/loader/datasets/file_set.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace internal_loader {

namespace {

constexpr size_t kMostPaths = 1000000;

bool IsFile(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

// Returns what braces with that text inside stand for: the numbers from one to
// another, or the texts of a list. Nothing if they stand for themselves.
absl::StatusOr<std::vector<std::string>> ChoicesOf(absl::string_view inner) {
  std::vector<std::string> choices;
  const auto is_number = [](absl::string_view text) {
    return !text.empty() && text.size() <= 18 &&
           std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  };
  const size_t dots = std::min(inner.find(".."), inner.size());
  const absl::string_view first_text = inner.substr(0, dots);
  const absl::string_view last_text =
      inner.substr(std::min(dots + 2, inner.size()));
  if (!is_number(first_text) || !is_number(last_text)) {
    if (absl::StrContains(inner, ",")) choices = absl::StrSplit(inner, ',');
    return choices;
  }
  int64_t first = 0;
  int64_t last = 0;
  if (!absl::SimpleAtoi(first_text, &first) ||
      !absl::SimpleAtoi(last_text, &last) || first > last ||
      last - first >= static_cast<int64_t>(kMostPaths)) {
    return absl::InvalidArgumentError(
        "the second number in the braces should be that of the first one, or "
        "larger by less than a million");
  }
  // 8..11 has no digits to be filled up with zeros, nor has 0..11.
  const auto has_zeros = [](absl::string_view text) {
    return text.size() > 1 && text[0] == '0';
  };
  const size_t width = has_zeros(first_text) || has_zeros(last_text)
                           ? std::max(first_text.size(), last_text.size())
                           : 0;
  for (int64_t number = first; number <= last; ++number) {
    std::string digits = absl::StrCat(number);
    digits.insert(0, width > digits.size() ? width - digits.size() : 0, '0');
    choices.push_back(std::move(digits));
  }
  return choices;
}

// Adds `pattern` with each text that its first braces from `from` on stand for,
// and so on for its other braces.
absl::Status ExpandBraces(const std::string& pattern, size_t from,
                          std::vector<std::string>& patterns) {
  const size_t open = pattern.find('{', from);
  const size_t close = pattern.find('}', open);
  if (close == std::string::npos) {
    patterns.push_back(pattern);
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<std::string>> choices =
      ChoicesOf(absl::string_view(pattern).substr(open + 1, close - open - 1));
  if (!choices.ok()) return InFile(pattern, choices.status());
  if (choices->empty()) return ExpandBraces(pattern, open + 1, patterns);
  for (const std::string& choice : *choices) {
    const std::string with = absl::StrCat(pattern.substr(0, open), choice,
                                          pattern.substr(close + 1));
    LOCKSTEP_RETURN_IF_ERROR(
        ExpandBraces(with, open + choice.size(), patterns));
    if (patterns.size() > kMostPaths) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", pattern, "': its braces stand for more than a million paths"));
    }
  }
  return absl::OkStatus();
}

// Adds the paths that match a pattern with *, ? and [.
absl::Status ExpandStars(const std::string& pattern,
                         std::vector<std::string>& paths) {
  glob_t found = {};
  const int error = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  const size_t begin = paths.size();
  for (size_t i = 0; error == 0 && i < found.gl_pathc; ++i) {
    paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (error == GLOB_NOSPACE) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "there is no memory for the files that match '", pattern, "'"));
  }
  if (paths.size() == begin) {
    return absl::NotFoundError(
        absl::StrCat("no file matches '", pattern,
                     "': check the path, and that its folders can be read"));
  }
  std::sort(paths.begin() + static_cast<int64_t>(begin), paths.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandPaths(
    absl::Span<const std::string> patterns) {
  std::vector<std::string> paths;
  for (const std::string& given : patterns) {
    std::vector<std::string> expanded;
    if (IsFile(given)) {
      expanded.push_back(given);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(ExpandBraces(given, 0, expanded));
    }
    for (std::string& pattern : expanded) {
      if (pattern.find_first_of("*?[") == std::string::npos ||
          IsFile(pattern)) {
        paths.push_back(std::move(pattern));
      } else {
        LOCKSTEP_RETURN_IF_ERROR(ExpandStars(pattern, paths));
      }
    }
  }
  return paths;
}

absl::Status OpenFile::ReadAt(int64_t offset,
                              absl::Span<const absl::Span<char>> parts) const {
  if (mapping_.data() == nullptr) return file_.ReadAt(offset, parts);
  const char* from = mapping_.data() + offset;
  const char* const end = mapping_.data() + mapping_.size();
  for (const absl::Span<char> part : parts) {
    if (static_cast<int64_t>(part.size()) > end - from) {
      return absl::DataLossError(
          absl::StrCat("'", file_.path(), "' ends at byte ", mapping_.size(),
                       ", and should have bytes from ", offset, " on"));
    }
    std::copy_n(from, part.size(), part.data());
    from += part.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileSet>> FileSet::Create(
    std::vector<std::string> paths, FileAccess access) {
  std::unique_ptr<FileSet> files(new FileSet(std::move(paths)));
  LOCKSTEP_RETURN_IF_ERROR(files->OpenAll(access));
  return files;
}

absl::Status FileSet::OpenAll(FileAccess access) {
  is_mapped_ = access == FileAccess::kMapped ||
               (access == FileAccess::kAuto && count() <= kMostOpen);
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<OpenFile>> opened;
  for (int64_t file = 0; file < count(); ++file) {
    auto open = std::make_shared<OpenFile>();
    LOCKSTEP_ASSIGN_OR_RETURN(open->file_, File::Open(path(file).c_str()));
    LOCKSTEP_ASSIGN_OR_RETURN(const FileIdentity identity,
                              open->file_.Identity());
    identities_.push_back(identity);
    if (access == FileAccess::kAuto && open->file_.IsOnNetwork()) {
      is_mapped_ = false;
    }
    if (is_mapped_) {
      opened.push_back(std::move(open));
    } else {
      Keep(file, std::move(open));
    }
  }
  // Where files were opened to be mapped before one was found on the network,
  // they are opened again later.
  for (int64_t file = 0; is_mapped_ && file < count(); ++file) {
    std::shared_ptr<OpenFile>& open = opened[static_cast<size_t>(file)];
    LOCKSTEP_ASSIGN_OR_RETURN(open->mapping_,
                              Mapping::Create(open->file_, size(file)));
    mapped_.push_back(std::move(open));
  }
  return absl::OkStatus();
}

absl::Status FileSet::Check(int64_t file, const OpenFile& open) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileIdentity now, open.file_.Identity());
  const FileIdentity& before = identities_[static_cast<size_t>(file)];
  if (now == before) return absl::OkStatus();
  if (now.device != before.device || now.inode != before.inode) {
    return absl::DataLossError(absl::StrCat(
        "'", path(file),
        "' is another file than when it was opened first: it was replaced; "
        "start again, or restore the old one"));
  }
  return absl::DataLossError(absl::StrCat(
      "'", path(file), "' was changed after it was opened: it had ",
      before.size, " bytes, and has ", now.size,
      now.size == before.size ? " with another time of change" : "",
      "; start again. To replace a file, rename the new one over it"));
}

void FileSet::AddTo(absl::Span<const std::string> contents,
                    Fingerprint& fingerprint) const {
  if (count() > kMostOpen) {
    fingerprint.Add("files", absl::StrCat(absl::StrJoin(contents, "\n"), "\n"));
    return;
  }
  for (size_t file = 0; file < paths_.size(); ++file) {
    const std::string& path = paths_[file];
    fingerprint.Add(path.substr(path.rfind('/') + 1), contents[file]);
  }
}

absl::StatusOr<FileSet::Pointer> FileSet::Use(int64_t file) {
  if (is_mapped_) {
    const Pointer& open = mapped_[static_cast<size_t>(file)];
    LOCKSTEP_RETURN_IF_ERROR(Check(file, *open));
    return open;
  }
  if (const Pointer open = FindOpen(file)) {
    LOCKSTEP_RETURN_IF_ERROR(Check(file, *open));
    return open;
  }
  const auto open = std::make_shared<OpenFile>();
  LOCKSTEP_ASSIGN_OR_RETURN(open->file_, File::Open(path(file).c_str()));
  LOCKSTEP_RETURN_IF_ERROR(Check(file, *open));
  MutexLock lock(mutex_);
  Keep(file, open);
  return Pointer(open);
}

FileSet::Pointer FileSet::FindOpen(int64_t file) {
  MutexLock lock(mutex_);
  Kept& kept = open_[static_cast<size_t>(file)];
  kept.used = ++uses_;
  return kept.file;
}

// Closes the file that was used longest ago, if there are too many. A file that
// another thread reads stays open until it has done so.
void FileSet::Keep(int64_t file, Pointer open) {
  if (open_[static_cast<size_t>(file)].file == nullptr) {
    if (static_cast<int64_t>(numbers_.size()) == kMostOpen) {
      const auto oldest = std::min_element(
          numbers_.begin(), numbers_.end(), [this](int64_t a, int64_t b) {
            mutex_.AssertHeld();
            return open_[static_cast<size_t>(a)].used <
                   open_[static_cast<size_t>(b)].used;
          });
      open_[static_cast<size_t>(*oldest)].file = nullptr;
      *oldest = file;
    } else {
      numbers_.push_back(file);
    }
  }
  open_[static_cast<size_t>(file)] = {std::move(open), ++uses_};
}

}  // namespace internal_loader
}  // namespace lockstep
