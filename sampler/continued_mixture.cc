#include "lockstep/sampler/continued_mixture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/mixture_round.h"

namespace lockstep {
namespace {

// Counts over many epochs. They may be negative, since epochs may be.
__extension__ using Wide = __int128;

// The most turns of the rounds of all phases: 128 MiB of them.
constexpr int64_t kMostTurnsOfAll = int64_t{1} << 24;

Wide DivideDown(Wide a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Adds to the number of an epoch of a source, which wraps beyond 64 bits.
int64_t AddPasses(int64_t pass, int64_t more) {
  return static_cast<int64_t>(static_cast<uint64_t>(pass) +
                              static_cast<uint64_t>(more));
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("mixture: ", what));
}

absl::Status CheckPhase(const ContinuedMixtureOptions& options, size_t number) {
  const ContinuedMixtureOptions::Phase& phase = options.phases[number];
  const size_t sources = options.sources.size();
  if (phase.weights.size() != sources) {
    return Wrong(absl::StrCat("there should be a weight for each of ", sources,
                              " sources, but phase ", number, " has ",
                              phase.weights.size()));
  }
  double sum = 0;
  int64_t positive = 0;
  for (const double weight : phase.weights) {
    if (!std::isfinite(weight) || weight < 0) {
      return Wrong(absl::StrCat(
          "a weight should be a finite number that is not negative, but phase ",
          number, " has ", weight));
    }
    sum += weight;
    if (weight > 0) ++positive;
  }
  if (positive > kMostTurns) {
    return Wrong(absl::StrCat(
        "at most 2^20 sources of a phase should have a weight, but phase ",
        number, " has ", positive));
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    return Wrong(absl::StrCat("the weights of phase ", number,
                              " should have a positive and finite sum, but it "
                              "is ",
                              sum));
  }
  const int64_t first = phase.first_sample;
  if (number == 0 ? first != 0
                  : first <= options.phases[number - 1].first_sample) {
    return Wrong(absl::StrCat(
        "the first phase should begin with sample 0, and each other one after "
        "the one before it, but phase ",
        number, " begins with sample ", first));
  }
  return absl::OkStatus();
}

}  // namespace

struct ContinuedMixture::Source {
  std::shared_ptr<const Order> order;
  int64_t begin = 0;      // its first index
  int64_t samples = 0;    // indices
  int64_t positions = 0;  // of an epoch of `order`
};

struct ContinuedMixture::Phase {
  int64_t first_sample;
  std::shared_ptr<const MixtureRound> round;
  std::vector<Wide> drawn;  // of each source before the phase
};

struct ContinuedMixture::Plan {
  MixtureStop end;
  std::vector<Source> sources;
  std::vector<Phase> phases;
  int64_t length;  // of an epoch
  // These are the draws of each source in an epoch, if each begins with a
  // round.
  std::vector<int64_t> draws;
};

// A position of the mixture, and what was drawn of each source before it.
struct ContinuedMixture::Place {
  const Phase* phase;
  int64_t turn;              // in its round
  std::vector<Wide> rounds;  // before the round
  std::vector<Wide> drawn;   // before the position
};

// The stream of one epoch.
// Thread-safety: thread-compatible.
class ContinuedMixtureStream : public IndexStream {
 public:
  ContinuedMixtureStream(std::shared_ptr<const ContinuedMixture> order,
                         int64_t epoch)
      : order_(std::move(order)), runs_(order_->plan_->sources.size()) {
    const auto& sources = order_->plan_->sources;
    for (int64_t begin = 0; begin < size();) {
      const auto place = order_->PlaceOf(epoch, begin);
      Piece piece = {begin, size(), place.turn, place.phase->round.get(), {}};
      if (place.phase != &order_->plan_->phases.back()) {
        const auto next = static_cast<Wide>(place.phase[1].first_sample) -
                          static_cast<Wide>(epoch) * size();
        piece.end = static_cast<int64_t>(std::min<Wide>(next, size()));
      }
      for (size_t i = 0; i < sources.size(); ++i) {
        const int64_t positions = std::max<int64_t>(sources[i].positions, 1);
        const Wide pass = DivideDown(place.rounds[i], positions);
        piece.starts.push_back(
            {static_cast<int64_t>(pass),
             static_cast<int64_t>(place.rounds[i] - pass * positions)});
        if (begin > 0) continue;
        passes_.push_back(
            static_cast<int64_t>(DivideDown(place.drawn[i], positions)));
      }
      begin = piece.end;
      pieces_.push_back(std::move(piece));
    }
    met_.reserve(std::min(sources.size(), static_cast<size_t>(kMostAtOnce)));
    turns_.reserve(kMostAtOnce);
    drawn_.reserve(kMostAtOnce);
  }

