// Measures what a Session adds to a step, compared with the same loop written
// by hand. Both run in turns, with the same settings of the loader, the same
// model and the same group. Then measures what metrics, and the records beside
// them, add to a step of 1 ms.
// Prints tables.
//
//   lockstep launch -n 2 -- session_benchmark [ROUNDS [STEPS]]
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>  // NOLINT: C++17's own
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"

namespace lockstep {
namespace {

constexpr float kRate = 0.01;

absl::StatusOr<std::shared_ptr<Dataset>> MakeNumbers(const PluginContext&,
                                                     const NoOptions&) {
  const std::vector<float> numbers(1 << 16, 1);
  return TensorDataset::Create(
      {NamedTensor::Own<float>("x", {1 << 16}, numbers)});
}

// The batches of a step of the loader "parts".
constexpr int64_t kParts = 8;

// The loaders have batches of 64 rows on all ranks together.
Config Settings(int ranks = 1) {
  Config config;
  Config& loaders = config.Set("loader", Config());
  for (const char* const name : {"by_hand", "session", "parts"}) {
    Config& loader = loaders.Set(name, Config());
    loader.Set("num_workers", 0);
    loader.Set("advance_epochs", true);
    loader.Set("dataset", Config()).Set("name", "numbers");
    Config& sampler = loader.Set("sampler", Config());
    sampler.Set("name", "native_shuffle");
    sampler.Set("global_batch_size", 64);
  }
  Config& parts = *loaders.Find("parts");
  parts.Find("sampler")->Set("global_batch_size", 64 * kParts);
  parts.Set("micro_batch_size", 64 / ranks);
  return config;
}

// Adds the gradients of a model whose backward pass is one pass over them.
double AddGradients(const Batch& batch, absl::Span<float> gradients) {
  const absl::Span<const float> x = *batch.Values<float>("x");
  float sum = 0;
  for (int64_t row = 0; row < batch.valid(); ++row) sum += x[row];
  for (float& gradient : gradients) gradient += sum;
  return sum;
}

// Not inlined, so that both trainings run the same code.
ABSL_ATTRIBUTE_NOINLINE
void Update(absl::Span<const float> gradients, absl::Span<float> parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] -= kRate * gradients[i];
  }
}

absl::Status TrainByHand(Loader& loader, Communicator& group, int64_t steps,
                         int64_t parts, std::vector<float>& memory,
                         std::vector<float>& parameters) {
  const auto size = static_cast<int64_t>(parameters.size());
  const auto gradients = absl::MakeSpan(memory).first(size);
  const Buffer buffer = BufferOf(memory);
  int64_t part = 0;
  for (absl::StatusOr<Batch>& batch : loader.Epoch(0)) {
    LOCKSTEP_RETURN_IF_ERROR(batch.status());
    if (part == 0) std::fill(memory.begin(), memory.end(), 0.F);
    memory[size + 1] += static_cast<float>(AddGradients(*batch, gradients));
    memory[size] += static_cast<float>(batch->valid());
    if (++part < parts) continue;
    part = 0;
    if (group.size() > 1) {
      LOCKSTEP_RETURN_IF_ERROR(
          Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum)));
    }
    const float rows = memory[size];
    for (float& gradient : gradients) gradient /= rows;
    Update(gradients, absl::MakeSpan(parameters));
    if (--steps == 0) break;
  }
  return absl::OkStatus();
}

