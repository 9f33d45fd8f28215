#include "lockstep/tools/cli/verify.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/sample_source.h"
#include "lockstep/tools/cli/walker.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

constexpr int64_t kMostSamples = int64_t{1} << 36;  // 8 GiB of bits
constexpr size_t kOtherNumbers = 3;                 // of ranks
constexpr int64_t kMostCounts = 3;  // of what is left, in orders with segments
constexpr int64_t kMostRestarts = int64_t{1} << 20;  // of samplers
constexpr int64_t kPiece = int64_t{1} << 16;         // indices
constexpr size_t kAhead = 24;  // indices whose marks are fetched

// Adds where the segments and the rows of a stream end.
absl::Status AddSegments(StreamBuffer& buffer, StreamDigest& digest) {
  for (int64_t at = 0; at < buffer.size();) {
    LOCKSTEP_ASSIGN_OR_RETURN(const IndexStream::Segment segment,
                              buffer.SegmentAt(at));
    digest.Add({segment.begin, segment.end, segment.max_rows, segment.rows});
    digest.Add(segment.row_ends);
    if (segment.end <= at) {
      return absl::DataLossError(absl::StrCat(
          "the order's segment at position ", at, " ends at ", segment.end));
    }
    at = segment.end;
  }
  return absl::OkStatus();
}

// The facts about an epoch that has been verified.
struct EpochResult {
  int64_t positions = 0;
  int64_t steps = 0;
  SamplerStats stats;
  int64_t places = 0;
  int64_t counted = 0;      // of these places, those where all was counted
  int64_t whole_from = -1;  // the place from which all steps were walked
};

// Tells how far a verification has come.
// Thread-safety: thread-compatible.
class Progress {
 public:
  Progress(const CommandHost& host, const VerifyCommand& command)
      : host_(host), every_(command.progress_every), next_(After(every_)) {}

  // Begins an epoch of so many positions, whose order is made first.
  void Start(int64_t epoch, int64_t size) {
    epoch_ = epoch;
    size_ = size;
    begin_ = std::nullopt;
    if (size >= kLong) {
      host_.tell(absl::StrCat("epoch ", epoch, ": making the order of ",
                              WithCommas(size), " positions"));
    }
  }

  void Tell(int64_t position) {
    const SteadyTime now = SteadyNow();
    // The first call comes when the order is there.
    if (!begin_.has_value()) begin_ = now;
    if (now < next_) return;
    next_ = After(every_);
    const double done = static_cast<double>(position) /
                        static_cast<double>(std::max<int64_t>(size_, 1));
    std::string text = absl::StrFormat("epoch %d: %.0f %% of %s positions",
                                       epoch_, 100 * done, WithCommas(size_));
    // The first steps say little of the others.
    if (done >= 0.01) {
      absl::StrAppend(&text, ", ",
                      absl::FormatDuration(absl::Trunc(
                          absl::FromChrono(now - *begin_) * ((1 - done) / done),
                          absl::Seconds(1))),
                      " left");
    }
    host_.tell(text);
  }

 private:
  static constexpr int64_t kLong = 100'000'000;

  const CommandHost& host_;
  const absl::Duration every_;
  SteadyTime next_;
  int64_t epoch_ = 0;
  int64_t size_ = 0;
  std::optional<SteadyTime> begin_;
};

// Verifies one epoch.
// Thread-safety: thread-compatible.
class EpochVerifier {
 public:
  EpochVerifier(const VerifyCommand& command, const Dealing& dealing,
                const std::vector<Dealing>& others, int64_t epoch,
                Progress& progress)
      : command_(command),
        dealing_(dealing),
        others_(others),
        epoch_(epoch),
        size_(dealing.order->Describe().size),
        coverage_(dealing.order->coverage()),
        progress_(progress) {}

