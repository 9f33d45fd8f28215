#include "lockstep/tools/cli/verify.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/sample_source.h"

namespace lockstep {
namespace {

constexpr int64_t kMostSamples = int64_t{1} << 36;  // 8 GiB of bits
constexpr size_t kOtherNumbers = 3;                 // of ranks
// Orders that group samples must read what is left to count its steps, so this
// is done at few places.
constexpr int kMostCounts = 3;

using Samplers = std::vector<std::unique_ptr<Sampler>>;

// A bit for each of `size` numbers from 0 on.
// Thread-safety: thread-compatible.
class Bitmap {
 public:
  explicit Bitmap(int64_t size)
      : words_(static_cast<size_t>((size + 63) / 64)) {}

  // Marks a number, and returns true if it was marked before.
  bool Mark(int64_t number) {
    uint64_t& word = words_[static_cast<size_t>(number) / 64];
    const uint64_t bit = uint64_t{1} << (static_cast<size_t>(number) % 64);
    const bool was_marked = (word & bit) != 0;
    word |= bit;
    return was_marked;
  }

  // Returns the first number from 0 on that is not marked.
  int64_t FirstMissing() const {
    int64_t number = 0;
    for (const uint64_t word : words_) {
      if (~word != 0) return number + __builtin_ctzll(~word);
      number += 64;
    }
    return number;
  }

  int64_t Count() const {
    int64_t count = 0;
    for (const uint64_t word : words_) count += __builtin_popcountll(word);
    return count;
  }

  // Clears all bits, and makes room for `size` of them.
  void Clear(int64_t size) {
    words_.assign(static_cast<size_t>((size + 63) / 64), 0);
  }

 private:
  std::vector<uint64_t> words_;
};

// The positions that all ranks have taken in a step.
struct Window {
  int64_t begin = 0;
  int64_t data = 0;  // go to ranks; the rest up to `end` is dropped
  int64_t end = 0;
  int64_t step = 0;
  std::vector<int64_t> indices;  // of [begin, end)
};

// Takes steps of all ranks together, and checks that each position goes to one
// of them.
// Thread-safety: thread-compatible.
class StepTaker {
 public:
  StepTaker(const Dealing& dealing, IndexStream& stream, int64_t epoch)
      : dealing_(dealing), stream_(stream), epoch_(epoch), marks_(0) {}

  // Moves one sampler of each part of the data by a step. Returns false at the
  // end of the epoch, with the positions that were dropped there in `window`.
  absl::StatusOr<bool> Take(const Samplers& samplers, Window& window) {
    bool more = false;
    window.begin = samplers[0]->progress().position;
    for (size_t part = 0; part < samplers.size(); ++part) {
      Sampler& sampler = *samplers[part];
      LOCKSTEP_ASSIGN_OR_RETURN(const bool has_step, sampler.Next(batch_));
      if (part == 0) {
        more = has_step;
        LOCKSTEP_RETURN_IF_ERROR(ReadWindow(sampler, window));
      }
      if (has_step != more) {
        return Wrong(part, absl::StrCat("has ", has_step ? "a" : "no", " step ",
                                        window.step, ", and rank 0 has ",
                                        more ? "one" : "none"));
      }
      if (sampler.progress().position != window.end) {
        return Wrong(
            part, absl::StrCat("is at position ", sampler.progress().position,
                               " after the step, and rank 0 at ", window.end));
      }
      if (more) LOCKSTEP_RETURN_IF_ERROR(CheckRows(part, window));
    }
    return more ? CheckWindow(window) : Close(window);
  }

  absl::Status Wrong(size_t part, absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(
        "epoch ", epoch_, ", ", dealing_.options.cut.world, " ranks: rank ",
        static_cast<int64_t>(part) * dealing_.options.data_stride, " ", what));
  }

 private:
  absl::Status ReadWindow(const Sampler& sampler, Window& window) {
    window.end = sampler.progress().position;
    window.step = batch_.step;
    window.data = 0;
    if (window.end < window.begin || window.end > stream_.size()) {
      return Wrong(0, absl::StrCat("moves from position ", window.begin, " to ",
                                   window.end));
    }
    window.indices.resize(static_cast<size_t>(window.end - window.begin));
    marks_.Clear(window.end - window.begin);
    if (window.indices.empty()) return absl::OkStatus();
    return stream_.Read(window.begin, 1, absl::MakeSpan(window.indices));
  }