  int64_t size() const override { return order_->plan_->length; }

  // Opens the streams of the sources that the epoch begins with.
  absl::Status Prepare() override {
    if (pieces_.empty()) return absl::OkStatus();
    const Piece& piece = pieces_.front();
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (piece.round->weights[i] == 0) continue;
      LOCKSTEP_RETURN_IF_ERROR(Hold(i, passes_[i]));
      LOCKSTEP_RETURN_IF_ERROR(runs_[i].stream->Prepare());
    }
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    while (!out.empty()) {
      const Piece& piece = *std::find_if(
          pieces_.begin(), pieces_.end(),
          [first](const Piece& each) { return first < each.end; });
      int64_t count = 1;
      if (stride == 1) {
        count = std::min(
            {static_cast<int64_t>(out.size()), piece.end - first, kMostAtOnce});
      }
      LOCKSTEP_RETURN_IF_ERROR(
          ReadNeighbours(piece, first, out.first(static_cast<size_t>(count))));
      out.remove_prefix(static_cast<size_t>(count));
      first += count * stride;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kMostAtOnce = 512;

  // The positions of the epoch that are in one phase.
  struct Piece {
    int64_t begin, end;
    int64_t place;  // of `begin` in its round
    const MixtureRound* round;
    struct Start {
      int64_t pass;    // the epoch of the source's order
      int64_t offset;  // in that epoch
    };
    std::vector<Start> starts;  // of each source, at the begin of the round
  };

  // The draws of a source that are read together, and its open stream.
  struct Run {
    int64_t first = 0;
    int64_t count = 0;
    int64_t next = 0;  // the place of its next index in drawn_
    int64_t pass = 0;
    std::unique_ptr<IndexStream> stream;
  };

  // Reads positions that follow each other in a piece. Those of each source are
  // neighbours in the source's stream, so they are read together.
  absl::Status ReadNeighbours(const Piece& piece, int64_t first,
                              absl::Span<int64_t> out) {
    const MixtureRound& round = *piece.round;
    int64_t place = piece.place + (first - piece.begin);
    int64_t rounds = place / round.length();
    place %= round.length();
    // The counts of a read that has failed may be left.
    for (const uint32_t source : met_) runs_[source].count = 0;
    met_.clear();
    turns_.clear();
    for (size_t i = 0; i < out.size(); ++i) {
      const MixtureRound::Turn& turn = round.turns[static_cast<size_t>(place)];
      Run& run = runs_[turn.source];
      if (run.count++ == 0) {
        run.first = rounds * round.weights[turn.source] + turn.before;
        met_.push_back(turn.source);
      }
      turns_.push_back(turn.source);
      if (++place < round.length()) continue;
      place = 0;
      ++rounds;
    }
    drawn_.resize(out.size());
    int64_t next = 0;
    for (const uint32_t source : met_) {
      Run& run = runs_[source];
      run.next = next;
      next += run.count;
      LOCKSTEP_RETURN_IF_ERROR(Draw(source, piece.starts[source]));
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = drawn_[static_cast<size_t>(runs_[turns_[i]].next++)];
    }
    return absl::OkStatus();
  }

  // Reads the draws of a source's run into drawn_.
  absl::Status Draw(uint32_t number, const Piece::Start& start) {
    const ContinuedMixture::Source& source = order_->plan_->sources[number];
    Run& run = runs_[number];
    int64_t at = start.offset + run.first;
    int64_t pass = AddPasses(start.pass, at / source.positions);
    at %= source.positions;
    absl::Span<int64_t> out = absl::MakeSpan(drawn_).subspan(
        static_cast<size_t>(run.next), static_cast<size_t>(run.count));
    while (!out.empty()) {
      const auto count = static_cast<size_t>(
          std::min(static_cast<int64_t>(out.size()), source.positions - at));
      LOCKSTEP_RETURN_IF_ERROR(Hold(number, pass));
      LOCKSTEP_RETURN_IF_ERROR(run.stream->Read(at, 1, out.first(count)));
      for (int64_t& index : out.first(count)) index += source.begin;
      out.remove_prefix(count);
      at = 0;
      pass = AddPasses(pass, 1);
    }
    return absl::OkStatus();
  }

  absl::Status Hold(size_t number, int64_t pass) {
    Run& run = runs_[number];
    if (run.stream != nullptr && run.pass == pass) return absl::OkStatus();
    const ContinuedMixture::Source& source = order_->plan_->sources[number];
    run.stream = nullptr;  // its memory is free before the next one needs it
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<IndexStream> stream,
                              source.order->Open(pass));
    if (stream->size() != source.positions) {
      return absl::FailedPreconditionError(absl::StrCat(
          "mixture: an order of a source should have as many positions in each "
          "epoch, but ",
          source.order->Describe().ToString(), " has ", stream->size(),
          " in epoch ", pass, " and ", source.positions, " in epoch 0"));
    }
    run.stream = std::move(stream);
    run.pass = pass;
    return absl::OkStatus();
  }