  absl::StatusOr<EpochResult> Run() {
    if (size_ > kMostSamples) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "verify keeps a bit for each sample, and takes ", kMostSamples,
          " of them at most, but the order is over ", size_));
    }
    seen_.Clear(size_);
    LOCKSTEP_ASSIGN_OR_RETURN(auto stream, dealing_.order->Open(epoch_));
    result_.positions = stream->size();
    progress_.Start(epoch_, result_.positions);
    LOCKSTEP_RETURN_IF_ERROR(buffer_.Reset(std::move(stream)));
    Walker walker(dealing_, buffer_, epoch_);
    LOCKSTEP_RETURN_IF_ERROR(walker.Start());
    LOCKSTEP_RETURN_IF_ERROR(CountSteps(walker));
    Block block;
    do {
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t most, StepsToNextPlace(walker));
      LOCKSTEP_RETURN_IF_ERROR(
          walker.Take(most, block, [this, &block] { return MarkSeen(block); }));
      progress_.Tell(block.end());
    } while (!block.ends.empty());
    result_.stats = walker.stats();
    LOCKSTEP_RETURN_IF_ERROR(CheckCounts(*walker.samplers()[0]));
    LOCKSTEP_RETURN_IF_ERROR(AddSegments(buffer_, digest_));
    LOCKSTEP_RETURN_IF_ERROR(OpenAgain(dealing_));
    for (const Dealing& other : others_) {
      // Flags make one order for all numbers of ranks.
      if (other.order == dealing_.order) continue;
      LOCKSTEP_RETURN_IF_ERROR(OpenAgain(other));
    }
    return result_;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("epoch ", epoch_, ": ", what));
  }

  // Each rank opens the epoch for itself, and again after a restart, so another
  // stream must be the same. The first one is given up before, for its memory.
  absl::Status OpenAgain(const Dealing& dealing) {
    LOCKSTEP_RETURN_IF_ERROR(buffer_.Reset(nullptr));
    LOCKSTEP_ASSIGN_OR_RETURN(auto stream, dealing.order->Open(epoch_));
    LOCKSTEP_RETURN_IF_ERROR(buffer_.Reset(std::move(stream)));
    StreamDigest digest;
    for (int64_t at = 0; at < buffer_.size(); at += kPiece) {
      LOCKSTEP_RETURN_IF_ERROR(
          buffer_.Fill(at, std::min(at + kPiece, buffer_.size())));
      digest.Add(buffer_.indices());
    }
    LOCKSTEP_RETURN_IF_ERROR(AddSegments(buffer_, digest));
    if (buffer_.size() == result_.positions &&
        digest.value() == digest_.value()) {
      return absl::OkStatus();
    }
    return Wrong(absl::StrCat(
        "the order gives another stream when it is opened again, on ",
        dealing.ranks(),
        " ranks; an order must depend on nothing but the "
        "epoch and what it describes: ",
        dealing.order->Describe().ToString()));
  }

  // Counts the steps of the first rank, of a middle one and of the last one,
  // which must be the same, and chooses the steps before which ranks are
  // restarted.
  absl::Status CountSteps(const Walker& walker) {
    result_.steps = walker.steps_left();
    const size_t parts = walker.samplers().size();
    for (const size_t part : {parts / 2, parts - 1}) {
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps,
                                walker.samplers()[part]->StepsLeft());
      if (steps == result_.steps) continue;
      return Wrong(absl::StrCat(
          "rank ", walker.samplers()[part]->options().rank, " takes ", steps,
          " steps, and rank 0 takes ", result_.steps));
    }
    // The first and the last places are the ends of the epoch. Very many ranks
    // are restarted at fewer places.
    count_ = std::min({command_.places, result_.steps + 1,
                       std::max<int64_t>(2, kMostRestarts / dealing_.ranks())});
    for (int64_t i = 0; i < count_; ++i) {
      const double share =
          static_cast<double>(i) /
          static_cast<double>(std::max<int64_t>(count_ - 1, 1));
      places_.insert(
          static_cast<int64_t>(share * static_cast<double>(result_.steps)));
    }
    return absl::OkStatus();
  }

  // Restarts the ranks if the next step is one of the places. Returns how many
  // steps come until the next place.
  absl::StatusOr<int64_t> StepsToNextPlace(const Walker& walker) {
    const int64_t step = walker.samplers()[0]->progress().steps_taken;
    if (!places_.empty() && *places_.begin() <= step) {
      places_.erase(places_.begin());
      LOCKSTEP_RETURN_IF_ERROR(Restart(walker));
    }
    if (places_.empty()) return std::numeric_limits<int64_t>::max();
    return *places_.begin() - step;
  }

  // Marks the samples in the buffer, which must be new unless the order repeats
  // samples.
  absl::Status MarkSeen(const Block& block) {
    const absl::Span<const int64_t> indices = buffer_.indices();
    digest_.Add(indices);
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t index = indices[i];
      const int64_t position = block.begin + static_cast<int64_t>(i);
      if (index < 0 || index >= size_) {
        return Wrong(absl::StrCat("the order has index ", index,
                                  " at position ", position,
                                  ", and the dataset has ", size_, " samples"));
      }
      if (i + kAhead < indices.size()) {
        const int64_t later = indices[i + kAhead];
        if (later >= 0 && later < size_) seen_.Fetch(later);
      }
      if (seen_.Mark(index) && coverage_ != Coverage::kAny) {
        return Twice(index, position);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Twice(int64_t index, int64_t position) {
    int64_t first = 0;
    std::vector<int64_t> indices(4096);
    for (int64_t at = 0; at < position; at += 4096) {
      const auto piece = absl::MakeSpan(indices.data(),
                                        std::min<int64_t>(4096, position - at));
      LOCKSTEP_RETURN_IF_ERROR(buffer_.Read(at, 1, piece));
      const auto found = std::find(piece.begin(), piece.end(), index);
      if (found == piece.end()) continue;
      first = at + (found - piece.begin());
      break;
    }
    return Wrong(
        absl::StrCat("sample ", index, " comes at position ", first,
                     " of the order, and again at position ", position,
                     "; an order that repeats samples on purpose overrides "
                     "Order::coverage()"));
  }

  // Checks that all ranks save the same state, and goes on from it on as many
  // ranks, and on other numbers of ranks.
  absl::Status Restart(const Walker& walker) {
    const Sampler& first = *walker.samplers()[0];
    const std::string state = first.SaveState();
    const int64_t begin = first.progress().position;
    for (const auto& sampler : walker.samplers()) {
      if (sampler->SaveState() == state) continue;
      return Wrong(absl::StrCat("rank ", sampler->options().rank,
                                " saves another state than rank 0 at position ",
                                begin));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckReplicas(walker, state));
    // From about the last tenth of the places on, one restart is followed in
    // all of its steps.
    const bool is_whole =
        result_.whole_from < 0 && static_cast<int64_t>(places_.size()) <=
                                      std::max<int64_t>(1, count_ / 10);
    // Orders with segments must be read to count what is left of them, so this
    // is done at few places.
    const bool is_counted =
        is_whole || !buffer_.has_segments() || result_.counted < kMostCounts;
    const Follow follow = is_whole     ? Follow::kAllSteps
                          : is_counted ? Follow::kLastStep
                                       : Follow::kNextStep;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::vector<uint64_t> shards,
        GoOn(dealing_, state, begin, is_counted ? Follow::kLastStep : follow));
    for (const Dealing& other : others_) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<uint64_t> same_shards,
                                GoOn(other, state, begin, follow));
      const auto differ = std::mismatch(shards.begin(), shards.end(),
                                        same_shards.begin(), same_shards.end());
      if (differ.first == shards.end()) continue;
      return Wrong(absl::StrCat("shard ", differ.first - shards.begin(),
                                " of the step at position ", begin,
                                " has other rows on ", other.ranks(),
                                " ranks than on ", dealing_.ranks()));
    }
    if (is_whole) result_.whole_from = begin;
    if (is_counted) ++result_.counted;
    ++result_.places;
    return absl::OkStatus();
  }

  // Ranks that share a part of the data get the same rows.
  absl::Status CheckReplicas(const Walker& walker, const std::string& state) {
    const SamplerOptions& options = dealing_.options;
    if (options.replicas == 1) return absl::OkStatus();
    for (int64_t rank = 0; rank < dealing_.ranks(); ++rank) {
      const int64_t part = rank / options.data_stride % options.cut.world;
      LOCKSTEP_ASSIGN_OR_RETURN(
          const auto one,
          walker.MakeSampler(part * options.data_stride, state));
      LOCKSTEP_ASSIGN_OR_RETURN(const auto other,
                                walker.MakeSampler(rank, state));
      BatchIndices rows, same_rows;
      LOCKSTEP_RETURN_IF_ERROR(one->Next(rows).status());
      LOCKSTEP_RETURN_IF_ERROR(other->Next(same_rows).status());
      if (rows.positions == same_rows.positions &&
          rows.indices == same_rows.indices) {
        continue;
      }
      return Wrong(absl::StrCat("rank ", rank, " gets other rows than rank ",
                                part * options.data_stride,
                                ", with which it shares its data"));
    }
    return absl::OkStatus();
  }

  // The steps that are walked after a restart.
  enum class Follow {
    kNextStep,
    kLastStep,  // and the next one; the steps between them are counted
    kAllSteps,
  };

  // Goes on from a state at position `begin`. Together, all ranks must take or
  // drop all that is left. Returns the digests of the next step's shards.
  absl::StatusOr<std::vector<uint64_t>> GoOn(const Dealing& dealing,
                                             const std::string& state,
                                             int64_t begin, Follow follow) {
    Walker walker(dealing, buffer_, epoch_);
    LOCKSTEP_RETURN_IF_ERROR(walker.Start(state));
    Block block;
    LOCKSTEP_RETURN_IF_ERROR(walker.Take(1, block));
    if (block.begin != begin) {
      return walker.Wrong(0, absl::StrCat("goes on at position ", block.begin,
                                          ", and the state is at ", begin));
    }
    std::vector<uint64_t> shards = walker.first_shards();
    if (follow == Follow::kNextStep) return shards;
    if (follow == Follow::kLastStep) {
      LOCKSTEP_RETURN_IF_ERROR(walker.PassAllButOne());
    }
    while (!block.ends.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(
          walker.Take(std::numeric_limits<int64_t>::max(), block));
    }
    const SamplerStats stats = walker.stats();
    if (stats.delivered + stats.dropped == buffer_.size() - begin) {
      return shards;
    }
    return walker.Wrong(0, absl::StrCat("and the others get ", stats.delivered,
                                        " positions and drop ", stats.dropped,
                                        ", but from position ", begin, " on, ",
                                        buffer_.size() - begin, " are left"));
  }

  absl::Status CheckCounts(const Sampler& sampler) {
    const int64_t taken = sampler.progress().steps_taken;
    if (taken != result_.steps) {
      return Wrong(absl::StrCat("there are ", taken, " steps, but ",
                                result_.steps, " were announced"));
    }
    const SamplerStats& stats = result_.stats;
    if (stats.delivered + stats.dropped != result_.positions) {
      return Wrong(absl::StrCat("of ", result_.positions, " positions ",
                                stats.delivered, " were delivered and ",
                                stats.dropped, " dropped"));
    }
    if (coverage_ != Coverage::kEachOnce) return absl::OkStatus();
    const int64_t missing = seen_.FirstMissing();
    if (missing >= size_) return absl::OkStatus();
    return Wrong(absl::StrCat("sample ", missing, " does not come, and ",
                              size_ - seen_.Count() - 1,
                              " others; an order that leaves samples out on "
                              "purpose overrides Order::coverage()"));
  }

  const VerifyCommand& command_;
  const Dealing& dealing_;
  const std::vector<Dealing>& others_;
  const int64_t epoch_;
  const int64_t size_;
  const Coverage coverage_;
  Progress& progress_;
  Bitmap seen_;
  StreamBuffer buffer_;
  std::set<int64_t> places_;  // the steps before which ranks are restarted
  int64_t count_ = 0;         // of all places
  StreamDigest digest_;       // of the order
  EpochResult result_;
};

