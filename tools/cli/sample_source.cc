#include "lockstep/tools/cli/sample_source.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/plugin/job.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/state.h"
#include "lockstep/sampler/torch_profile.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

// Returns the value that `text` names among `choices`; the first one is the
// default.
template <typename T>
absl::StatusOr<T> Choose(absl::string_view flag, absl::string_view text,
                         std::vector<std::pair<std::string, T>> choices) {
  if (text.empty()) return choices[0].second;
  std::vector<std::string> names;
  for (auto& [name, value] : choices) {
    if (name == text) return value;
    names.push_back(name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no --", flag, " ", SayUnknown(text, names)));
}

absl::StatusOr<std::string> OrderName(const SampleFlags& flags) {
  if (!flags.shuffle.has_value()) return flags.order;
  const std::string meant = *flags.shuffle ? "torch" : "sequential";
  if (flags.order.empty() || flags.order == meant) return meant;
  return absl::InvalidArgumentError(absl::StrCat(
      *flags.shuffle ? "--shuffle" : "--noshuffle", " means --order=", meant,
      ", but --order is '", flags.order, "'; give one of them"));
}

absl::StatusOr<std::shared_ptr<const Order>> MakeOrder(
    const SampleFlags& flags) {
  if (!flags.size.has_value() || *flags.size < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--size, the number of samples in the dataset, should be "
        "0 or more, but ",
        flags.size.has_value() ? absl::StrCat("it is ", *flags.size)
                               : "it is not given",
        "; give it, as in --size=1000, or --config=FILE, the job's text"));
  }
  const int64_t size = *flags.size;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, OrderName(flags));
  enum Kind { kTorch, kNative, kSequential };
  LOCKSTEP_ASSIGN_OR_RETURN(const Kind kind,
                            Choose<Kind>("order", name,
                                         {{"torch", kTorch},
                                          {"native", kNative},
                                          {"sequential", kSequential}}));
  if (kind == kTorch) {
    TorchShuffleOptions options;
    options.size = size;
    options.seed = flags.seed.value_or(0);
    if (!flags.profile.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(options.profile,
                                ParseTorchProfile(flags.profile));
    }
    return TorchShuffle::Create(options);
  }
  if (!flags.profile.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile is of the torch order, but the order is ", name,
                     "; leave it out"));
  }
  if (kind == kNative) {
    NativeShuffleOptions options;
    options.size = size;
    options.seed = flags.seed.value_or(0);
    return NativeShuffle::Create(options);
  }
  return SequentialOrder::Create(size);
}

absl::StatusOr<SamplerOptions> CutOf(const SampleFlags& flags) {
  SamplerOptions options;
  options.cut.batch_size = flags.batch_size.value_or(1);
  options.cut.shards = flags.shards.value_or(0);
  options.cut.drop_last = flags.drop_last.value_or(false);
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.tail,
                            Choose<Tail>("tail", flags.tail,
                                         {{"pad", Tail::kPad},
                                          {"drop", Tail::kDrop},
                                          {"uneven", Tail::kUneven},
                                          {"mask", Tail::kMask}}));
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.layout,
                            Choose<Layout>("layout", flags.layout,
                                           {{"strided", Layout::kStrided},
                                            {"blocked", Layout::kBlocked}}));
  return options;
}

// Returns an error if a flag is given beside --config whose value the text has.
absl::Status CheckForJob(const SampleFlags& flags) {
  const std::vector<std::pair<std::string, bool>> given = {
      {"order", !flags.order.empty()},
      {"shuffle", flags.shuffle.has_value()},
      {"profile", !flags.profile.empty()},
      {"seed", flags.seed.has_value()},
      {"batch_size", flags.batch_size.has_value()},
      {"shards", flags.shards.has_value()},
      {"tail", !flags.tail.empty()},
      {"layout", !flags.layout.empty()},
      {"drop_last", flags.drop_last.has_value()}};
  return CheckNoneGiven(given);
}

absl::Status CheckWithoutJob(const SampleFlags& flags) {
  if (flags.loader.empty() && flags.replicas == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flags.loader.empty() ? "--replicas" : "--loader",
                   " is of a job: give --config=FILE, the job's text, too"));
}

// Passes all calls on to a stream that others have, too.
// Thread-safety: thread-compatible, together with the others.
class SharedStream : public IndexStream {
 public:
  explicit SharedStream(std::shared_ptr<IndexStream> stream)
      : stream_(std::move(stream)) {}

  int64_t size() const override { return stream_->size(); }
  absl::Status Prepare() override { return stream_->Prepare(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    return stream_->Read(first, stride, out);
  }
  absl::StatusOr<Segment> SegmentAt(int64_t position) override {
    return stream_->SegmentAt(position);
  }

 private:
  const std::shared_ptr<IndexStream> stream_;
};

}  // namespace