  // Checks the rows of one rank.
  absl::Status CheckRows(size_t part, Window& window) {
    for (int64_t i = 0; i < batch_.samples(); ++i) {
      const auto row = static_cast<size_t>(i);
      const int64_t position = batch_.positions[row];
      if (position < window.begin || position >= window.end) {
        return Wrong(part, absl::StrCat("gets position ", position, " in step ",
                                        window.step, ", whose positions are ",
                                        window.begin, " to ", window.end - 1));
      }
      const int64_t place = position - window.begin;
      if (batch_.indices[row] != window.indices[static_cast<size_t>(place)]) {
        return Wrong(part,
                     absl::StrCat("gets sample ", batch_.indices[row],
                                  " at position ", position,
                                  ", where the order "
                                  "has ",
                                  window.indices[static_cast<size_t>(place)]));
      }
      if (marks_.Mark(place)) {
        return Wrong(part, absl::StrCat("gets position ", position, " in step ",
                                        window.step,
                                        ", which another rank or row gets, "
                                        "too"));
      }
      ++window.data;
    }
    return CheckPadding(part, window.step);
  }

  // Padding repeats a sample of the stream; masked rows have none.
  absl::Status CheckPadding(size_t part, int64_t step) {
    const int64_t size = stream_.size();
    for (auto i = static_cast<size_t>(batch_.samples());
         i < batch_.indices.size(); ++i) {
      int64_t expected = -1;
      if (dealing_.options.cut.tail == Tail::kPad) {
        LOCKSTEP_RETURN_IF_ERROR(stream_.Read(batch_.positions[i] % size, 1,
                                              absl::MakeSpan(&expected, 1)));
      }
      if (batch_.positions[i] >= size && batch_.indices[i] == expected) {
        continue;
      }
      return Wrong(part, absl::StrCat("gets sample ", batch_.indices[i],
                                      " as padding in step ", step));
    }
    return absl::OkStatus();
  }

  // The positions that no rank has are those behind the data.
  absl::StatusOr<bool> CheckWindow(const Window& window) const {
    const int64_t first = marks_.FirstMissing();
    if (first < window.data) {
      return Wrong(
          0, absl::StrCat("and all others lack position ", window.begin + first,
                          " in step ", window.step));
    }
    return true;
  }

  absl::StatusOr<bool> Close(const Window& window) const {
    if (window.end == stream_.size()) return false;
    return Wrong(0, absl::StrCat("ends at position ", window.end, " of ",
                                 stream_.size()));
  }

  const Dealing& dealing_;
  IndexStream& stream_;
  const int64_t epoch_;
  Bitmap marks_;
  BatchIndices batch_;
};

// Makes samplers of one rank for each part of the data.
absl::StatusOr<Samplers> MakeSamplers(const Dealing& dealing,
                                      const std::shared_ptr<SharedOrder>& order,
                                      int64_t epoch,
                                      const std::string& state = "") {
  Samplers samplers;
  SamplerOptions options = dealing.options;
  for (int64_t part = 0; part < options.cut.world; ++part) {
    options.rank = part * options.data_stride;
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order, options));
    LOCKSTEP_RETURN_IF_ERROR(state.empty() ? sampler->StartEpoch(epoch)
                                           : sampler->RestoreState(state));
    samplers.push_back(std::move(sampler));
  }
  return samplers;
}

// What is known of an epoch when it has been verified.
struct EpochResult {
  int64_t positions = 0;
  int64_t steps = 0;
  SamplerStats stats;
  int64_t places = 0;
};

// Tells how far a verification has come.
// Thread-safety: thread-compatible.
class Progress {
 public:
  Progress(const CommandHost& host, const VerifyCommand& command)
      : host_(host), every_(command.progress_every), next_(After(every_)) {}

  void Tell(int64_t epoch, int64_t position, int64_t size) {
    if (SteadyNow() < next_) return;
    next_ = After(every_);
    const double done = static_cast<double>(position) /
                        static_cast<double>(std::max<int64_t>(size, 1));
    const absl::Duration passed = absl::FromChrono(SteadyNow() - start_);
    std::string text = absl::StrFormat("epoch %d: %.0f %% of %s positions",
                                       epoch, 100 * done, WithCommas(size));
    // The first steps say little of the others.
    if (done >= 0.01) {
      absl::StrAppend(&text, ", ",
                      absl::FormatDuration(absl::Trunc(
                          passed * ((1 - done) / done), absl::Seconds(1))),
                      " left");
    }
    host_.tell(text);
  }

