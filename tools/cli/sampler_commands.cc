#include "lockstep/tools/cli/sampler_commands.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

// Returns the value that `text` names among `choices`.
template <typename T>
absl::StatusOr<T> Choose(absl::string_view flag, absl::string_view text,
                         std::vector<std::pair<std::string, T>> choices) {
  for (auto& [name, value] : choices) {
    if (name == text) return std::move(value);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is '", text, "', but must be one of ",
      absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
        out->append(choice.first);
      })));
}

absl::StatusOr<std::string> OrderName(const SamplerCommand& command) {
  if (!command.shuffle.has_value()) {
    return command.order.empty() ? "torch" : command.order;
  }
  const std::string meant = *command.shuffle ? "torch" : "sequential";
  if (command.order.empty() || command.order == meant) return meant;
  return absl::InvalidArgumentError(absl::StrCat(
      *command.shuffle ? "--shuffle" : "--noshuffle", " means --order=", meant,
      ", but --order is '", command.order, "'; give one of them"));
}

absl::StatusOr<std::shared_ptr<const Order>> MakeOrder(
    const SamplerCommand& command) {
  if (!command.size.has_value() || *command.size < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--size, the number of samples in the dataset, should be "
        "0 or more, but ",
        command.size.has_value() ? absl::StrCat("it is ", *command.size)
                                 : "it is not given",
        "; give it, as in --size=1000"));
  }
  const int64_t size = *command.size;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, OrderName(command));
  enum Kind { kTorch, kNative, kSequential };
  LOCKSTEP_ASSIGN_OR_RETURN(const Kind kind,
                            Choose<Kind>("order", name,
                                         {{"torch", kTorch},
                                          {"native", kNative},
                                          {"sequential", kSequential}}));
  if (kind == kTorch) {
    TorchShuffleOptions options;
    options.size = size;
    options.seed = command.seed;
    if (!command.profile.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(options.profile,
                                ParseTorchProfile(command.profile));
    }
    return TorchShuffle::Create(options);
  }
  if (!command.profile.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile is of the torch order, but the order is ", name,
                     "; leave it out"));
  }
  if (kind == kNative) {
    NativeShuffleOptions options;
    options.size = size;
    options.seed = command.seed;
    return NativeShuffle::Create(options);
  }
  return SequentialOrder::Create(size);
}

absl::StatusOr<SamplerOptions> MakeOptions(const SamplerCommand& command) {
  SamplerOptions options;
  options.cut.batch_size = command.batch_size;
  options.cut.world = command.world;
  options.cut.drop_last = command.drop_last;
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.tail,
                            Choose<Tail>("tail", command.tail,
                                         {{"pad", Tail::kPad},
                                          {"drop", Tail::kDrop},
                                          {"uneven", Tail::kUneven},
                                          {"mask", Tail::kMask}}));
  LOCKSTEP_ASSIGN_OR_RETURN(options.cut.layout,
                            Choose<Layout>("layout", command.layout,
                                           {{"strided", Layout::kStrided},
                                            {"blocked", Layout::kBlocked}}));
  int64_t end;
  if (command.epochs < 1 ||
      __builtin_add_overflow(command.epoch, command.epochs, &end)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--epochs must be 1 or more, and --epoch + --epochs "
                     "within 64 bits, but they are ",
                     command.epochs, " and ", command.epoch));
  }
  return options;
}

// Returns samplers for the rank that the command names, or for all ranks.
absl::StatusOr<std::vector<std::unique_ptr<Sampler>>> MakeSamplers(
    const SamplerCommand& command) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order, MakeOrder(command));
  LOCKSTEP_ASSIGN_OR_RETURN(SamplerOptions options, MakeOptions(command));
  std::vector<std::unique_ptr<Sampler>> samplers;
  const bool all = !command.rank.has_value();
  options.rank = command.rank.value_or(0);
  do {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order, options));
    samplers.push_back(std::move(sampler));
  } while (all && ++options.rank < command.world);
  return samplers;
}

// Prints batches in one of the formats.
// Thread-safety: for one thread at a time.
class PlanPrinter {
 public:
  enum class Format { kText, kCsv, kJson };

  PlanPrinter(Format format, std::ostream& out) : format_(format), out_(out) {
    if (format_ == Format::kCsv) {
      out_ << "epoch,rank,step,row,position,index,valid\n";
    }
    if (format_ == Format::kJson) out_ << "[";
  }
  ~PlanPrinter() {
    if (format_ == Format::kJson) out_ << "\n]\n";
  }

