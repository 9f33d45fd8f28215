#include "lockstep/session/verify.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/plugin/job.h"
#include "lockstep/session/loader_table.h"
#include "lockstep/session/session.h"

namespace lockstep {
namespace {

// A temporary folder, which is removed with the object.
// Thread-safety: thread-compatible.
class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create() {
    std::error_code error;
    const std::filesystem::path temporary =
        std::filesystem::temp_directory_path(error);
    std::string path =
        ((error ? "/tmp" : temporary) / "lockstep-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("can't create ", path));
    }
    return std::unique_ptr<TemporaryFolder>(
        new TemporaryFolder(std::move(path)));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// Returns the text of an element, or "" if its type is not one of the usual
// types of parameters.
std::string ElementOf(const CheckpointSection& section,
                      absl::string_view bytes) {
  if (section.dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return absl::StrFormat("%.9g", value);
  }
  if (section.dtype == DType::kF64) {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return absl::StrFormat("%.17g", value);
  }
  return "";
}

absl::StatusOr<std::string> ReadAll(const CheckpointReader& reader,
                                    const CheckpointSection& section) {
  std::string bytes(section.bytes, '\0');
  LOCKSTEP_RETURN_IF_ERROR(reader.Read(section, 0, absl::MakeSpan(bytes)));
  return bytes;
}

// Returns true for the sections that the trainer has added, or its gradients.
bool IsOfTrainer(const CheckpointSection& section) {
  return !IsOwnSection(section.name) &&
         section.name != internal_session::kEpochs &&
         !absl::StartsWith(section.name, internal_session::kLoaderPrefix);
}

// Returns the sections. Those of the trainer come first, since the others, such
// as the best values, only follow from them.
std::vector<const CheckpointSection*> InOrder(const CheckpointReader& reader) {
  std::vector<const CheckpointSection*> sections;
  for (const CheckpointSection& each : reader.sections()) {
    sections.push_back(&each);
  }
  std::stable_partition(
      sections.begin(), sections.end(),
      [](const CheckpointSection* each) { return IsOfTrainer(*each); });
  return sections;
}

// Returns how a section differs from that of the training with a restart, or ""
// if both are equal.
absl::StatusOr<std::string> DifferenceIn(const CheckpointSection& section,
                                         const CheckpointReader& one,
                                         const CheckpointReader& two) {
  const CheckpointSection* const other = two.Find(section.name);
  if (other == nullptr) return ", which is not there after a restart";
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string a, ReadAll(one, section));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string b, ReadAll(two, *other));
  if (a == b) return "";
  if (a.size() != b.size() || !section.dtype.has_value()) return ", somewhere";
  const int64_t size = SizeOf(*section.dtype);
  const int64_t at =
      (std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin()) / size;
  const std::string without = ElementOf(section, a.substr(at * size, size));
  const std::string with = ElementOf(section, b.substr(at * size, size));
  return absl::StrCat(", from element ", at, " on",
                      without.empty()
                          ? ""
                          : absl::StrCat(": ", without, " without, and ", with,
                                         " with a restart"));
}

// Returns the first section that differs, and where it differs, and the names
// of a few others, or "" if all sections are equal.
absl::StatusOr<std::string> Differences(const CheckpointReader& one,
                                        const CheckpointReader& two) {
  constexpr size_t kMostNamed = 8;
  std::string first;
  std::vector<std::string> others;
  const auto add = [&](const std::string& name, absl::string_view difference) {
    if (first.empty()) {
      first = absl::StrCat(name, difference);
    } else {
      others.push_back(name);
    }
  };
  for (const CheckpointSection* const section : InOrder(one)) {
    if (section->name == "job") continue;  // it may have been changed
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string difference,
                              DifferenceIn(*section, one, two));
    if (!difference.empty()) add(section->name, difference);
  }
  for (const CheckpointSection* const section : InOrder(two)) {
    if (one.Find(section->name) == nullptr) {
      add(section->name, ", which is only there after a restart");
    }
  }
  if (others.empty()) return first;
  const size_t count = others.size();
  others.resize(std::min(count, kMostNamed));
  return absl::StrCat(first, ". There are also differences in ",
                      absl::StrJoin(others, ", "),
                      count > kMostNamed ? " and others" : "");
}

