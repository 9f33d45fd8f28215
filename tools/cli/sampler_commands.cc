#include "lockstep/tools/cli/sampler_commands.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

// The value that `text` names among `choices`.
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
  if (command.shuffle && command.noshuffle) {
    return absl::InvalidArgumentError(
        "--shuffle and --noshuffle contradict each other; give one of them");
  }
  const std::string shorthand = command.shuffle     ? "torch"
                                : command.noshuffle ? "sequential"
                                                    : "";
  if (command.order.empty()) return shorthand.empty() ? "torch" : shorthand;
  if (!shorthand.empty() && shorthand != command.order) {
    return absl::InvalidArgumentError(absl::StrCat(
        command.shuffle ? "--shuffle" : "--noshuffle", " means --order=",
        shorthand, ", but --order is '", command.order, "'; give one of them"));
  }
  return command.order;
}

absl::StatusOr<std::shared_ptr<const Order>> MakeOrder(
    const SamplerCommand& command) {
  if (command.size < 0) {
    return absl::InvalidArgumentError(
        "--size, the number of samples in the dataset, must be given, and be "
        "0 or more");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, OrderName(command));
  enum Kind { kTorch, kNative, kSequential };
  LOCKSTEP_ASSIGN_OR_RETURN(const Kind kind,
                            Choose<Kind>("order", name,
                                         {{"torch", kTorch},
                                          {"native", kNative},
                                          {"sequential", kSequential}}));
  if (kind == kTorch) {
    TorchShuffleOptions options;
    options.size = command.size;
    options.seed = command.seed;
    LOCKSTEP_ASSIGN_OR_RETURN(options.profile,
                              ParseTorchProfile(command.profile));
    return TorchShuffle::Create(options);
  }
  if (kind == kNative) {
    NativeShuffleOptions options;
    options.size = command.size;
    options.seed = command.seed;
    return NativeShuffle::Create(options);
  }
  return SequentialOrder::Create(command.size);
}

absl::StatusOr<SamplerOptions> MakeOptions(const SamplerCommand& command) {
  LOCKSTEP_RETURN_IF_ERROR(
      Choose<int>("sampler", command.sampler, {{"distributed", 0}}).status());
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

// Samplers for the ranks that the command is about.
absl::StatusOr<std::vector<std::unique_ptr<Sampler>>> MakeSamplers(
    const SamplerCommand& command) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order, MakeOrder(command));
  LOCKSTEP_ASSIGN_OR_RETURN(SamplerOptions options, MakeOptions(command));
  std::vector<std::unique_ptr<Sampler>> samplers;
  const bool all = command.rank == -1;
  options.rank = all ? 0 : command.rank;
  do {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order, options));
    samplers.push_back(std::move(sampler));
  } while (all && ++options.rank < command.world);
  return samplers;
}

// Prints batches in one of the formats.
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
      const bool padding = static_cast<int64_t>(row) >= batch.valid;
      out_ << " " << batch.indices[row] << (padding ? "*" : "");
    }
    out_ << "\n";
  }

  void PrintCsv(int64_t rank, const BatchIndices& batch) {
    for (size_t row = 0; row < batch.indices.size(); ++row) {
      out_ << batch.epoch << "," << rank << "," << batch.step << "," << row
           << "," << batch.positions[row] << "," << batch.indices[row] << ","
           << (static_cast<int64_t>(row) < batch.valid ? 1 : 0) << "\n";
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

// The lower-case hexadecimal SHA-1 of bytes that come in pieces.
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

// Marks what one rank was given; DATA_LOSS on what another was given before.
absl::Status MarkDelivered(const BatchIndices& batch, int64_t size,
                           std::vector<bool>& delivered) {
  for (int64_t row = 0; row < batch.valid; ++row) {
    const int64_t position = batch.positions[row];
    const int64_t index = batch.indices[row];
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
  for (options.rank = 0; options.rank < command.world; ++options.rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                              Sampler::Create(order, options));
    LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(epoch));
    BatchIndices batch;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
      if (!more) break;
      LOCKSTEP_RETURN_IF_ERROR(MarkDelivered(batch, command.size, delivered));
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
      LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(command.epoch + i));
      BatchIndices batch;
      while (true) {
        LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
        if (!more) break;
        printer.Print(sampler->options().rank, batch);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RunOrder(const SamplerCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order, MakeOrder(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream, order->Open(command.epoch));
  const int64_t size = stream->size();
  if (command.digest && (command.first != 0 || command.count != -1)) {
    return absl::InvalidArgumentError(
        "--digest is over the whole stream; leave out --first and --count");
  }
  if (command.first < 0 || command.first > size || command.count < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--first must be from 0 to ", size,
                     " and --count 0 or more, but "
                     "they are ",
                     command.first, " and ", command.count));
  }
  const int64_t left = size - command.first;
  const int64_t end = command.count == -1
                          ? size
                          : command.first + std::min(left, command.count);
  Sha1 sha1;
  std::vector<int64_t> indices(4096);
  for (int64_t at = command.first; at < end;) {
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
  if (command.rank != -1) {
    return absl::InvalidArgumentError(
        "verify looks at all ranks; leave out --rank");
  }
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