// Returns how the job goes on on another number of ranks, or why it can't.
absl::StatusOr<Dealing> FindOther(const SampleSource& source,
                                  const Dealing& dealing, int64_t ranks) {
  absl::StatusOr<Dealing> found = source.For(ranks);
  if (!found.ok()) {
    return Annotate(found.status(), absl::StrCat("on ", ranks, " ranks"));
  }
  const std::string before = dealing.order->Describe().ToString();
  const std::string now = found->order->Describe().ToString();
  if (before == now) return found;
  return absl::FailedPreconditionError(absl::StrCat(
      "on ", ranks, " ranks: the order is ", now, ", and not ", before));
}

// Returns up to three other numbers of ranks on which the job can go on. If
// there is none, `reason` says why the last one is not.
std::vector<Dealing> FindOthers(const SampleSource& source,
                                const Dealing& dealing, std::string& reason) {
  const int64_t parts = dealing.options.cut.world;
  std::vector<Dealing> others;
  std::set<int64_t> tried = {parts};
  for (const int64_t other :
       {parts / 2, parts + 1, 2 * parts, parts - 1, int64_t{1}, int64_t{2}}) {
    if (others.size() == kOtherNumbers || other < 1 ||
        !tried.insert(other).second) {
      continue;
    }
    absl::StatusOr<Dealing> found =
        FindOther(source, dealing, other * dealing.options.replicas);
    if (found.ok()) {
      others.push_back(*std::move(found));
    } else {
      reason = std::string(found.status().message());
    }
  }
  return others;
}