// Does the next steps of a loop.
absl::Status TrainBySession(StepRange::Iterator& at, int64_t steps,
                            Gradients& gradients, absl::Span<float> all,
                            std::vector<float>& parameters) {
  for (int64_t i = 0; i < steps; ++i) {
    Step& step = *at;
    for (const Batch& batch : step) {
      step.Add("loss", AddGradients(batch, all));
    }
    LOCKSTEP_RETURN_IF_ERROR(step.Average(gradients));
    Update(all, absl::MakeSpan(parameters));
    ++at;
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the seconds per step.
absl::StatusOr<double> TimeOf(int64_t steps,
                              const std::function<absl::Status()>& train) {
  const SteadyTime begin = SteadyNow();
  LOCKSTEP_RETURN_IF_ERROR(train());
  return absl::ToDoubleSeconds(absl::FromChrono(SteadyNow() - begin)) /
         static_cast<double>(steps);
}

// Measures models of `size` parameters, with steps of one batch or of kParts.
absl::Status Measure(Session& session, int64_t size, int64_t parts,
                     int64_t rounds, int64_t steps) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const by_hand,
                            session.MakeLoader("by_hand"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      Loader* const by_session,
      session.MakeLoader(parts == 1 ? "session" : "parts"));
  std::vector<float> memory(size + 2), parameters(size), others(size);
  LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                            session.MakeGradients({{"all", BufferOf(others)}}));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> all,
                            gradients->Of<float>("all"));
  std::vector<double> hand, own, difference;
  StepRange range = session.Steps(*by_session, 0);
  StepRange::Iterator at = range.begin();
  for (int64_t round = 0; round < rounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double first, TimeOf(steps, [&] {
                                return TrainByHand(*by_hand, session.group(),
                                                   steps, parts, memory,
                                                   parameters);
                              }));
    LOCKSTEP_ASSIGN_OR_RETURN(const double second, TimeOf(steps, [&] {
                                return TrainBySession(at, steps, *gradients,
                                                      all, others);
                              }));
    hand.push_back(first);
    own.push_back(second);
    difference.push_back(second - first);
  }
  if (session.rank() > 0) return absl::OkStatus();
  constexpr double kMicro = 1e6;
  const double added = Median(difference) * kMicro;
  const double bound = std::max(5.0, 0.02 * Median(hand) * kMicro);
  std::printf(
      "| %d rank%s, %lld parameters%s | %.1f us | %.1f us | %.2f us | at most "
      "%.1f us | %s |\n",
      session.size(), session.size() == 1 ? "" : "s",
      static_cast<long long>(size),
      parts == 1 ? "" : absl::StrCat(", ", parts, " parts").c_str(),
      Median(own) * kMicro, Median(hand) * kMicro, added, bound,
      added <= bound ? "" : "**missed**");
  return absl::OkStatus();
}

// ---- Metrics.

constexpr absl::Duration kComputing = absl::Milliseconds(1);

// Trains a model of 10,000 parameters that computes for kComputing in each
// step.
absl::Status TrainForLong(Session& session, int64_t steps, double& seconds) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const loader,
                            session.MakeLoader("session"));
  std::vector<float> parameters(10'000);
  LOCKSTEP_ASSIGN_OR_RETURN(
      Gradients* const gradients,
      session.MakeGradients({{"all", BufferOf(parameters)}}));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> all,
                            gradients->Of<float>("all"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      seconds, TimeOf(steps, [&]() -> absl::Status {
        int64_t left = steps;
        for (Step& step : session.Steps(*loader, 0)) {
          const SteadyTime end = After(kComputing);
          for (const Batch& batch : step) {
            step.Add("loss", AddGradients(batch, all));
            step.Add("accuracy", 1);
          }
          while (SteadyNow() < end) {
          }
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
          Update(all, absl::MakeSpan(parameters));
          if (--left < 0) break;  // `steps` steps have ended
        }
        return absl::OkStatus();
      }));
  return absl::OkStatus();
}

// Runs a training in a session over the same ranks.
absl::Status RunSession(Session& ranks, const Config& settings,
                        const std::function<absl::Status(Session&)>& train) {
  NoOptions none;
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, ReadJob(settings, &none));
  SessionOptions options;
  options.world = ranks.world();
  options.group = &ranks.group();
  options.log = [](absl::string_view) {};
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto session,
      Session::Create(std::move(job), ranks.registry(), options));
  return session->Run(train);
}

// Returns the seconds per step of a session over the same ranks.
absl::StatusOr<double> TimeOfSession(Session& ranks, const Config& settings,
                                     int64_t steps) {
  double seconds = 0;
  LOCKSTEP_RETURN_IF_ERROR(RunSession(ranks, settings, [&](Session& session) {
    return TrainForLong(session, steps, seconds);
  }));
  return seconds;
}

