#include "lockstep/checkpoint/checkpoint_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {
namespace {

constexpr size_t kDigits = 12;
constexpr char kLock[] = "lock";
constexpr char kFinished[] = "finished";
constexpr char kNew[] = "new";
constexpr char kUnfinished[] = ".new";  // the ending that CheckpointWriter uses

// Splits a path such as "/data/model" into the folder "/data/" and the name
// "model".
std::pair<std::string, std::string> Parted(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {"./", path};
  return {path.substr(0, slash + 1), path.substr(slash + 1)};
}

// Returns "X is a link to Y, which can't be read", or "" if it is no such link.
std::string DescribeBadLink(const std::string& path) {
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) == 0) return "";
  const int error = errno;
  std::error_code no_link;
  const std::string target =
      std::filesystem::read_symlink(path, no_link).string();
  if (no_link) return "";
  return absl::StrCat("the checkpoint ", path, " is a link to ", target,
                      ", which can't be read (", std::strerror(error),
                      "); check that its disk is mounted");
}

// Returns true for a file, or a link to one.
bool IsFile(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

}  // namespace

absl::Status CheckCheckpointName(absl::string_view name) {
  constexpr size_t kMost = 64;
  const bool has_letters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
  if (!name.empty() && name.size() <= kMost && has_letters &&
      absl::ascii_isalpha(name[0]) && name != kLock && name != kFinished &&
      name != kNew) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a checkpoint can't be saved by the name '",
      absl::CHexEscape(name.substr(0, kMost)), name.size() > kMost ? "..." : "",
      "': accepted are 1 to ", kMost,
      " letters (a to z and A to Z), digits, _ and -, of which the first is a "
      "letter, but not '",
      kLock, "', '", kFinished, "' and '", kNew, "', which are reserved"));
}

absl::Status CheckpointStore::CheckOptions(
    const CheckpointStoreOptions& options) {
  if (Parted(options.path).second.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the path of checkpoints should be a folder and the beginning of a "
        "name, such as /data/model, but is '",
        options.path, "'"));
  }
  if (options.keep < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keep should be 1 or more checkpoints, but is ", options.keep));
  }
  if (std::error_code ignored;
      std::filesystem::is_directory(options.path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the path of checkpoints is the folder ", options.path,
        "; it should be a folder and the beginning of a name, such as ",
        options.path, "/model"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CheckpointStore>> CheckpointStore::Open(
    const CheckpointStoreOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  const std::string path = absl::StrCat(options.path, ".", kLock);
  Descriptor lock(RetryOnSignal([&] {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  }));
  if (!lock.ok()) {
    const int error = errno;
    return absl::ErrnoToStatus(
        error, absl::StrCat("can't create ", path,
                            error == ENOENT ? ": make its folder first" : ""));
  }
  if (::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return absl::ErrnoToStatus(errno, absl::StrCat("can't lock ", path));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "another process, or another part of this one, keeps its checkpoints "
        "at ",
        options.path, ", and has locked ", path,
        ": end it first, or give this job another path"));
  }
  // The program may change its current folder later.
  CheckpointStoreOptions absolute = options;
  absolute.path = std::filesystem::absolute(options.path).string();
  std::unique_ptr<CheckpointStore> store(
      new CheckpointStore(absolute, std::move(lock)));
  LOCKSTEP_RETURN_IF_ERROR(store->RemoveUnfinished());
  return store;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointStore::Read(
    const CheckpointStoreOptions& options) {
  return CheckpointStore(options, Descriptor()).OpenNewest();
}

absl::Status CheckpointStore::RemoveUnfinished() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int64_t> steps, Steps(kUnfinished));
  for (const int64_t step : steps) {
    Remove(absl::StrCat(PathOf(step), kUnfinished));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> endings, Endings());
  for (const std::string& ending : endings) {
    absl::string_view name = ending;
    const std::string path = absl::StrCat(options_.path, ".", ending);
    // Other programs use such names, too.
    if (absl::ConsumeSuffix(&name, kUnfinished) &&
        CheckCheckpointName(name).ok() &&
        CheckpointReader::Recognize(path).ok()) {
      Remove(path);
    }
  }
  return absl::OkStatus();
}

// Unlocks explicitly, since a process that is just being forked may hold a copy
// of the descriptor, and so the lock, a little longer.
CheckpointStore::~CheckpointStore() {
  if (lock_.ok()) ::flock(lock_.fd(), LOCK_UN);
}

std::string CheckpointStore::PathOf(int64_t step) const {
  return absl::StrCat(options_.path, ".", absl::Dec(step, absl::kZeroPad12));
}

absl::StatusOr<std::vector<std::string>> CheckpointStore::Endings() const {
  const auto [folder, name] = Parted(options_.path);
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir(folder.c_str()),
                                                ::closedir);
  if (all == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("can't open ", folder));
  }
  std::vector<std::string> endings;
  for (;;) {
    errno = 0;  // only errno tells an error of readdir from the end
    const dirent* const entry = ::readdir(all.get());
    if (entry == nullptr) break;
    absl::string_view ending = entry->d_name;
    if (absl::ConsumePrefix(&ending, name) &&
        absl::ConsumePrefix(&ending, ".")) {
      endings.emplace_back(ending);
    }
  }
  if (errno != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("can't read ", folder));
  }
  return endings;
}