  const std::shared_ptr<const ContinuedMixture> order_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> passes_;  // of each source, where the epoch begins
  std::vector<Run> runs_;        // one for each source
  std::vector<uint32_t> met_;    // the sources of the positions that are read
  std::vector<uint32_t> turns_;  // the source of each position
  std::vector<int64_t> drawn_;   // their indices, source by source
};

namespace {

// Adds to `drawn` what each source gets in whole rounds before the position
// `turn` of a phase, and sets `turn` to the position in its round.
void AddRounds(const MixtureRound& round, Wide& turn,
               std::vector<Wide>& drawn) {
  const Wide rounds = DivideDown(turn, round.length());
  for (size_t i = 0; i < drawn.size(); ++i) {
    drawn[i] += rounds * round.weights[i];
  }
  turn -= rounds * round.length();
}

// Adds what each source gets in the first `turns` turns of a round.
void AddTurns(const MixtureRound& round, int64_t turns,
              std::vector<Wide>& drawn) {
  for (int64_t i = 0; i < turns; ++i) {
    ++drawn[round.turns[static_cast<size_t>(i)].source];
  }
}

int64_t LengthOf(const ContinuedMixtureOptions& options,
                 const MixtureRound& round,
                 const std::vector<int64_t>& positions) {
  switch (options.end) {
    case MixtureStop::kFirstExhausted:
      return round.UntilFirstEnds(positions);
    case MixtureStop::kAllExhausted:
      return round.UntilAllEnd(positions);
    case MixtureStop::kNumSamples:
      break;
  }
  return options.num_samples;
}

// Returns true if a stream has batches of its own.
absl::StatusOr<bool> HasBatches(IndexStream& stream) {
  if (stream.size() == 0) return false;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto segment, stream.SegmentAt(0));
  return segment.end < stream.size() || segment.max_rows > 0 ||
         segment.rows > 0;
}

// Returns the positions of an epoch of a source's order.
absl::StatusOr<int64_t> CountPositions(const Order& order, size_t number) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream, order.Open(0));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto next, order.Open(1));
  const std::string name = order.Describe().order;
  if (next->size() != stream->size()) {
    return Wrong(absl::StrCat(
        "the order of a source should have as many positions in each epoch, "
        "but that of source ",
        number, ", '", name, "', has ", stream->size(), " in epoch 0 and ",
        next->size(), " in epoch 1"));
  }
  bool has_batches = order.packing().has_value();
  if (!has_batches) {
    LOCKSTEP_ASSIGN_OR_RETURN(has_batches, HasBatches(*stream));
  }
  if (!has_batches) {
    LOCKSTEP_ASSIGN_OR_RETURN(has_batches, HasBatches(*next));
  }
  if (has_batches) {
    return Wrong(absl::StrCat(
        "the order of source ", number, ", '", name,
        "', makes batches, which would be lost here: put it around the "
        "mixture, as its inner order"));
  }
  return stream->size();
}

}  // namespace