// Measures what some sinks add to a step.
absl::Status MeasureAdded(Session& ranks, const char* what,
                          const Config& without, const Config& with,
                          int64_t rounds, int64_t steps) {
  std::vector<double> without_any, with_all, difference;
  for (int64_t round = 0; round < rounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double first,
                              TimeOfSession(ranks, without, steps));
    LOCKSTEP_ASSIGN_OR_RETURN(const double second,
                              TimeOfSession(ranks, with, steps));
    without_any.push_back(first);
    with_all.push_back(second);
    difference.push_back(second - first);
  }
  if (ranks.rank() > 0) return absl::OkStatus();
  constexpr double kMicro = 1e6;
  const double added = Median(difference) * kMicro;
  const double bound = 0.01 * absl::ToDoubleMicroseconds(kComputing);
  std::printf(
      "| %d rank%s, %s | %.1f us | %.1f us | %.2f us | at most %.1f us | %s "
      "|\n",
      ranks.size(), ranks.size() == 1 ? "" : "s", what,
      Median(with_all) * kMicro, Median(without_any) * kMicro, added, bound,
      added <= bound ? "" : "**missed**");
  return absl::OkStatus();
}

absl::Status MeasureMetrics(Session& ranks, int64_t rounds, int64_t steps) {
  // The ranks have the same parent process, so they use the same folder.
  const std::string folder = (std::filesystem::temp_directory_path() /
                              absl::StrCat("lockstep-metrics-", ::getppid()))
                                 .string();
  const auto with_lines = [&](const char* events) {
    Config settings = Settings();
    Config& lines =
        settings.Set("rank_metrics", Config()).Set("json_lines", Config());
    lines.Set("path", folder + "/steps");
    lines.Set("events", events);
    return settings;
  };
  Config all = with_lines("some");
  Config& sinks = all.Set("metrics", Config());
  sinks.Set("tensorboard", Config()).Set("folder", folder);
  sinks.Set("text", Config()).Set("path", folder + "/text");
  absl::Status status = MeasureAdded(ranks, "text, tensorboard and json_lines",
                                     Settings(), all, rounds, steps);
  for (const char* const events : {"some", "all"}) {
    if (!status.ok()) break;
    status = MeasureAdded(
        ranks, absl::StrCat("records of ", events, " steps").c_str(),
        with_lines("none"), with_lines(events), rounds, steps);
  }
  if (ranks.rank() == 0) std::filesystem::remove_all(folder);
  return status;
}

absl::Status Run(int64_t rounds, int64_t steps) {
  PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
  LOCKSTEP_RETURN_IF_ERROR(
      registry.Add<Dataset>("numbers", "Ones.", MakeNumbers));
  NoOptions none;
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, ReadJob(Settings(), &none));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto session,
                            Session::Create(std::move(job), registry));
  return session->Run([&](Session& ranks) -> absl::Status {
    Config quiet = Settings(ranks.size());
    quiet.Set("progress", Config()).Set("every", "0s");
    for (const int64_t size : {100, 10'000, 1'000'000}) {
      const int64_t fewer =
          std::max(std::min<int64_t>(steps, 30), steps * 1000 / (1000 + size));
      for (const int64_t parts : {int64_t{1}, kParts}) {
        LOCKSTEP_RETURN_IF_ERROR(
            RunSession(ranks, quiet, [&](Session& session) {
              return Measure(session, size, parts, rounds,
                             std::max<int64_t>(1, fewer / parts));
            }));
      }
    }
    return MeasureMetrics(ranks, rounds, std::min<int64_t>(steps, 300));
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  int64_t rounds = 20, steps = 2000;
  if ((argc > 1 && !absl::SimpleAtoi(argv[1], &rounds)) ||
      (argc > 2 && !absl::SimpleAtoi(argv[2], &steps)) || rounds < 1 ||
      steps < 1) {
    std::fprintf(stderr, "usage: %s [ROUNDS [STEPS]]\n", argv[0]);
    return 2;
  }
  const absl::Status status = lockstep::Run(rounds, steps);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