absl::StatusOr<std::set<int64_t>> CheckpointStore::Steps(
    absl::string_view ending) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> endings, Endings());
  std::set<int64_t> steps;
  for (const std::string& each : endings) {
    absl::string_view digits = each;
    int64_t step = 0;
    if (absl::ConsumeSuffix(&digits, ending) && digits.size() >= kDigits &&
        std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
        absl::SimpleAtoi(digits, &step) &&
        absl::StrCat(PathOf(step), ending) ==
            absl::StrCat(options_.path, ".", each)) {
      steps.insert(step);
    }
  }
  return steps;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>>
CheckpointStore::OpenNewest() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int64_t> steps, Steps());
  std::vector<std::string> why;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = PathOf(*step);
    absl::StatusOr<std::unique_ptr<CheckpointReader>> reader =
        CheckpointReader::Open(path);
    if (reader.ok()) {
      has_looked_ = true;
      for (const std::string& damage : why) {
        if (options_.log) {
          options_.log(absl::StrCat(damage, "; ", path, " is used"));
        }
      }
      return reader;
    }
    if (std::string link = DescribeBadLink(path); !link.empty()) {
      why.push_back(std::move(link));
      continue;
    }
    if (!absl::IsDataLoss(reader.status()) &&
        !absl::IsInvalidArgument(reader.status())) {
      return reader.status();
    }
    // A file that is not a checkpoint belongs to someone else, so it is kept.
    if (absl::IsDataLoss(reader.status())) damaged_.insert(*step);
    why.emplace_back(reader.status().message());
  }
  if (why.empty()) {
    has_looked_ = true;
    return nullptr;
  }
  return absl::DataLossError(absl::StrCat(
      absl::StrJoin(why, "; "),
      ": put back an undamaged one, or remove all of these to begin anew"));
}

absl::StatusOr<std::map<std::string, CheckpointStore::NamedFile>>
CheckpointStore::ReadNamed(absl::string_view section) const {
  constexpr int64_t kMost = 1024;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> endings, Endings());
  std::map<std::string, NamedFile> found;
  for (const std::string& name : endings) {
    if (!CheckCheckpointName(name).ok()) continue;
    const std::string path = absl::StrCat(options_.path, ".", name);
    const absl::Status read = [&]() -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(auto reader,
                                CheckpointReader::OpenHeaders(path));
      const CheckpointSection* saved = reader->Find(section);
      if (saved == nullptr || saved->bytes > kMost) return absl::OkStatus();
      // The contents of this file matter, so they are checked.
      LOCKSTEP_ASSIGN_OR_RETURN(reader, CheckpointReader::Open(path));
      saved = reader->Find(section);
      if (saved == nullptr) return absl::OkStatus();
      std::string bytes(saved->bytes, '\0');
      LOCKSTEP_RETURN_IF_ERROR(reader->Read(*saved, 0, absl::MakeSpan(bytes)));
      found[name] = {bytes,
                     {reader->sections().begin(), reader->sections().end()}};
      return absl::OkStatus();
    }();
    if (absl::IsDataLoss(read)) {
      if (options_.log) {
        options_.log(absl::StrCat(read.message(),
                                  "; it is replaced when it is saved again"));
      }
    } else if (!read.ok() && !absl::IsInvalidArgument(read)) {
      // It may be the best one, so it must not be taken for missing.
      const std::string link = DescribeBadLink(path);
      if (link.empty()) return read;
      return absl::FailedPreconditionError(
          absl::StrCat(link, ", or remove the link if it is not needed"));
    }
  }
  return found;
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointStore::Create(
    int64_t step) {
  if (!has_looked_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "look for the newest checkpoint at ", options_.path,
        " before the first one is written: it may be there already"));
  }
  if (step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a checkpoint's step should be 0 or more, but is ", step));
  }
  return CheckpointWriter::Create(PathOf(step));
}

absl::Status CheckpointStore::CheckNamed(absl::string_view name) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckCheckpointName(name));
  const absl::Status replaced =
      CheckpointReader::Recognize(absl::StrCat(options_.path, ".", name));
  if (replaced.ok() || absl::IsNotFound(replaced)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(replaced.message(),
                   ", so it is not replaced: save by another name than '", name,
                   "', or move the file away"));
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointStore::CreateNamed(
    absl::string_view name) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(name));
  return CheckpointWriter::Create(absl::StrCat(options_.path, ".", name));
}

absl::Status CheckpointStore::Finish(CheckpointWriter& writer) {
  LOCKSTEP_RETURN_IF_ERROR(writer.Finish());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int64_t> steps, Steps());
  if (std::none_of(steps.begin(), steps.end(), [&](int64_t step) {
        return PathOf(step) == writer.path();
      })) {
    return absl::OkStatus();  // it was saved by name
  }
  // Only this checkpoint and older ones count, since others may have put later
  // ones there.
  int64_t kept = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = PathOf(*step);
    const bool is_this = path == writer.path();
    if (is_this) damaged_.erase(*step);  // it was written anew
    if (damaged_.count(*step) > 0) {
      if (Remove(path)) damaged_.erase(*step);
    } else if (is_this || (kept > 0 && IsFile(path))) {
      ++kept;
      if (kept > options_.keep) Remove(path);
    }
  }
  return absl::OkStatus();
}

bool CheckpointStore::Remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return true;
  const int error = errno;
  if (!std::exchange(had_trouble_, true)) {
    trouble_ = absl::StrCat(
        "can't remove ", path,
        ", which is no longer needed: ", std::strerror(error),
        ". It stays, and so may others, so there may be "
        "more files than keep=",
        options_.keep,
        ": check that the folder can "
        "be written to, and that the disk has room. Later failures of this "
        "kind are not logged");
  }
  return false;
}

std::string CheckpointStore::TakeTrouble() {
  return std::exchange(trouble_, std::string());
}

}  // namespace lockstep