  void PrintNoSteps(int64_t epoch, int64_t rank) {
    // The other formats have one entry for each step, and here are no steps.
    if (format_ != Format::kText) return;
    out_ << "epoch " << epoch << " rank " << rank << ": no steps\n";
  }

  void Print(int64_t rank, const BatchIndices& batch) {
    switch (format_) {
      case Format::kText:
        return PrintText(rank, batch);
      case Format::kCsv:
        return PrintCsv(rank, batch);
      case Format::kJson:
        return PrintJson(rank, batch);
    }
  }

 private:
  void PrintText(int64_t rank, const BatchIndices& batch) {
    out_ << "epoch " << batch.epoch << " rank " << rank << " step "
         << batch.step << ":";
    for (size_t row = 0; row < batch.indices.size(); ++row) {
      if (batch.indices[row] < 0) {
        out_ << " -";
        continue;
      }
      const bool padding = static_cast<int64_t>(row) >= batch.samples();
      out_ << " " << batch.indices[row] << (padding ? "*" : "");
    }
    out_ << "\n";
  }

  void PrintCsv(int64_t rank, const BatchIndices& batch) {
    for (size_t row = 0; row < batch.indices.size(); ++row) {
      out_ << batch.epoch << "," << rank << "," << batch.step << "," << row
           << "," << batch.positions[row] << "," << batch.indices[row] << ","
           << (static_cast<int64_t>(row) < batch.samples() ? 1 : 0) << "\n";
    }
  }

  void PrintJson(int64_t rank, const BatchIndices& batch) {
    out_ << (first_ ? "\n" : ",\n") << "{\"epoch\": " << batch.epoch
         << ", \"rank\": " << rank << ", \"step\": " << batch.step
         << ", \"valid\": " << batch.valid << ", \"indices\": ["
         << absl::StrJoin(batch.indices, ", ") << "], \"positions\": ["
         << absl::StrJoin(batch.positions, ", ") << "]}";
    first_ = false;
  }

  const Format format_;
  std::ostream& out_;
  bool first_ = true;
};

// Computes the SHA-1 of bytes that come in pieces, in lower-case hexadecimal.
// Thread-safety: for one thread at a time.
class Sha1 {
 public:
  Sha1() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_, EVP_sha1(), nullptr);
  }
  ~Sha1() { EVP_MD_CTX_free(context_); }
  Sha1(const Sha1&) = delete;
  Sha1& operator=(const Sha1&) = delete;

  void Add(absl::Span<const int64_t> values) {
    EVP_DigestUpdate(context_, values.data(), 8 * values.size());
  }

  std::string Finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_, digest, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      absl::StrAppend(&text, absl::Hex(digest[i], absl::kZeroPad2));
    }
    return text;
  }

 private:
  EVP_MD_CTX* const context_;
};

// Marks the positions that one rank was given. Returns DATA_LOSS for a position
// that is out of range or was delivered before.
absl::Status MarkDelivered(const BatchIndices& batch, int64_t size,
                           std::vector<bool>& delivered) {
  for (int64_t i = 0; i < batch.samples(); ++i) {
    const int64_t position = batch.positions[i];
    const int64_t index = batch.indices[i];
    const bool known =
        position >= 0 && position < static_cast<int64_t>(delivered.size());
    if (!known || index < 0 || index >= size || delivered[position]) {
      return absl::DataLossError(
          absl::StrCat("epoch ", batch.epoch, ", step ", batch.step,
                       ": position ", position, " with index ", index,
                       known && delivered[position] ? " was delivered before"
                                                    : " is out of range"));
    }
    delivered[position] = true;
  }
  return absl::OkStatus();
}