// Returns the numbers of ranks that the flag names.
absl::StatusOr<std::vector<Dealing>> FindGiven(const SampleSource& source,
                                               const VerifyCommand& command,
                                               const Dealing& dealing) {
  std::vector<Dealing> others;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<int64_t> numbers,
      NumbersOfRanks("restart_world", command.restart_world));
  for (const int64_t ranks : numbers) {
    LOCKSTEP_ASSIGN_OR_RETURN(Dealing found, FindOther(source, dealing, ranks));
    others.push_back(std::move(found));
  }
  return others;
}

const char* CoverageText(Coverage coverage) {
  switch (coverage) {
    case Coverage::kEachOnce:
      return "each once";
    case Coverage::kAtMostOnce:
      return "none twice";
    case Coverage::kAny:
      return "as it draws them";
  }
  return "";
}

void PrintEpochText(int64_t epoch, const EpochResult& result,
                    const Dealing& dealing, const std::string& others,
                    const std::string& reason, std::ostream& out) {
  const CutOptions& cut = dealing.options.cut;
  out << "epoch " << epoch << "\n";
  out << Wrapped(
      absl::StrCat("the order has ",
                   Counted(dealing.order->Describe().size, "sample", "samples"),
                   ", ", CoverageText(dealing.order->coverage()),
                   ", and is the same when it is opened again"));
  out << Wrapped(
      absl::StrCat(Counted(result.steps, "step", "steps"), " on each of ",
                   Counted(dealing.ranks(), "rank", "ranks"), ": ",
                   WithCommas(result.stats.delivered), " delivered, ",
                   WithCommas(result.stats.dropped), " dropped, ",
                   WithCommas(result.stats.padded), " padded"));
  if (result.places > 0) {
    out << Wrapped(absl::StrCat("restarted on as many ranks at ",
                                Counted(result.places, "place", "places"),
                                ": the next step is the same"));
  }
  if (result.places > 0 && !others.empty()) {
    const std::string whole =
        result.whole_from < 0 || result.whole_from >= result.positions
            ? ""
            : absl::StrCat("; from position ", WithCommas(result.whole_from),
                           " on, all steps are");
    out << Wrapped(absl::StrCat(
        "restarted there on ", others, " ranks: the next step is right",
        cut.shards > 0 ? absl::StrCat(", with the same rows in each of its ",
                                      cut.shards, " shards")
                       : "",
        "; at ", Counted(result.counted, "place", "places"),
        ", so are the last step and the number of all samples that are left",
        whole));
  } else if (!reason.empty()) {
    out << Wrapped(absl::StrCat(
        "other numbers of ranks can't go on with this job: ", reason));
  }
}