// Returns true if a checkpoint has more than the sections that every training
// has.
bool HasState(const CheckpointReader& reader) {
  return std::any_of(reader.sections().begin(), reader.sections().end(),
                     IsOfTrainer);
}

// Makes a group of the first ranks, of which this is one. The name of a group
// is used once, so a number follows it if the verification is not the first one
// of these ranks.
absl::StatusOr<std::unique_ptr<Communicator>> SplitFirst(Communicator& group,
                                                         int64_t ranks) {
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  for (int64_t number = 1;; ++number) {
    absl::StatusOr<std::unique_ptr<Communicator>> split = group.Split(
        absl::StrCat("verification on ", ranks, " ranks, ", number), members);
    if (!absl::IsAlreadyExists(split.status())) return split;
  }
}

absl::Status Compare(const std::string& one, const std::string& two,
                     const Session& session, const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto without, OpenNewestCheckpoint(one));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto with, OpenNewestCheckpoint(two));
  if (!HasState(*without)) {
    return absl::FailedPreconditionError(
        "the training's checkpoints have no parameters, so there is nothing to "
        "verify: give them to MakeGradients or AddState");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string difference,
                            Differences(*without, *with));
  if (difference.empty()) return absl::OkStatus();
  const bool has_fewer = options.ranks > 0 && options.ranks < session.size();
  return absl::FailedPreconditionError(absl::StrCat(
      "the training does not go on exactly",
      has_fewer ? absl::StrCat(" on ", options.ranks, " of ", session.size(),
                               " ranks")
                : "",
      ": after ", 2 * options.steps, " steps the two differ in ", difference,
      ". What differs, or what it comes from, is not in the checkpoint, or not "
      "the same each time",
      !has_fewer ? ""
      : session.job().gradients.exact
          ? ", or depends on the number of ranks: \"Exact training\" in "
            "docs/determinism.md says what a trainer must keep"
          : ", or depends on the number of ranks, as sums do unless the job "
            "has gradients.exact = true"));
}

// Stops a part of the verification if the whole was asked to stop.
// Thread-safety: as SessionHooks.
class PassesStopOn : public SessionHooks {
 public:
  explicit PassesStopOn(const Session& whole) : whole_(whole) {}

  absl::Status OnStep(Session& part, const Step&) override {
    if (whole_.stop_requested()) part.RequestStop();
    return absl::OkStatus();
  }

 private:
  const Session& whole_;
};

// The ranks of a part of the verification.
struct Part {
  World* world;
  Communicator& group;
  Communicator& host_group;
};

// Trains until `steps` steps have ended, with checkpoints at the path, in a new
// session over these ranks.
absl::Status TrainUntil(Session& session, const Part& ranks, int64_t steps,
                        const std::string& path,
                        const std::function<absl::Status(Session&)>& train,
                        const std::function<void(Job& job)>& change) {
  Job job = session.job();
  if (change) change(job);
  job.checkpoint.path = path;
  // These trainings report nothing but their result.
  job.metrics.clear();
  job.rank_metrics.clear();
  job.progress.every = absl::ZeroDuration();
  SessionOptions options = session.options();
  options.world = ranks.world;
  options.group = &ranks.group;
  options.host_group = &ranks.host_group;
  options.stop_after = steps;
  PassesStopOn hook(session);
  options.hooks.push_back(&hook);
  options.log = [&](absl::string_view text) { session.Log(text); };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> part,
      Session::Create(std::move(job), session.registry(), options));
  LOCKSTEP_RETURN_IF_ERROR(part->Run(train));
  if (part->steps() == steps) return absl::OkStatus();
  if (part->stopping()) {
    return absl::CancelledError(absl::StrCat(
        "the verification was asked to stop, and has stopped after ",
        part->steps(), " steps, before a comparison"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the training ended after ", part->steps(), " steps, before the ", steps,
      " that its verification takes: verify fewer steps (--verify=STEPS, or "
      "VerifyOptions::steps), or train for longer"));
}

