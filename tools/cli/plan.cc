#include "lockstep/tools/cli/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/padding_waste.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/epoch_facts.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/sample_source.h"
#include "lockstep/tools/cli/saved_places.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

constexpr size_t kWidth = 80;                  // of a line of text
constexpr int64_t kMostLines = 40;             // that are all printed
constexpr int64_t kHeadLines = 24;             // otherwise
constexpr int64_t kTailLines = 8;              // about
constexpr int64_t kMostMeasured = 50'000'000;  // samples, for padding waste

// Prints batches in one of the formats for programs.
// Thread-safety: for one thread at a time.
class RowPrinter {
 public:
  RowPrinter(OutputFormat format, bool has_shards, std::ostream& out)
      : is_json_(format == OutputFormat::kJson),
        has_shards_(has_shards),
        out_(out) {
    out_ << (is_json_      ? "["
             : has_shards_ ? "epoch,rank,step,row,position,index,valid,shard\n"
                           : "epoch,rank,step,row,position,index,valid\n");
  }
  ~RowPrinter() {
    if (is_json_) out_ << "\n]\n";
  }
  RowPrinter(const RowPrinter&) = delete;
  RowPrinter& operator=(const RowPrinter&) = delete;

  void Print(int64_t rank, const BatchIndices& batch) {
    if (is_json_) {
      out_ << (first_ ? "\n" : ",\n") << "{\"epoch\": " << batch.epoch
           << ", \"rank\": " << rank << ", \"step\": " << batch.step
           << ", \"valid\": " << batch.valid << ", \"indices\": ["
           << absl::StrJoin(batch.indices, ", ") << "], \"positions\": ["
           << absl::StrJoin(batch.positions, ", ") << "]";
      if (has_shards_) {
        out_ << ", \"shards\": [" << absl::StrJoin(ShardsOf(batch), ", ")
             << "]";
      }
      out_ << "}";
      first_ = false;
      return;
    }
    std::vector<int64_t> shards;
    if (has_shards_) shards = ShardsOf(batch);
    for (size_t row = 0; row < batch.indices.size(); ++row) {
      out_ << batch.epoch << "," << rank << "," << batch.step << "," << row
           << "," << batch.positions[row] << "," << batch.indices[row] << ","
           << (static_cast<int64_t>(row) < batch.samples() ? 1 : 0);
      if (has_shards_) out_ << "," << shards[row];
      out_ << "\n";
    }
  }

 private:
  // Returns the shard of each index.
  static std::vector<int64_t> ShardsOf(const BatchIndices& batch) {
    std::vector<int64_t> shards(batch.indices.size());
    const auto fill = [&](int64_t begin, int64_t rows, int64_t shard) {
      std::fill(shards.begin() + batch.SamplesBefore(begin),
                shards.begin() + batch.SamplesBefore(begin + rows), shard);
    };
    for (const ShardRows& rows : batch.shards) {
      fill(rows.begin, rows.valid, rows.shard);
      fill(rows.padding_begin, rows.padding, rows.shard);
    }
    return shards;
  }

  const bool is_json_;
  const bool has_shards_;
  std::ostream& out_;
  bool first_ = true;
};

absl::Status PrintRows(const RankSamplers& samplers,
                       const std::vector<int64_t>& ranks, int64_t epoch,
                       RowPrinter& printer, std::ostream& out) {
  for (const int64_t rank : ranks) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler, samplers.Make(epoch, rank));
    BatchIndices batch;
    while (out) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
      if (!more) break;
      printer.Print(rank, batch);
    }
  }
  return absl::OkStatus();
}

// ---- The text.

// Returns "ranks 0 to 2", or "rank 7".
std::string RanksText(int64_t first, int64_t last) {
  if (first == last) return absl::StrCat("rank ", first);
  return absl::StrCat("ranks ", first, " to ", last);
}

// Returns what the ranks get in the last step, such as "ranks 0 to 2 have 5
// rows each, and ranks 3 to 7 have 4".
std::string LastStep(const EpochFacts& facts, const SamplerOptions& options) {
  const auto of_rank = [&](int64_t rank) {
    return facts.last[static_cast<size_t>(rank / options.data_stride %
                                          options.cut.world)];
  };
  const int64_t ranks = options.cut.world * options.replicas;
  std::string text;
  for (int64_t first = 0; first < ranks;) {
    int64_t last = first;
    while (last + 1 < ranks && of_rank(last + 1) == of_rank(first)) ++last;
    const auto [rows, valid] = of_rank(first);
    absl::StrAppend(&text, first == 0 ? "" : ", ", RanksText(first, last),
                    first == last ? " has " : " have ",
                    Counted(rows, "row", "rows"));
    if (valid != rows) {
      absl::StrAppend(&text, " (", WithCommas(rows - valid), " of them ",
                      options.cut.tail == Tail::kMask ? "empty)" : "padding)");
    }
    first = last + 1;
  }
  return text;
}