void AddOrderFlags(CommandLine& line, SampleFlags& flags) {
  AddFileAndFlags(line, flags.job);
  line.Add("loader", &flags.loader,
           "the loader of the job; the only one, or train, if not given");
  line.Add("size", &flags.size,
           "samples in the dataset; must be given without --config. With it,\n"
           "the dataset is not opened");
  line.Add("order", &flags.order,
           "torch, native or sequential; torch if it is not given. This flag\n"
           "and the next ones are for samples without a job");
  line.Add("shuffle", &flags.shuffle,
           "the same as --order=torch; --noshuffle is --order=sequential");
  line.Add("profile", &flags.profile,
           "for the order torch: the release of PyTorch that it is to match,\n"
           "any from 1.13 on; 2.7 if it is not given");
  line.Add("seed", &flags.seed, "seed of the order; 0 if it is not given");
}

void AddCutFlags(CommandLine& line, SampleFlags& flags) {
  AddOrderFlags(line, flags);
  line.Add("batch_size", &flags.batch_size,
           "rows of a rank, or of a shard, in a step; 1 if it is not given");
  line.Add("shards", &flags.shards,
           "shards into which each step is cut, for any number of ranks; as\n"
           "many as ranks if it is not given");
  line.Add(
      "tail", &flags.tail,
      "what happens to the last global batch: pad, drop (the drop_last of\n"
      "DistributedSampler), uneven or mask; pad if it is not given");
  line.Add("layout", &flags.layout,
           "strided or blocked; strided if it is not given");
  line.Add("drop_last", &flags.drop_last,
           "whether to drop an incomplete batch, as BatchSampler's drop_last");
  line.Add("replicas", &flags.replicas,
           "for a job: how many ranks share each part of the data");
}

absl::StatusOr<std::unique_ptr<SampleSource>> SampleSource::Open(
    const CommandHost& host, const SampleFlags& flags) {
  std::unique_ptr<SampleSource> source(new SampleSource(flags));
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(flags.job));
  if (flags.job.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckWithoutJob(flags));
    LOCKSTEP_ASSIGN_OR_RETURN(source->order_, MakeOrder(flags));
    return source;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckForJob(flags));
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config, ReadRightConfig(flags.job));
  LOCKSTEP_ASSIGN_OR_RETURN(const Job job, ReadJobOf(host, config));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string loader,
                            ChooseLoader(job, flags.loader));
  LOCKSTEP_ASSIGN_OR_RETURN(
      source->job_,
      JobSource::Open(host, job, loader, flags.size, flags.replicas));
  return source;
}

absl::StatusOr<Dealing> SampleSource::For(int64_t world) const {
  if (world < 1 || world > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--world, the number of ranks, should be from 1 to ",
                     kMostRanks, ", but it is ", world));
  }
  if (job_ != nullptr) return job_->For(world);
  Dealing dealing;
  dealing.order = order_;
  LOCKSTEP_ASSIGN_OR_RETURN(dealing.options, CutOf(flags_));
  dealing.options.cut.world = world;
  LOCKSTEP_RETURN_IF_ERROR(Validate(dealing.options.cut));
  return dealing;
}

absl::StatusOr<std::vector<int64_t>> NumbersOfRanks(
    absl::string_view flag, const std::vector<std::string>& words) {
  std::vector<int64_t> numbers;
  for (const std::string& word : words) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(word, &number) || number < 1 || number > kMostRanks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, " should be numbers of ranks from 1 to ", kMostRanks,
          ", such as 1,2,8, but has '", absl::CHexEscape(word), "'"));
    }
    numbers.push_back(number);
  }
  if (!numbers.empty()) return numbers;
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " should be numbers of ranks, such as 1,2,8, but is empty"));
}

absl::Status CheckEpochs(int64_t epoch, int64_t epochs) {
  if (epoch >= 0 && epochs >= 1 && epoch <= kMostCounted &&
      epochs <= kMostCounted - epoch) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--epoch should be 0 or more, --epochs 1 or more, and both "
                   "together at most 2^62, but they are ",
                   epoch, " and ", epochs));
}

absl::StatusOr<std::unique_ptr<IndexStream>> SharedOrder::Open(
    int64_t epoch) const {
  if (stream_ == nullptr || epoch_ != epoch) {
    stream_ = nullptr;  // frees its memory before the next one is made
    LOCKSTEP_ASSIGN_OR_RETURN(stream_, order_->Open(epoch));
    epoch_ = epoch;
  }
  return std::make_unique<SharedStream>(stream_);
}

}  // namespace lockstep