absl::StatusOr<std::vector<ContinuedMixture::Phase>>
ContinuedMixture::MakePhases(const ContinuedMixtureOptions& options) {
  std::map<std::vector<double>, std::shared_ptr<const MixtureRound>> rounds;
  int64_t turns = 0;
  std::vector<Phase> phases;
  std::vector<Wide> drawn(options.sources.size());
  for (const ContinuedMixtureOptions::Phase& phase : options.phases) {
    if (!phases.empty()) {
      const Phase& before = phases.back();
      Wide turn = phase.first_sample - before.first_sample;
      AddRounds(*before.round, turn, drawn);
      AddTurns(*before.round, static_cast<int64_t>(turn), drawn);
    }
    std::shared_ptr<const MixtureRound>& round = rounds[phase.weights];
    if (round == nullptr) {
      round =
          std::make_shared<const MixtureRound>(TurnsByWeight(phase.weights));
      turns += round->length();
    }
    if (turns > kMostTurnsOfAll) {
      return Wrong(absl::StrCat(
          "the rounds of all phases may have 2^24 turns together, but those up "
          "to phase ",
          phases.size(), " have ", turns,
          "; weights with few digits have short rounds"));
    }
    phases.push_back({phase.first_sample, round, drawn});
  }
  return phases;
}

absl::StatusOr<std::shared_ptr<const ContinuedMixture>>
ContinuedMixture::Create(ContinuedMixtureOptions options) {
  if (options.sources.empty() || options.phases.empty()) {
    return Wrong(absl::StrCat(
        "there should be a source and a phase with its weights, but there are ",
        options.sources.size(), " sources and ", options.phases.size(),
        " phases"));
  }
  if (options.end == MixtureStop::kNumSamples) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckPositive("mixture", "num_samples", options.num_samples));
  } else if (options.phases.size() > 1) {
    return Wrong(absl::StrCat(
        "weights that change need epochs of num_samples, so that it is known "
        "where they change, but there are ",
        options.phases.size(), " phases and another end of the epochs"));
  }
  for (size_t i = 0; i < options.phases.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(CheckPhase(options, i));
  }
  std::vector<Source> sources;
  int64_t begin = 0;
  for (size_t i = 0; i < options.sources.size(); ++i) {
    Source source{std::move(options.sources[i]), begin};
    if (source.order == nullptr) {
      return Wrong(absl::StrCat("source ", i, " has no order"));
    }
    source.samples = source.order->Describe().size;
    LOCKSTEP_ASSIGN_OR_RETURN(begin,
                              AddSizes("mixture", begin, source.samples));
    LOCKSTEP_ASSIGN_OR_RETURN(source.positions,
                              CountPositions(*source.order, i));
    LOCKSTEP_RETURN_IF_ERROR(CheckSize("mixture", source.positions));
    for (const ContinuedMixtureOptions::Phase& phase : options.phases) {
      if (source.positions > 0 || phase.weights[i] == 0) continue;
      return Wrong(absl::StrCat("source ", i, " has a weight of ",
                                phase.weights[i],
                                " and an order without samples; its weight "
                                "should be 0"));
    }
    sources.push_back(std::move(source));
  }
  auto plan = std::make_unique<Plan>();
  plan->end = options.end;
  LOCKSTEP_ASSIGN_OR_RETURN(plan->phases, MakePhases(options));
  const MixtureRound& round = *plan->phases.front().round;
  std::vector<int64_t> positions;
  for (const Source& source : sources) positions.push_back(source.positions);
  plan->length = LengthOf(options, round, positions);
  if (options.end != MixtureStop::kNumSamples) {
    Wide turn = plan->length;
    std::vector<Wide> draws(sources.size());
    AddRounds(round, turn, draws);
    AddTurns(round, static_cast<int64_t>(turn), draws);
    for (const Wide each : draws) {
      plan->draws.push_back(static_cast<int64_t>(each));
    }
  }
  plan->sources = std::move(sources);
  return std::shared_ptr<const ContinuedMixture>(
      new ContinuedMixture(std::move(plan)));
}