// Returns how a step is cut, and who gets how many shards: "A step has up to 48
// rows together, in 24 shards of up to 2 rows, which are the same on any number
// of ranks. Ranks 0 to 3 get 5 shards each, and rank 4 gets 4."
std::string ShardsText(const SamplerOptions& options) {
  const CutOptions& cut = options.cut;
  std::string text = absl::StrCat(
      "A step has up to ", Counted(cut.GlobalBatch(), "row", "rows"),
      " together, in ", Counted(cut.shards, "shard", "shards"), " of up to ",
      Counted(cut.batch_size, "row", "rows"),
      ", which are the same on any number of ranks. ");
  const int64_t most = ShardsOf(cut, 0).end;
  const int64_t fewest = cut.shards / cut.world;
  const std::string most_text = Counted(most, "shard", "shards");
  if (most == fewest) {
    return absl::StrCat(text, "Each rank gets ", most_text, ".");
  }
  if (options.replicas > 1) {
    return absl::StrCat(text, "Each rank gets ", most_text, " or ",
                        WithCommas(fewest), ".");
  }
  const int64_t longer = cut.shards % cut.world;
  return absl::StrCat(
      text, longer == 1 ? "Rank 0" : absl::StrCat("Ranks 0 to ", longer - 1),
      longer == 1 ? " gets " : " get ", most_text, longer == 1 ? "" : " each",
      ", and ", RanksText(longer, cut.world - 1),
      longer + 1 == cut.world ? " gets " : " get ", WithCommas(fewest), ".");
}

std::string DroppedText(const SamplerStats& stats, const CutOptions& cut) {
  std::vector<std::string> reasons;
  if (cut.tail == Tail::kDrop) reasons.push_back("tail = \"drop\"");
  if (cut.drop_last) reasons.push_back("drop_last");
  if (cut.min_last_batch > 0) {
    reasons.push_back(absl::StrCat("min_last_batch = ", cut.min_last_batch));
  }
  return absl::StrCat(Counted(stats.dropped, "sample", "samples"),
                      stats.dropped == 1 ? " is" : " are", " left out (",
                      absl::StrJoin(reasons, ", "), ").");
}

std::string PaddedText(const SamplerStats& stats, const CutOptions& cut) {
  const std::string rows = Counted(stats.padded, "row", "rows");
  const bool is_one = stats.padded == 1;
  switch (cut.tail) {
    case Tail::kPad:
      if (stats.padded == 0) return "No row is padding (tail = \"pad\").";
      return absl::StrCat(rows,
                          is_one ? " repeats a sample" : " repeat samples",
                          " as padding, marked by * (tail = \"pad\").");
    case Tail::kMask:
      if (stats.padded == 0) return "No row is empty (tail = \"mask\").";
      return absl::StrCat(rows, is_one ? " is" : " are",
                          " empty, marked by - (tail = \"mask\").");
    case Tail::kUneven:
      return absl::StrCat(cut.shards > 0 ? "Shards" : "Ranks",
                          " may have one row less than others (tail = "
                          "\"uneven\").");
    case Tail::kDrop:
      break;
  }
  return stats.dropped > 0 ? ""
                           : "No sample is left out (tail = \"drop\"; "
                             "drop_last leaves out a short batch).";
}

void PrintFacts(const EpochFacts& facts, const RankSamplers& samplers,
                std::ostream& out) {
  const Dealing& dealing = samplers.dealing();
  const CutOptions& cut = dealing.options.cut;
  const std::string from =
      facts.first_step == 0
          ? ""
          : absl::StrCat(", from step ", facts.first_step, " on");
  out << Wrapped(
      absl::StrCat("epoch ", facts.epoch, ": ",
                   Counted(facts.steps, "step", "steps"), " on each of ",
                   Counted(dealing.ranks(), "rank", "ranks"), from, "; ",
                   WithCommas(facts.stats.delivered), " of ",
                   Counted(facts.size, "sample", "samples"), " come"),
      "");
  std::vector<std::string> sentences;
  if (samplers.place().has_value()) {
    sentences.push_back(absl::StrCat("The checkpoint is at ",
                                     samplers.place()->ToString(), "."));
  }
  if (dealing.options.replicas > 1) {
    sentences.push_back(absl::StrCat(dealing.options.replicas,
                                     " ranks share each part of the data."));
  }
  if (cut.shards > 0) {
    sentences.push_back(ShardsText(dealing.options));
  } else {
    sentences.push_back(absl::StrCat(
        "A step has up to ", Counted(cut.batch_size, "row", "rows"),
        " on each rank, ", WithCommas(cut.GlobalBatch()), " together."));
  }
  if (MaxRows(cut) > cut.batch_size) {
    sentences.push_back("A last step that was joined may have more.");
  }
  if (dealing.micro_batch_size > 0) {
    sentences.push_back(absl::StrCat(
        "A step comes in up to ", Counted(dealing.parts(), "part", "parts"),
        " of at most ", Counted(dealing.micro_batch_size, "row", "rows"), "."));
  }
  if (facts.steps > 0) {
    sentences.push_back(absl::StrCat("In the last step, ",
                                     LastStep(facts, dealing.options), "."));
  }
  if (facts.stats.dropped > 0) {
    sentences.push_back(DroppedText(facts.stats, cut));
  }
  const std::string padded = PaddedText(facts.stats, cut);
  if (!padded.empty()) sentences.push_back(padded);
  for (const std::string& sentence : sentences) out << Wrapped(sentence);
}