  // Begins to count the time of an epoch.
  void Start() { start_ = SteadyNow(); }

 private:
  const CommandHost& host_;
  const absl::Duration every_;
  SteadyTime next_;
  SteadyTime start_ = SteadyNow();
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
        order_(std::make_shared<SharedOrder>(dealing.order)),
        progress_(progress),
        seen_(0) {}

  absl::StatusOr<EpochResult> Run() {
    if (size_ > kMostSamples) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "verify keeps a bit for each sample, and takes ", kMostSamples,
          " of them at most, but the order is over ", size_));
    }
    seen_.Clear(size_);
    LOCKSTEP_ASSIGN_OR_RETURN(stream_, order_->Open(epoch_));
    result_.positions = stream_->size();
    LOCKSTEP_RETURN_IF_ERROR(stream_->Prepare());
    progress_.Start();
    LOCKSTEP_ASSIGN_OR_RETURN(const Samplers samplers,
                              MakeSamplers(dealing_, order_, epoch_));
    LOCKSTEP_RETURN_IF_ERROR(CountSteps(samplers));
    StepTaker taker(dealing_, *stream_, epoch_);
    Window window;
    while (true) {
      const int64_t step = samplers[0]->progress().steps_taken;
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string state,
                                StateAt(samplers, step));
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, taker.Take(samplers, window));
      LOCKSTEP_RETURN_IF_ERROR(MarkSeen(window));
      if (!state.empty()) {
        LOCKSTEP_RETURN_IF_ERROR(CheckRestart(state, samplers, window, more));
      }
      if (!more) break;
      if (step % 64 == 0) progress_.Tell(epoch_, window.end, result_.positions);
    }
    result_.stats = samplers[0]->stats();
    LOCKSTEP_RETURN_IF_ERROR(CheckCounts(samplers));
    return result_;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("epoch ", epoch_, ": ", what));
  }

  // Counts the steps of the first ranks and of the last one, which must be the
  // same, and chooses the steps before which ranks are restarted.
  absl::Status CountSteps(const Samplers& samplers) {
    if (size_ > 0 && stream_->size() > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(const IndexStream::Segment first,
                                stream_->SegmentAt(0));
      has_segments_ = first.end != stream_->size() || !first.row_ends.empty();
    }
    for (const size_t part :
         {size_t{0}, samplers.size() / 2, samplers.size() - 1}) {
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps,
                                samplers[part]->StepsLeft());
      if (part == 0) result_.steps = steps;
      if (steps == result_.steps) continue;
      return Wrong(absl::StrCat("rank ", part, " takes ", steps,
                                " steps, and rank 0 takes ", result_.steps));
    }
    const int64_t most = result_.steps + 1;  // with the end of the epoch
    const int64_t count = std::min(command_.places, most);
    for (int64_t i = 0; i < count; ++i) {
      // The first and the last places are the ends of the epoch.
      const auto share = static_cast<double>(i) /
                         static_cast<double>(std::max<int64_t>(count - 1, 1));
      places_.insert(
          static_cast<int64_t>(share * static_cast<double>(result_.steps)));
    }
    return absl::OkStatus();
  }

  // Returns the state before a step that is one of the places, and otherwise
  // "". All ranks must save the same.
  absl::StatusOr<std::string> StateAt(const Samplers& samplers, int64_t step) {
    if (places_.erase(step) == 0) return std::string();
    std::string state = samplers[0]->SaveState();
    for (const auto& sampler : samplers) {
      if (sampler->SaveState() == state) continue;
      return Wrong(absl::StrCat("rank ", sampler->options().rank,
                                " saves another state than rank 0 before step ",
                                step));
    }
    ++result_.places;
    return state;
  }

  // Marks the samples of a window, which must be new unless the order repeats
  // samples.
  absl::Status MarkSeen(const Window& window) {
    for (size_t i = 0; i < window.indices.size(); ++i) {
      const int64_t index = window.indices[i];
      const int64_t position = window.begin + static_cast<int64_t>(i);
      if (index < 0 || index >= size_) {
        return Wrong(absl::StrCat("the order has index ", index,
                                  " at position ", position,
                                  ", and the dataset has ", size_, " samples"));
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
      LOCKSTEP_RETURN_IF_ERROR(stream_->Read(at, 1, piece));
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

  // Restores the state on as many ranks, replicas included, and on other
  // numbers of ranks. `samplers` have taken the step after it.
  absl::Status CheckRestart(const std::string& state, const Samplers& samplers,
                            const Window& window, bool more) {
    SamplerOptions options = dealing_.options;
    for (options.rank = 0; options.rank < dealing_.ranks(); ++options.rank) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                                Sampler::Create(order_, options));
      LOCKSTEP_RETURN_IF_ERROR(sampler->RestoreState(state));
      BatchIndices again;
      LOCKSTEP_ASSIGN_OR_RETURN(const bool has_step, sampler->Next(again));
      if (has_step == more &&
          sampler->SaveState() == samplers[0]->SaveState() &&
          (!more || HasWindowRows(again, window))) {
        continue;
      }
      return Wrong(absl::StrCat("rank ", options.rank,
                                ", restarted before step ", window.step,
                                ", goes on with another step"));
    }
    LOCKSTEP_RETURN_IF_ERROR(CompareRows(state, window, more));
    for (size_t i = 0; i < others_.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(CheckOther(others_[i], state, window.begin));
    }
    ++restarts_;
    return absl::OkStatus();
  }

  static bool HasWindowRows(const BatchIndices& batch, const Window& window) {
    for (int64_t i = 0; i < batch.samples(); ++i) {
      const int64_t position = batch.positions[static_cast<size_t>(i)];
      if (position < window.begin || position >= window.end ||
          window.indices[static_cast<size_t>(position - window.begin)] !=
              batch.indices[static_cast<size_t>(i)]) {
        return false;
      }
    }
    return true;
  }

  // Takes the step again with restored samplers, which together must get each
  // position once.
  absl::Status CompareRows(const std::string& state, const Window& window,
                           bool more) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Samplers restored,
                              MakeSamplers(dealing_, order_, epoch_, state));
    StepTaker taker(dealing_, *stream_, epoch_);
    Window again;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool has_step, taker.Take(restored, again));
    if (has_step == more && again.begin == window.begin &&
        again.end == window.end && again.data == window.data &&
        again.indices == window.indices) {
      return absl::OkStatus();
    }
    return Wrong(absl::StrCat("after a restart before step ", window.step,
                              ", that step is another one"));
  }

  // Goes on from the state on another number of ranks, which must take all that
  // is left.
  absl::Status CheckOther(const Dealing& other, const std::string& state,
                          int64_t begin) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Samplers samplers,
                              MakeSamplers(other, order_, epoch_, state));
    StepTaker taker(other, *stream_, epoch_);
    Window window;
    LOCKSTEP_ASSIGN_OR_RETURN(bool more, taker.Take(samplers, window));
    if (window.begin != begin) {
      return taker.Wrong(0, absl::StrCat("goes on at position ", window.begin,
                                         ", and the state is at ", begin));
    }
    if (has_segments_ && restarts_ >= kMostCounts) return absl::OkStatus();
    SamplerStats stats = samplers[0]->stats();
    // All steps but the last one are passed without reading them.
    if (more) {
      Sampler& first = *samplers[0];
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t left, first.StepsLeft());
      LOCKSTEP_RETURN_IF_ERROR(first.PassSteps(std::max<int64_t>(left - 1, 0)));
      stats = first.stats();
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Samplers at_end,
          MakeSamplers(other, order_, epoch_, first.SaveState()));
      while (more) {
        LOCKSTEP_ASSIGN_OR_RETURN(more, taker.Take(at_end, window));
      }
      stats.delivered += at_end[0]->stats().delivered;
      stats.dropped += at_end[0]->stats().dropped;
    }
    if (stats.delivered + stats.dropped == stream_->size() - begin) {
      return absl::OkStatus();
    }
    return taker.Wrong(
        0, absl::StrCat("and the others get ", stats.delivered,
                        " positions and "
                        "drop ",
                        stats.dropped, ", but from position ", begin, " on, ",
                        stream_->size() - begin, " are left"));
  }

  absl::Status CheckCounts(const Samplers& samplers) {
    const int64_t taken = samplers[0]->progress().steps_taken;
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
                              " others; an order that leaves samples out "
                              "on purpose overrides Order::coverage()"));
  }

  const VerifyCommand& command_;
  const Dealing& dealing_;
  const std::vector<Dealing>& others_;
  const int64_t epoch_;
  const int64_t size_;
  const Coverage coverage_;
  const std::shared_ptr<SharedOrder> order_;
  Progress& progress_;
  Bitmap seen_;
  std::unique_ptr<IndexStream> stream_;
  bool has_segments_ = false;
  std::set<int64_t> places_;  // the steps before which ranks are restarted
  int restarts_ = 0;
  EpochResult result_;
};