absl::Status VerifyEpoch(const SamplerCommand& command, int64_t epoch,
                         const std::shared_ptr<const Order>& order,
                         SamplerOptions options, std::ostream& out) {
  constexpr int64_t kMost = int64_t{1} << 34;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream, order->Open(epoch));
  if (stream->size() > kMost) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "verify keeps a bit for each position, and takes 2^34 of them at most, "
        "but epoch ",
        epoch, " has ", stream->size()));
  }
  std::vector<bool> delivered(stream->size());
  int64_t steps = 0;
  SamplerStats stats;
  SteadyTime next_word = After(command.progress_every);
  const auto tell = [&](int64_t step) {
    if (command.on_progress == nullptr || SteadyNow() < next_word) return;
    command.on_progress(absl::StrCat("epoch ", epoch, ": rank ", options.rank,
                                     " of ", command.world, ", step ", step));
    next_word = After(command.progress_every);
  };
  for (options.rank = 0; options.rank < command.world; ++options.rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                              Sampler::Create(order, options));
    LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(epoch));
    BatchIndices batch;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
      if (!more) break;
      // Reading the clock takes as long as a small step.
      if (batch.step % 4096 == 0) tell(batch.step);
      LOCKSTEP_RETURN_IF_ERROR(MarkDelivered(batch, *command.size, delivered));
    }
    const int64_t taken = sampler->progress().steps_taken;
    if (options.rank == 0) steps = taken;
    stats = sampler->stats();
    if (taken != steps) {
      return absl::DataLossError(
          absl::StrCat("epoch ", epoch, ": rank ", options.rank, " takes ",
                       taken, " steps, and rank 0 takes ", steps));
    }
  }
  const int64_t count = std::count(delivered.begin(), delivered.end(), true);
  if (count != stats.delivered ||
      count + stats.dropped + stats.skipped != stream->size()) {
    return absl::DataLossError(
        absl::StrCat("epoch ", epoch, ": of ", stream->size(), " positions ",
                     count, " were delivered, ", stats.dropped, " dropped and ",
                     stats.skipped, " skipped"));
  }
  out << "epoch " << epoch << ": " << stream->size() << " positions, "
      << stats.delivered << " delivered, " << stats.padded << " padded, "
      << stats.dropped << " dropped, " << stats.skipped << " skipped; " << steps
      << " steps on " << command.world << " ranks\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPlan(const SamplerCommand& command, std::ostream& out) {
  using Format = PlanPrinter::Format;
  LOCKSTEP_ASSIGN_OR_RETURN(const Format format,
                            Choose<Format>("format", command.format,
                                           {{"text", Format::kText},
                                            {"csv", Format::kCsv},
                                            {"json", Format::kJson}}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto samplers, MakeSamplers(command));
  PlanPrinter printer(format, out);
  for (int64_t i = 0; i < command.epochs; ++i) {
    for (const auto& sampler : samplers) {
      if (!out) return absl::OkStatus();
      LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(command.epoch + i));
      const int64_t rank = sampler->options().rank;
      BatchIndices batch;
      while (out) {
        LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
        if (!more) break;
        printer.Print(rank, batch);
      }
      if (sampler->progress().steps_taken == 0) {
        printer.PrintNoSteps(command.epoch + i, rank);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RunOrder(const SamplerCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order, MakeOrder(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream, order->Open(command.epoch));
  const int64_t size = stream->size();
  if (command.digest && (command.first != 0 || command.count.has_value())) {
    return absl::InvalidArgumentError(
        "--digest is over the whole order; leave out --first and --count");
  }
  if (command.first < 0 || command.first > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--first should be from 0 to ", size,
                     ", the size of the order, but it is ", command.first));
  }
  const int64_t left = size - command.first;
  const int64_t count = command.count.value_or(left);
  if (count < 0 || count > left) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--count should be from 0 to ", left,
        command.first == 0
            ? ", the size of the order,"
            : absl::StrCat(", what is left of the order from position ",
                           command.first, " on,"),
        " but it is ", count, "; leave it out to print all"));
  }
  const int64_t end = command.first + count;
  Sha1 sha1;
  std::vector<int64_t> indices(4096);
  for (int64_t at = command.first; at < end && out;) {
    const auto piece =
        absl::MakeSpan(indices.data(), std::min<int64_t>(4096, end - at));
    LOCKSTEP_RETURN_IF_ERROR(stream->Read(at, 1, piece));
    if (command.digest) {
      sha1.Add(piece);
    } else {
      out << absl::StrJoin(piece, "\n") << "\n";
    }
    at += static_cast<int64_t>(piece.size());
  }
  if (command.digest) out << sha1.Finish() << "\n";
  return absl::OkStatus();
}

absl::Status RunVerify(const SamplerCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order, MakeOrder(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const SamplerOptions options, MakeOptions(command));
  LOCKSTEP_RETURN_IF_ERROR(Sampler::Create(order, options).status());
  for (int64_t i = 0; i < command.epochs; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        VerifyEpoch(command, command.epoch + i, order, options, out));
  }
  out << "every position is accounted for once\n";
  return absl::OkStatus();
}

}  // namespace lockstep