// Returns what has been proven.
std::string Conclusion(Coverage coverage, int64_t dropped) {
  if (coverage == Coverage::kAny) {
    return dropped == 0
               ? "each position of the order comes once"
               : absl::StrCat(
                     "no position of the order comes twice, "
                     "and ",
                     WithCommas(dropped), " are left out, as the settings say");
  }
  if (dropped == 0) return "nothing is lost or comes twice";
  return absl::StrCat("no sample comes twice, and ", WithCommas(dropped),
                      dropped == 1 ? " is" : " are",
                      " left out, as the settings say");
}

}  // namespace

absl::Status RunVerify(const CommandHost& host, const VerifyCommand& command,
                       std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_RETURN_IF_ERROR(CheckEpochs(command.epoch, command.epochs));
  if (command.places < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--places should be 0 or more, but it is ", command.places));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto source,
                            SampleSource::Open(host, command.samples));
  LOCKSTEP_ASSIGN_OR_RETURN(const Dealing dealing, source->For(command.world));
  std::string reason;
  std::vector<Dealing> others;
  if (command.restart_world.empty()) {
    others = FindOthers(*source, dealing, reason);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(others, FindGiven(*source, command, dealing));
  }
  const std::string numbers =
      absl::StrJoin(others, ", ", [](std::string* text, const Dealing& each) {
        absl::StrAppend(text, each.ranks());
      });
  Progress progress(host, command);
  int64_t dropped = 0;
  RecordTable table({"epoch", "samples", "coverage", "positions", "ranks",
                     "steps", "delivered", "dropped", "padded", "restarts",
                     "other_ranks", "counted", "whole_from"});
  for (int64_t i = 0; i < command.epochs; ++i) {
    const int64_t epoch = command.epoch + i;
    EpochVerifier verifier(command, dealing, others, epoch, progress);
    LOCKSTEP_ASSIGN_OR_RETURN(const EpochResult result, verifier.Run());
    dropped += result.stats.dropped;
    if (format == OutputFormat::kText) {
      PrintEpochText(epoch, result, dealing, numbers, reason, out);
    }
    table.AddRow({epoch, dealing.order->Describe().size,
                  CoverageText(dealing.order->coverage()), result.positions,
                  dealing.ranks(), result.steps, result.stats.delivered,
                  result.stats.dropped, result.stats.padded, result.places,
                  numbers, result.counted,
                  result.whole_from < 0 ? Cell() : Cell(result.whole_from)});
  }
  if (format == OutputFormat::kCsv) table.PrintCsv(out);
  if (format == OutputFormat::kJson) {
    out << "{\n  \"ok\": true,\n  \"epochs\": ";
    table.PrintJson(out, "  ");
    out << "\n}\n";
  }
  if (format == OutputFormat::kText) {
    out << Conclusion(dealing.order->coverage(), dropped)
        << " (data was not read)\n";
  }
  return absl::OkStatus();
}

}  // namespace lockstep
