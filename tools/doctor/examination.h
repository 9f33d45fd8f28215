// An Examination is what one rank does for ExamineRanks.
//
//   RanksReport report = Examination(world, options).Run();
//
// Its first part, up to the trials of backends, is in examination.cc, and the
// measurements are in examination_pairs.cc.
#ifndef LOCKSTEP_TOOLS_DOCTOR_EXAMINATION_H_
#define LOCKSTEP_TOOLS_DOCTOR_EXAMINATION_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/introduction.h"
#include "lockstep/tools/doctor/meeting.h"
#include "lockstep/tools/doctor/pairs.h"
#include "lockstep/tools/doctor/ranks.h"
#include "lockstep/tools/doctor/self_test.h"

namespace lockstep::internal_doctor {

inline constexpr char kAuto[] = "auto";
inline constexpr char kShm[] = "shm";
inline constexpr char kTcp[] = "tcp";
inline constexpr char kNccl[] = "nccl";

// This stands before the error of a rank, in place of what it has measured.
inline constexpr absl::string_view kError = "error ";

// The name of a check of machine.h, which rank 0 may make for all machines.
inline constexpr char kProcessors[] = "processors";

// The facts about a machine that rank 0 needs.
struct Machine {
  std::string host;
  int64_t ranks = 0;
  std::set<int> processors;  // of all its ranks
  double quota = 0;
  int64_t gpus = 0, mbits = -1;
  bool is_reported = false;  // whether its report is known
  // True if that warns of too few processors.
  bool is_warned = false;

  // Returns how many processors its ranks have, or -1 if that is not known.
  double usable() const {
    if (processors.empty()) return -1;
    const auto count = static_cast<double>(processors.size());
    return quota > 0 ? std::min(count, quota) : count;
  }
  bool is_crowded() const {
    return usable() >= 0 && usable() < static_cast<double>(ranks);
  }
};

// The examination by one rank.
// Thread-safety: thread-compatible.
class Examination {
 public:
  Examination(World& world, const RanksOptions& options)
      : world_(world), options_(options) {
    SetUntil(options.until);
  }

  RanksReport Run();

 private:
  void SetUntil(absl::Time until);
  // Returns true if something can be measured that takes so long.
  bool HasTimeFor(absl::Duration needed) const {
    return absl::Now() + needed < measure_until_;
  }

  // Does all that follows. All ranks make the same calls of the meeting in the
  // same order, also where a group has failed on some of them.
  absl::Status RunAll();

  absl::Status Introduce();
  void AddRank(const Introduction& rank);
  void JudgeMachines();

  absl::Status TryToConnect();
  void JudgeConnections();

  absl::Status TryBackends();
  // Returns the backends that can be tried, and says why the others can't.
  std::vector<std::string> ChooseBackends();
  absl::Status TryBackend(const std::string& name);
  // Makes a group and tries it. Keeps the group if that has no error.
  absl::StatusOr<SelfTestResult> TestGroup(const std::string& name);
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(
      const std::string& name);

  absl::Status MeasureAll();
  absl::Status CompareJobs(Communicator& group);
  absl::Status CompareClocks(Communicator& group);
  absl::Status CompareCopies(Communicator& group);
  absl::Status MeasureBackend(const std::string& name, Communicator& group);
  // Measures all pairs, and those that are slow a second time, since another
  // program may have been in the way. Returns the better times on rank 0, and
  // nothing if the group has failed.
  absl::StatusOr<std::optional<std::vector<PairSpeed>>> Measure(
      const std::string& name, Communicator& group);
  // Measures some rounds, and returns all their pairs on rank 0. Returns
  // nothing, on all ranks, if the group has failed on one of them; rank 0 has
  // said so then.
  absl::StatusOr<std::optional<std::vector<PairSpeed>>> MeasureRounds(
      const std::string& name, Communicator& group,
      const std::vector<int>& rounds);
  void AddWhatIsKnown(std::vector<PairSpeed>& pairs) const;

  // Says what this rank does next.
  void Begin(std::string what) {
    doing_ = std::move(what);
    options_.tell(doing_);
  }
  bool is_first() const { return world_.rank() == 0; }
  NcclOptions NcclOf(const std::string& name) const {
    return name == kNccl ? options_.nccl : NcclOptions();
  }
  // Returns the backend of the job's group.
  std::string JobsBackend() const {
    return options_.backend == kAuto ? world_.AutoBackend() : options_.backend;
  }
  void Add(std::string check, Verdict verdict, std::string text,
           std::string remedy = "") {
    report_.findings.push_back(
        {std::move(check), verdict, std::move(text), std::move(remedy)});
  }
  std::string NameOf(int rank) const {
    return absl::StrCat("rank ", rank, " (",
                        report_.hosts[static_cast<size_t>(rank)], ")");
  }
  const Machine& MachineOf(int rank) const {
    return machines_.at(ids_[static_cast<size_t>(rank)]);
  }

  World& world_;
  const RanksOptions& options_;
  // When this rank gives up, when it measures nothing more, and when operations
  // fail.
  absl::Time until_, measure_until_, work_until_;
  std::string doing_;  // what it does
  std::unique_ptr<Meeting> meeting_;
  // Rank 0 knows these: the machines by their ids, and the id of each rank's.
  std::map<std::string, Machine> machines_;
  std::vector<std::string> ids_;
  bool connects_ = true;  // whether all ranks reach each other
  std::map<std::string, std::unique_ptr<Communicator>> groups_;  // that work
  RanksReport report_;
};

}  // namespace lockstep::internal_doctor

#endif  // LOCKSTEP_TOOLS_DOCTOR_EXAMINATION_H_
