#include "lockstep/tools/gpu_check/gradient_speed.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/tools/gpu_check/bare_nccl.h"
#include "lockstep/tools/gpu_check/gpu_rank.h"

namespace lockstep {
namespace {

using internal_collective::NcclApi;
using internal_collective::NcclUniqueId;

struct Model {
  int64_t tensors;
  int64_t bytes;
};
constexpr Model kModels[] = {
    {4, 13'700'000}, {26, 13'700'000}, {192, 100'900'000}};

// The elements of a tensor are a multiple of this, so that there are no gaps.
constexpr int64_t kUnit = 64;

// The elements between two tensors in scattered memory.
constexpr int64_t kGap = 64;

constexpr size_t kFewestRounds = 3;

// A model is left out if the ones before have taken this much too long. Two
// ranks that share a card may be slow.
constexpr absl::Duration kLate = absl::Seconds(5);

constexpr Device kCard = {Device::Kind::kCuda, kGpuDevice};

// ---- Turns of several ranks.

// A way to do something, and what comes before it without being measured.
struct Turn {
  Way prepare;
  Way run;
};

// Returns rank 0's answer on all ranks.
absl::StatusOr<bool> AsRank0Says(Communicator& host, bool answer) {
  if (host.size() == 1) return answer;
  uint8_t said = answer ? 1 : 0;
  const Buffer buffer = BufferOf(&said, 1);
  LOCKSTEP_RETURN_IF_ERROR(Wait(host.Broadcast(buffer, buffer, /*root=*/0)));
  return said != 0;
}

// Does the same as InTurns on several ranks, which begin each call together.
absl::StatusOr<Rounds> InTurnsTogether(Communicator& host, absl::Duration time,
                                       const std::vector<Turn>& turns) {
  Rounds rounds(turns.size());
  const SteadyTime end = After(time);
  for (size_t round = 0;; ++round) {
    for (size_t i = 0; i < turns.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(turns[i].prepare());
      LOCKSTEP_RETURN_IF_ERROR(Wait(host.Barrier()));
      LOCKSTEP_ASSIGN_OR_RETURN(const double seconds, SecondsOf(turns[i].run));
      // The first calls do everything that is done only once.
      if (round > 0) rounds[i].push_back(seconds);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        const bool goes_on,
        AsRank0Says(host, round < kFewestRounds || SteadyNow() < end));
    if (!goes_on) return rounds;
  }
}

// ---- The ways.

absl::Status ConnectBare(Communicator& host, BareNccl& bare) {
  NcclUniqueId id = {};
  if (host.rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(id, bare.MakeId());
  }
  const Buffer buffer = BufferOf(reinterpret_cast<uint8_t*>(id.internal),
                                 static_cast<int64_t>(sizeof(id.internal)));
  LOCKSTEP_RETURN_IF_ERROR(Wait(host.Broadcast(buffer, buffer, /*root=*/0)));
  return bare.Open(/*blocking=*/false, id, host.rank(), host.size());
}

absl::StatusOr<float*> TakeFloats(Card& card, int64_t count) {
  const int64_t bytes = count * SizeOf(DType::kF32);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const memory, card.TakeDeviceMemory(bytes));
  LOCKSTEP_RETURN_IF_ERROR(card.device().Check(
      card.device().cuda().MemsetD8Async(memory, 0, bytes, card.stream()),
      "cuMemsetD8Async"));
  return static_cast<float*>(memory);
}

// Makes Gradients of tensors with `count` elements each, in memory of theirs or
// in scattered memory.
absl::StatusOr<std::unique_ptr<Gradients>> MakeGradients(
    const GpuOptions& options, Communicator& group, Communicator& host,
    Card& card, int64_t tensors, int64_t count, bool is_scattered) {
  LOCKSTEP_ASSIGN_OR_RETURN(float* const values,
                            TakeFloats(card, tensors * count));
  float* scattered = nullptr;
  if (is_scattered) {
    LOCKSTEP_ASSIGN_OR_RETURN(scattered,
                              TakeFloats(card, tensors * (count + kGap)));
  }
  std::vector<Parameter> parameters;
  for (int64_t i = 0; i < tensors; ++i) {
    Parameter parameter;
    parameter.name = absl::StrCat("tensor ", i);
    parameter.values = BufferOf(values + i * count, count, kCard);
    if (is_scattered) {
      parameter.gradient =
          BufferOf(scattered + i * (count + kGap), count, kCard);
    }
    parameters.push_back(std::move(parameter));
  }
  GradientsOptions gradients;
  gradients.host_group = &host;
  gradients.stream = Stream(card.stream());
  gradients.cuda_library = options.cuda_library;
  return Gradients::Create(group, std::move(parameters), gradients);
}

Turn AverageOf(Gradients& gradients, Card& card, int64_t weight) {
  return {[&gradients, &card] {
            LOCKSTEP_RETURN_IF_ERROR(gradients.BeginStep());
            return card.Await();
          },
          [&gradients, &card, weight] {
            StepInput input;
            input.weight = weight;
            LOCKSTEP_RETURN_IF_ERROR(gradients.Average(input).status());
            return card.Await();
          }};
}

// ---- A model.

void PrintModel(const std::string& model, const Rounds& rounds) {
  constexpr double kMicroseconds = 1e6;
  const std::string names[] = {"NCCL alone and the weights",
                               "Average, memory of Gradients",
                               "Average, scattered memory"};
  for (size_t i = 0; i < rounds.size(); ++i) {
    PrintRow(absl::StrCat(model, ": ", names[i]),
             Median(rounds[i]) * kMicroseconds, "us");
  }
  const auto more = [](double bare, double ours) { return ours - bare; };
  for (size_t i = 1; i < rounds.size(); ++i) {
    PrintRow(absl::StrCat(model, ": ", names[i], ", the difference"),
             MedianOf(rounds[0], rounds[i], more) * kMicroseconds, "us");
  }
}

absl::Status MeasureModel(const Model& model, const GpuOptions& options,
                          absl::Duration time, BareNccl& bare,
                          Communicator& group, Communicator& host, Card& card) {
  const int64_t bytes = std::min(model.bytes, options.most_bytes);
  const int64_t count =
      std::max<int64_t>(bytes / SizeOf(DType::kF32) / model.tensors / kUnit,
                        1) *
      kUnit;
  const int64_t all = model.tensors * count;
  LOCKSTEP_ASSIGN_OR_RETURN(float* const sums, TakeFloats(card, all));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Gradients> own,
      MakeGradients(options, group, host, card, model.tensors, count,
                    /*is_scattered=*/false));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Gradients> scattered,
      MakeGradients(options, group, host, card, model.tensors, count,
                    /*is_scattered=*/true));
  const int64_t weight = 3 + host.rank();
  // Average sends as many numbers.
  std::vector<double> weights(4);
  const Turn without = {
      [&] { return card.Await(); },
      [&] {
        weights[0] = static_cast<double>(weight);
        const Buffer small = BufferOf(weights);
        if (host.size() > 1) {
          LOCKSTEP_RETURN_IF_ERROR(
              Wait(host.AllReduce(small, small, ReduceOp::kSum)));
        }
        const Buffer large = BufferOf(sums, all, kCard);
        LOCKSTEP_RETURN_IF_ERROR(bare.AllReduce(
            large, large, card.stream(), static_cast<float>(1 / weights[0])));
        return card.Await();
      }};
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Rounds rounds,
      InTurnsTogether(host, time,
                      {without, AverageOf(*own, card, weight),
                       AverageOf(*scattered, card, weight)}));
  if (host.rank() == 0) {
    PrintModel(
        absl::StrFormat("%d tensors, %.1f MB", model.tensors,
                        static_cast<double>(all) * SizeOf(DType::kF32) / 1e6),
        rounds);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureAverages(const GpuOptions& options, const NcclApi& nccl,
                             Communicator& group, Communicator& host,
                             Card& card) {
  BareNccl bare(nccl);
  LOCKSTEP_RETURN_IF_ERROR(ConnectBare(host, bare));
  const SteadyTime end = After(options.time + kLate);
  for (const Model& model : kModels) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool goes_on,
                              AsRank0Says(host, SteadyNow() < end));
    if (goes_on) {
      LOCKSTEP_RETURN_IF_ERROR(MeasureModel(model, options,
                                            options.time / std::size(kModels),
                                            bare, group, host, card));
    } else if (host.rank() == 0) {
      PrintRow(absl::StrCat(model.tensors, " tensors: models left out, since ",
                            "the time is over"),
               1, "model");
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
