#include "lockstep/checkpoint/checkpoint_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <set>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {
namespace {

constexpr size_t kDigits = 12;
constexpr char kUnfinished[] = ".new";  // the ending that CheckpointWriter uses

// Splits a path such as "/data/model" into the folder "/data/" and the name
// "model".
std::pair<std::string, std::string> Parted(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {"./", path};
  return {path.substr(0, slash + 1), path.substr(slash + 1)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointStore>> CheckpointStore::Open(
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
  const std::string path = options.path + ".lock";
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
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
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int64_t> unfinished,
                            store->Steps(kUnfinished));
  for (const int64_t step : unfinished) {
    ::unlink(absl::StrCat(store->PathOf(step), kUnfinished).c_str());
  }
  return store;
}

// Unlocks explicitly, since a process that is just being forked may hold a copy
// of the descriptor, and so the lock, a little longer.
CheckpointStore::~CheckpointStore() { ::flock(lock_.fd(), LOCK_UN); }

std::string CheckpointStore::PathOf(int64_t step) const {
  return absl::StrCat(options_.path, ".", absl::Dec(step, absl::kZeroPad12));
}

absl::StatusOr<std::set<int64_t>> CheckpointStore::Steps(
    absl::string_view ending) const {
  const auto [folder, name] = Parted(options_.path);
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir(folder.c_str()),
                                                ::closedir);
  if (all == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("can't open ", folder));
  }
  std::set<int64_t> steps;
  for (;;) {
    errno = 0;  // only errno tells an error of readdir from the end
    const dirent* const entry = ::readdir(all.get());
    if (entry == nullptr) break;
    absl::string_view digits = entry->d_name;
    int64_t step = 0;
    struct stat facts = {};
    if (absl::ConsumePrefix(&digits, name) &&
        absl::ConsumePrefix(&digits, ".") &&
        absl::ConsumeSuffix(&digits, ending) && digits.size() >= kDigits &&
        std::all_of(digits.begin(), digits.end(),
                    [](char c) { return c >= '0' && c <= '9'; }) &&
        absl::SimpleAtoi(digits, &step) &&
        PathOf(step) + std::string(ending) == folder + entry->d_name &&
        ::stat((folder + entry->d_name).c_str(), &facts) == 0 &&
        S_ISREG(facts.st_mode)) {
      steps.insert(step);
    }
  }
  if (errno != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("can't read ", folder));
  }
  return steps;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>>
CheckpointStore::OpenNewest() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int64_t> steps, Steps());
  std::vector<std::string> why;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    absl::StatusOr<std::unique_ptr<CheckpointReader>> reader =
        CheckpointReader::Open(PathOf(*step));
    if (reader.ok()) {
      has_looked_ = true;
      for (const std::string& damage : why) {
        if (options_.log) {
          options_.log(absl::StrCat(damage, "; ", PathOf(*step), " is used"));
        }
      }
      return reader;
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
      ": put a whole one there, or remove them all to begin anew"));
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

absl::Status CheckpointStore::Finish(CheckpointWriter& writer) {
  LOCKSTEP_RETURN_IF_ERROR(writer.Finish());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int64_t> steps, Steps());
  // Only this checkpoint and older ones count, since others may have put later
  // ones there.
  int64_t kept = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = PathOf(*step);
    const bool is_this = path == writer.path();
    if (is_this) damaged_.erase(*step);  // it was written anew
    if (damaged_.count(*step) > 0) {
      if (::unlink(path.c_str()) == 0) damaged_.erase(*step);
    } else if (is_this || kept > 0) {
      ++kept;
      if (kept > options_.keep) ::unlink(path.c_str());
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