// Returns the samples of a batch, which are cut off to fit into a line unless
// all are wanted.
std::string SamplesText(const BatchIndices& batch, size_t room, bool all,
                        bool& is_cut) {
  std::string text;
  size_t row = 0;
  for (size_t i = 0; i < batch.indices.size(); ++i) {
    std::string word;
    if (!batch.splits.empty()) {
      // Bars stand between rows of several samples.
      while (static_cast<int64_t>(i) >= batch.splits[row + 1]) ++row;
      if (i > 0 && static_cast<int64_t>(i) == batch.splits[row]) word = "| ";
    }
    const bool is_padding = static_cast<int64_t>(i) >= batch.samples();
    if (batch.indices[i] < 0) {
      absl::StrAppend(&word, "-");
    } else {
      absl::StrAppend(&word, batch.indices[i], is_padding ? "*" : "");
    }
    const std::string rest =
        absl::StrCat(" ... ", batch.indices.size() - i, " more");
    if (!all && i > 0 && text.size() + 1 + word.size() + rest.size() > room) {
      is_cut = true;
      return text + rest;
    }
    absl::StrAppend(&text, i == 0 ? "" : " ", word);
  }
  return text;
}

// The first and the last ones of a number of things, which are printed.
struct Shown {
  int64_t head, tail;
  bool Has(int64_t i, int64_t count) const {
    return i < head || i >= count - tail;
  }
};

Shown ShowSome(int64_t count, int64_t head, int64_t tail, bool all) {
  if (all || count <= head + tail) return {count, 0};
  return {head, tail};
}

absl::Status PrintSteps(const RankSamplers& samplers,
                        const std::vector<int64_t>& ranks,
                        const EpochFacts& facts, bool all, std::ostream& out) {
  const auto count = static_cast<int64_t>(ranks.size());
  const bool few =
      all || facts.steps <= kMostLines / std::max<int64_t>(count, 1);
  const Shown of_ranks = ShowSome(count, few ? kMostLines : 8, 2, all);
  const int64_t lines = of_ranks.head + of_ranks.tail;
  const Shown of_steps = ShowSome(
      facts.steps, few ? facts.steps : std::max<int64_t>(1, kHeadLines / lines),
      std::max<int64_t>(1, kTailLines / lines), all || few);
  std::vector<std::pair<int64_t, std::unique_ptr<Sampler>>> shown;
  for (int64_t i = 0; i < count; ++i) {
    if (!of_ranks.Has(i, count)) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                              samplers.Make(facts.epoch, ranks[i]));
    shown.emplace_back(ranks[i], std::move(sampler));
  }
  const auto width = static_cast<int>(
      std::max<size_t>(4, absl::StrCat(facts.first_step + facts.steps).size()));
  const std::string head =
      absl::StrFormat("  %*s  rank  rows  samples\n", width, "step");
  out << head;
  bool is_cut = of_steps.tail > 0 || of_ranks.tail > 0;
  for (int64_t step = 0; step < facts.steps && out; ++step) {
    if (step == of_steps.head && of_steps.tail > 0) {
      const int64_t passed = facts.steps - of_steps.head - of_steps.tail;
      for (auto& [rank, sampler] : shown) {
        LOCKSTEP_RETURN_IF_ERROR(sampler->PassSteps(passed));
      }
      step += passed;
      out << "  ... " << Counted(passed, "step", "steps") << " ...\n";
    }
    int64_t before = -1;
    for (auto& [rank, sampler] : shown) {
      BatchIndices batch;
      LOCKSTEP_RETURN_IF_ERROR(sampler->Next(batch).status());
      if (rank != before + 1 && before >= 0 && count > 1) {
        out << "  ... " << Counted(rank - before - 1, "rank", "ranks")
            << " ...\n";
      }
      before = rank;
      const std::string line = absl::StrFormat("  %*d  %4d  %4d  ", width,
                                               batch.step, rank, batch.rows());
      out << line
          << SamplesText(batch, kWidth - std::min(line.size(), kWidth), all,
                         is_cut)
          << "\n";
    }
  }
  if (is_cut) out << "  --all prints all steps, ranks and samples.\n";
  return absl::OkStatus();
}