// Goes on from the checkpoint, on the first ranks, of which this is one.
absl::Status TrainFirst(Session& session, const std::string& path,
                        const std::function<absl::Status(Session&)>& train,
                        const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto host_group,
                            SplitFirst(session.host_group(), options.ranks));
  std::unique_ptr<Communicator> group;
  if (&session.group() != &session.host_group()) {
    LOCKSTEP_ASSIGN_OR_RETURN(group,
                              SplitFirst(session.group(), options.ranks));
  }
  const Part ranks = {nullptr, group == nullptr ? *host_group : *group,
                      *host_group};
  return TrainUntil(session, ranks, 2 * options.steps, path, train,
                    options.change);
}

// The same, while the other ranks wait. If one is asked to stop, all return
// CANCELLED.
absl::Status GoOnWithFewer(Session& session, const std::string& path,
                           const std::function<absl::Status(Session&)>& train,
                           const VerifyOptions& options) {
  absl::Status status;
  if (session.rank() < options.ranks) {
    status = TrainFirst(session, path, train, options);
    if (!status.ok() && !absl::IsCancelled(status)) return status;
  } else if (session.rank() == session.size() - 1) {
    session.Log(absl::StrCat("the other ranks wait while the first ",
                             options.ranks, " go on"));
  }
  CallOptions wait;
  wait.name = "the end of the training on fewer ranks";
  wait.deadline = absl::InfiniteDuration();  // a training may take any time
  LOCKSTEP_RETURN_IF_ERROR(Wait(session.host_group().Barrier(wait)));
  const bool stops = !status.ok() || session.stop_requested();
  std::vector<int64_t> all_stops = {stops ? 1 : 0};
  const Buffer buffer = BufferOf(all_stops);
  CallOptions call;
  call.name = "requests to stop";
  LOCKSTEP_RETURN_IF_ERROR(Wait(
      session.host_group().AllReduce(buffer, buffer, ReduceOp::kMax, call)));
  if (!status.ok() || all_stops[0] == 0) return status;
  return absl::CancelledError(
      "the verification was asked to stop, before a comparison");
}

absl::Status VerifyAt(Session& session, const std::string& path,
                      const std::function<absl::Status(Session&)>& train,
                      const VerifyOptions& options) {
  const int64_t steps = options.steps;
  const std::string without = path + "/without";
  const std::string with = path + "/with";
  const Part all = {session.world(), session.group(), session.host_group()};
  LOCKSTEP_RETURN_IF_ERROR(
      TrainUntil(session, all, 2 * steps, without, train, nullptr));
  LOCKSTEP_RETURN_IF_ERROR(
      TrainUntil(session, all, steps, with, train, nullptr));
  if (options.ranks == 0 || options.ranks == session.size()) {
    LOCKSTEP_RETURN_IF_ERROR(
        TrainUntil(session, all, 2 * steps, with, train, options.change));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(GoOnWithFewer(session, with, train, options));
  }
  if (session.rank() == 0) {
    LOCKSTEP_RETURN_IF_ERROR(Compare(without, with, session, options));
  }
  CallOptions call;
  call.name = "the end of the comparison";
  return Wait(session.host_group().Barrier(call));
}

}  // namespace

absl::Status VerifyRestart(Session& session,
                           const std::function<absl::Status(Session&)>& train,
                           const VerifyOptions& options) {
  if (options.steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a restart comes after 1 or more steps, and not ", options.steps));
  }
  if (options.ranks < 0 || options.ranks > session.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the training can go on with 1 to ", session.size(),
        " ranks, the present number, and not with ", options.ranks));
  }
  std::unique_ptr<TemporaryFolder> folder;
  absl::Status status;
  std::string path = "of rank 0";
  if (session.rank() == 0) {
    absl::StatusOr<std::unique_ptr<TemporaryFolder>> made =
        TemporaryFolder::Create();
    status = made.status();
    if (made.ok()) {
      folder = *std::move(made);
      path = folder->path();
    }
  }
  if (status.ok()) status = VerifyAt(session, path, train, options);
  if (!status.ok()) {
    session.group().Abort(status);
    session.host_group().Abort(status);
  }
  return status;
}

}  // namespace lockstep