// Returns up to three other numbers of ranks on which the job can go on. If
// there is none, `reason` says why the last one is not.
std::vector<Dealing> FindOthers(const SampleSource& source,
                                const Dealing& dealing, std::string& reason) {
  const int64_t parts = dealing.options.cut.world;
  const OrderDescription description = dealing.order->Describe();
  std::vector<Dealing> others;
  std::set<int64_t> tried = {parts};
  for (const int64_t other :
       {parts / 2, parts + 1, 2 * parts, parts - 1, int64_t{1}, int64_t{2}}) {
    if (others.size() == kOtherNumbers || other < 1 ||
        !tried.insert(other).second) {
      continue;
    }
    const int64_t ranks = other * dealing.options.replicas;
    absl::StatusOr<Dealing> found = source.For(ranks);
    if (!found.ok()) {
      reason = absl::StrCat("on ", ranks, " ranks: ", found.status().message());
    } else if (found->order->Describe().ToString() != description.ToString()) {
      reason = absl::StrCat("on ", ranks, " ranks the order is ",
                            found->order->Describe().ToString(), ", and not ",
                            description.ToString());
    } else {
      others.push_back(*std::move(found));
    }
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
      return "as the order draws them";
  }
  return "";
}

void PrintEpochText(int64_t epoch, const EpochResult& result,
                    const Dealing& dealing, const std::string& others,
                    const std::string& reason, std::ostream& out) {
  out << "epoch " << epoch << ": "
      << Counted(dealing.order->Describe().size, "sample", "samples") << ", "
      << CoverageText(dealing.order->coverage()) << "; "
      << Counted(result.steps, "step", "steps") << " on each of "
      << Counted(dealing.ranks(), "rank", "ranks") << "; "
      << WithCommas(result.stats.delivered) << " delivered, "
      << WithCommas(result.stats.dropped) << " dropped, "
      << WithCommas(result.stats.padded) << " padded\n"
      << "  restarted at " << Counted(result.places, "place", "places")
      << ": on as many ranks, all goes on with the same samples\n";
  if (!others.empty()) {
    out << "  and on " << others << " ranks, all that is left comes once\n";
  } else if (!reason.empty()) {
    out << "  other numbers of ranks can't go on with this job: " << reason
        << "\n";
  }
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
  std::vector<Dealing> others = FindOthers(*source, dealing, reason);
  const std::string numbers =
      absl::StrJoin(others, ", ", [](std::string* text, const Dealing& each) {
        absl::StrAppend(text, each.ranks());
      });
  Progress progress(host, command);
  RecordTable table({"epoch", "samples", "coverage", "positions", "ranks",
                     "steps", "delivered", "dropped", "padded", "restarts",
                     "other_ranks"});
  for (int64_t i = 0; i < command.epochs; ++i) {
    const int64_t epoch = command.epoch + i;
    EpochVerifier verifier(command, dealing, others, epoch, progress);
    LOCKSTEP_ASSIGN_OR_RETURN(const EpochResult result, verifier.Run());
    if (format == OutputFormat::kText) {
      PrintEpochText(epoch, result, dealing, numbers, reason, out);
    }
    table.AddRow({epoch, dealing.order->Describe().size,
                  CoverageText(dealing.order->coverage()), result.positions,
                  dealing.ranks(), result.steps, result.stats.delivered,
                  result.stats.dropped, result.stats.padded, result.places,
                  numbers});
  }
  if (format == OutputFormat::kCsv) table.PrintCsv(out);
  if (format == OutputFormat::kJson) {
    table.PrintJson(out);
    out << "\n";
  }
  if (format == OutputFormat::kText) out << "nothing is lost or comes twice\n";
  return absl::OkStatus();
}

}  // namespace lockstep
