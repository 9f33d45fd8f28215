// JobSource opens the loaders of a job's text for commands that show what the
// loaders will do, without ranks.
//
//   JobFlags flags;
//   flags.config = "job.toml";
//   LOCKSTEP_ASSIGN_OR_RETURN(const Config config, ReadJobConfig(flags));
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto source,
//                             JobSource::Open(host, "train", table));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Dealing dealing, source->For(/*world=*/8));
#ifndef LOCKSTEP_TOOLS_CLI_JOB_SOURCE_H_
#define LOCKSTEP_TOOLS_CLI_JOB_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/command_line.h"
#include "lockstep/tools/cli/host.h"

namespace lockstep {

// The flags that name a job's text.
struct JobFlags {
  bool empty() const { return file.empty() && config.empty(); }
  const std::string& path() const { return file.empty() ? config : file; }

  std::string file;                 // a word of the line, or ""
  std::string config;               // the same by --config
  std::vector<std::string> values;  // of --set
};
void AddFlags(CommandLine& line, JobFlags& flags);
// The same, and the file may be given as a word.
void AddFileAndFlags(CommandLine& line, JobFlags& flags);

// Returns INVALID_ARGUMENT if the file is given twice, or values without a file
// that the command needs.
absl::Status CheckFlags(const JobFlags& flags, bool needs_file = true);

// Returns INVALID_ARGUMENT if one of these flags is given, whose values a job's
// text has.
absl::Status CheckNoneGiven(
    absl::Span<const std::pair<std::string, bool>> flags);

// Reads the text, and changes its values. The errors of the text are those of
// ReadConfigFile, and wrong flags are INVALID_ARGUMENT, too.
// Requires: the flags name a file.
absl::StatusOr<Config> ReadJobConfig(const JobFlags& flags);

// The same, for commands that need a text without mistakes. Without a file, it
// has only the values of --set.
absl::StatusOr<Config> ReadRightConfig(const JobFlags& flags);

// Returns true for the settings of a loader of Lockstep's.
bool IsDefaultLoader(const Config& table);

// The way in which the samples of a loader are dealt to a number of ranks.
struct Dealing {
  std::shared_ptr<const Order> order;
  SamplerOptions options;  // of rank 0
  int64_t micro_batch_size = 0;
  std::optional<uint64_t> seed;  // of the loader

  int64_t ranks() const { return options.cut.world * options.replicas; }

  // Returns the shards of rank 0, which has no fewer than any other rank.
  int64_t most_shards() const { return ShardsOf(options.cut, 0).end; }
  // Returns the parts of a full step, which are as many on each rank.
  int64_t parts() const {
    return most_shards() * CountParts(options.cut.batch_size, micro_batch_size);
  }
};

// Returns the loader that the flag --loader names, or, without it, the only
// one or "train".
absl::StatusOr<std::string> ChooseLoader(const Job& job,
                                         const std::string& given);

// Reads the tables of a job that its text has, also if this program does not
// know the trainer's settings.
absl::StatusOr<Job> ReadJobOf(const CommandHost& host, const Config& config);

// Thread-safety: thread-compatible.
class JobSource {
 public:
  // Opens the dataset of a loader of the job. With `size`, a dataset without
  // content stands in for it. `replicas` is the number of ranks that share
  // data.
  // Requires: the job has the loader.
  static absl::StatusOr<std::unique_ptr<JobSource>> Open(
      const CommandHost& host, const Job& job, const std::string& loader,
      std::optional<int64_t> size = std::nullopt, int64_t replicas = 1);

  // Makes the loader as rank 0 of `world` does, with some settings changed if
  // it is a loader of Lockstep's.
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
      int64_t world, const Config& changes) const;

  // Returns how the loader deals its samples. It makes the loader for that.
  absl::StatusOr<Dealing> For(int64_t world) const;

  const std::string& loader() const { return name_; }
  // Returns the settings of the loader, without those of its dataset.
  const Config& table() const { return table_; }
  // Returns true if `status` is about the dataset that stands in for the job's,
  // which has no columns and one part.
  bool IsOfStandIn(const absl::Status& status) const;

  // Returns null if the loader's part makes its own dataset.
  Dataset* dataset() const { return dataset_.get(); }

  // Returns the column with the lengths of samples that the order uses, or "".
  std::string LengthsColumn() const;

 private:
  JobSource(const CommandHost& host, const Job& job, const std::string& loader,
            int64_t replicas);

  const CommandHost host_;
  const std::string name_;
  Config table_;  // of the loader, without its dataset
  bool has_stand_in_ = false;
  const int64_t replicas_;
  const int64_t shards_;  // of the job, or 0
  std::shared_ptr<Dataset> dataset_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_JOB_SOURCE_H_