// Prints how much of the batches is padding, if the order knows the lengths of
// samples.
absl::Status PrintWaste(const SampleSource& source, const Dealing& dealing,
                        int64_t epoch, std::ostream& out) {
  const std::string column =
      source.job() == nullptr ? "" : source.job()->LengthsColumn();
  Dataset* const dataset = column.empty() ? nullptr : source.job()->dataset();
  if (dataset == nullptr || dataset->size() > kMostMeasured) {
    return absl::OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Dataset::Column values,
                            dataset->ReadColumn(column));
  std::vector<int64_t> lengths;
  std::visit(
      [&lengths](const auto& all) {
        for (const auto& each : all) {
          lengths.push_back(static_cast<int64_t>(each));
        }
      },
      values);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const PaddingWaste waste,
      MeasurePaddingWaste(std::make_shared<SharedOrder>(dealing.order),
                          dealing.options, lengths, epoch));
  out << Wrapped(absl::StrFormat(
      "%.1f %% of the elements of all batches are padding, if each row is "
      "padded to the %s (column '%s').",
      100 * waste.share(),
      dealing.order->packing()         ? "length of a packed row"
      : dealing.options.cut.shards > 0 ? "longest one of its shard"
                                       : "longest one of its batch",
      column));
  return absl::OkStatus();
}

absl::Status PrintText(const SampleSource& source, const RankSamplers& samplers,
                       const std::vector<int64_t>& ranks, int64_t epoch,
                       bool all, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const EpochFacts facts, FactsOf(samplers, epoch));
  PrintFacts(facts, samplers, out);
  LOCKSTEP_RETURN_IF_ERROR(
      PrintWaste(source, samplers.dealing(), facts.epoch, out));
  if (facts.steps == 0 && samplers.place().has_value()) {
    out << "  The epoch has ended; --epochs=2 shows the next one, too.\n";
  }
  if (facts.steps == 0) return absl::OkStatus();
  return PrintSteps(samplers, ranks, facts, all, out);
}

}  // namespace

absl::Status RunPlan(const CommandHost& host, const PlanCommand& command,
                     std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckEpochs(command.epoch.value_or(0), command.epochs));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto source,
                            SampleSource::Open(host, command.samples));
  LOCKSTEP_ASSIGN_OR_RETURN(Dealing dealing, source->For(command.world));
  std::optional<SavedPlace> place;
  int64_t epoch = command.epoch.value_or(0);
  if (!command.from.empty()) {
    if (command.epoch.has_value()) {
      return absl::InvalidArgumentError(
          "--epoch and --from contradict each other, since the checkpoint says "
          "in which epoch it is; leave out --epoch");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        place,
        ReadPlace(command.from,
                  source->job() == nullptr ? "" : source->job()->loader()));
    LOCKSTEP_RETURN_IF_ERROR(CheckSeed(*place, dealing.seed));
    epoch = place->state.progress.epoch;
  }
  const int64_t rank = command.rank.value_or(0);
  if (rank < 0 || rank >= dealing.ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank should be from 0 to ", dealing.ranks() - 1,
                     ", but it is ", rank));
  }
  std::vector<int64_t> ranks;
  if (command.rank.has_value()) {
    ranks = {*command.rank};
  } else {
    for (int64_t each = 0; each < dealing.ranks(); ++each) {
      ranks.push_back(each);
    }
  }
  const bool has_shards = dealing.options.cut.shards > 0;
  RankSamplers samplers(std::move(dealing), std::move(place));
  LOCKSTEP_RETURN_IF_ERROR(samplers.Make(epoch, ranks[0]).status());
  std::optional<RowPrinter> printer;
  if (format != OutputFormat::kText) {
    printer.emplace(format, has_shards, out);
  }
  for (int64_t i = 0; i < command.epochs && out; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        printer.has_value()
            ? PrintRows(samplers, ranks, epoch + i, *printer, out)
            : PrintText(*source, samplers, ranks, epoch + i, command.all, out));
    samplers.LeavePlace();
  }
  return absl::OkStatus();
}

}  // namespace lockstep