ContinuedMixture::ContinuedMixture(std::unique_ptr<const Plan> plan)
    : plan_(std::move(plan)) {}

ContinuedMixture::~ContinuedMixture() = default;

ContinuedMixture::Place ContinuedMixture::PlaceOf(int64_t epoch,
                                                  int64_t position) const {
  Wide at = position;
  if (plan_->end == MixtureStop::kNumSamples) {
    at += static_cast<Wide>(epoch) * plan_->length;
  }
  const Phase* phase = &plan_->phases.front();
  while (phase != &plan_->phases.back() && at >= phase[1].first_sample) {
    ++phase;
  }
  Wide turn = at - phase->first_sample;
  Place place = {phase, 0, phase->drawn, {}};
  for (size_t i = 0; i < plan_->draws.size(); ++i) {
    place.rounds[i] += static_cast<Wide>(epoch) * plan_->draws[i];
  }
  AddRounds(*phase->round, turn, place.rounds);
  place.turn = static_cast<int64_t>(turn);
  place.drawn = place.rounds;
  AddTurns(*phase->round, place.turn, place.drawn);
  return place;
}

absl::StatusOr<std::unique_ptr<IndexStream>> ContinuedMixture::Open(
    int64_t epoch) const {
  return std::make_unique<ContinuedMixtureStream>(shared_from_this(), epoch);
}

OrderDescription ContinuedMixture::Describe() const {
  OrderDescription description;
  description.order = "continued_mixture";
  description.details = absl::StrCat("end:", static_cast<int>(plan_->end),
                                     ",length:", plan_->length);
  for (const Source& source : plan_->sources) {
    description.size += source.samples;
    absl::StrAppend(&description.details, ",",
                    source.order->Describe().ToString());
  }
  for (const Phase& phase : plan_->phases) {
    absl::StrAppend(&description.details, ",from:", phase.first_sample, ":",
                    absl::StrJoin(phase.round->weights, "+"));
  }
  return description;
}

std::vector<Order::Part> ContinuedMixture::PartsAt(int64_t epoch,
                                                   int64_t position) const {
  const Place place = PlaceOf(epoch, position);
  const MixtureRound& round = *place.phase->round;
  std::vector<Part> parts;
  for (size_t i = 0; i < plan_->sources.size(); ++i) {
    constexpr Wide kMost = std::numeric_limits<int64_t>::max();
    parts.push_back({plan_->sources[i].samples,
                     static_cast<double>(round.weights[i]) /
                         static_cast<double>(round.length()),
                     static_cast<int64_t>(
                         std::clamp<Wide>(place.drawn[i], -kMost, kMost))});
  }
  return parts;
}

std::string ContinuedMixture::Explain() const {
  std::string text =
      absl::StrCat("a mixture with ", plan_->length, " samples an epoch");
  for (const Phase& phase : plan_->phases) {
    if (plan_->phases.size() > 1) {
      absl::StrAppend(&text, "; from sample ", phase.first_sample, " on");
    }
    const MixtureRound& round = *phase.round;
    for (size_t i = 0; i < plan_->sources.size(); ++i) {
      const Source& source = plan_->sources[i];
      absl::StrAppend(&text, i == 0 ? ": " : ", ", "part ", i, " of ",
                      source.samples, " samples has ", round.weights[i], " of ",
                      round.length(), " turns");
      if (source.positions == 0) continue;
      const double draws = plan_->draws.empty()
                               ? static_cast<double>(round.weights[i]) *
                                     static_cast<double>(plan_->length) /
                                     static_cast<double>(round.length())
                               : static_cast<double>(plan_->draws[i]);
      absl::StrAppend(&text, " (it comes ",
                      draws / static_cast<double>(source.positions),
                      " times an epoch)");
    }
  }
  return text;
}

}  // namespace lockstep
