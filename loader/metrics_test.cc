#include "lockstep/loader/metrics.h"

#include <algorithm>
#include <chrono>  // NOLINT: a sample that takes its time
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/cpus.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/wrapped_orders.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kSize = 64;
constexpr int64_t kBatchSize = 8;
constexpr int64_t kSteps = kSize / kBatchSize;

void SpinFor(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

std::unique_ptr<Loader> Make(const LoaderOptions& options,
                             std::shared_ptr<TestDataset> dataset = nullptr) {
  if (dataset == nullptr) dataset = std::make_shared<TestDataset>(kSize);
  TestJob job;
  job.size = dataset->size();
  job.batch_size = kBatchSize;
  auto loader = Loader::Create(dataset, TestSampler(job), options);
  EXPECT_THAT(loader, IsOk());
  return std::move(loader).value();
}

LoaderOptions Inline() {
  LoaderOptions options;
  options.num_workers = 0;
  return options;
}

TEST(Metrics, NothingBeforeTheFirstEpoch) {
  const LoaderMetrics metrics = Make(Inline())->Metrics();
  EXPECT_EQ(metrics.batches, 0);
  EXPECT_EQ(metrics.samples, 0);
  EXPECT_EQ(metrics.bytes, 0);
  EXPECT_EQ(metrics.elapsed_seconds, 0);
  EXPECT_EQ(metrics.effective_workers, 0);
  EXPECT_THAT(metrics.slowest, IsEmpty());
  EXPECT_THAT(metrics.ToString(), HasSubstr("0 batches, 0 samples"));
}

TEST(Metrics, Counts) {
  for (const int workers : {0, 1, 3}) {
    LoaderOptions options = Inline();
    options.num_workers = workers;
    const auto loader = Make(options, std::make_shared<TestDataset>(60));
    int64_t bytes = 0;
    for (const absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      LOCKSTEP_ASSERT_OK(batch);
      bytes += batch->TotalBytes();
    }
    const LoaderMetrics metrics = loader->Metrics();
    EXPECT_EQ(metrics.batches, 8);
    EXPECT_EQ(metrics.samples, 60);
    EXPECT_EQ(metrics.bytes, bytes);
    EXPECT_GE(metrics.bytes, 60 * (8 + 16));
    EXPECT_EQ(metrics.failed_samples, 0);
    EXPECT_EQ(metrics.requested_workers, workers);
    EXPECT_GE(metrics.effective_workers, std::min(workers, 1));
    EXPECT_LE(metrics.effective_workers, workers);
    EXPECT_GE(metrics.readiness, 0);
    EXPECT_LE(metrics.readiness, 1);
    EXPECT_THAT(metrics.ToString(), HasSubstr("8 batches, 60 samples"));
    EXPECT_THAT(metrics.ToString(), testing::Not(HasSubstr("not read")));
  }
}

TEST(Metrics, CountsWhatFailed) {
  for (const OnError on_error :
       {OnError::kFail, OnError::kSkip, OnError::kSubstitute}) {
    auto dataset = std::make_shared<TestDataset>(kSize);
    dataset->before = [](int64_t index, SampleContext&) {
      return index == 3 || index == 9 ? absl::DataLossError("torn")
                                      : absl::OkStatus();
    };
    LoaderOptions options = Inline();
    options.on_error = on_error;
    const auto loader = Make(options, dataset);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    int64_t samples = 0;
    while (true) {
      const absl::StatusOr<bool> more = loader->Next(batch);
      if (more.ok() && !*more) break;
      if (more.ok()) samples += batch.valid();
    }
    const LoaderMetrics metrics = loader->Metrics();
    const bool substitute = on_error == OnError::kSubstitute;
    EXPECT_EQ(metrics.failed_samples, substitute ? 0 : 2);
    EXPECT_EQ(metrics.substituted_samples, substitute ? 2 : 0);
    EXPECT_EQ(metrics.samples, samples);
    EXPECT_THAT(metrics.ToString(),
                HasSubstr(substitute ? "samples not read: 0, substituted: 2"
                                     : "samples not read: 2, substituted: 0"));
  }
}

// Every sample takes so long that it is timed alone; 5, 17 and 40 take `slow`.
std::shared_ptr<TestDataset> SlowSamples(std::chrono::microseconds slow) {
  auto dataset = std::make_shared<TestDataset>(kSize);
  dataset->before = [slow](int64_t index, SampleContext&) {
    const bool is_slow = index == 5 || index == 17 || index == 40;
    SpinFor(is_slow ? slow : std::chrono::microseconds(50));
    return absl::OkStatus();
  };
  return dataset;
}

TEST(Metrics, TheSlowestSamplesAreFound) {
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = Workers::kThreads;
  options.prefetch_next_epoch = false;
  // This is longer than a busy machine delays six of the other samples.
  const auto loader =
      Make(options, SlowSamples(std::chrono::milliseconds(200)));
  DigestOfEpoch(*loader, 0);
  const LoaderMetrics metrics = loader->Metrics();
  EXPECT_THAT(metrics.slowest, SizeIs(8));
  for (const int64_t index : {5, 17, 40}) {
    EXPECT_THAT(
        metrics.slowest,
        Contains(AllOf(testing::Field(&SlowSample::index, index),
                       testing::Field(&SlowSample::seconds, testing::Ge(0.2)),
                       testing::Field(&SlowSample::timed_together, 1))));
    EXPECT_THAT(metrics.ToString(),
                HasSubstr(" " + std::to_string(index) + " ("));
  }
  for (size_t i = 1; i < metrics.slowest.size(); ++i) {
    EXPECT_GE(metrics.slowest[i - 1].seconds, metrics.slowest[i].seconds);
  }
  EXPECT_THAT(metrics.ToString(), HasSubstr("slowest samples: "));
  EXPECT_GT(metrics.busy, 0);
}

TEST(Metrics, ToString) {
  LoaderMetrics metrics;
  metrics.batches = 10;
  metrics.samples = 80;
  metrics.bytes = 4000000;
  metrics.elapsed_seconds = 2;
  metrics.wait_seconds = 0.5;
  metrics.readiness = 0.75;
  metrics.ready_batches = 3;
  metrics.busy = 0.9;
  metrics.requested_workers = 4;
  metrics.effective_workers = 3;
  metrics.failed_samples = 1;
  metrics.slowest = {{77, 0.25, 1}, {12, 0.001, 16}};
  EXPECT_EQ(metrics.ToString(),
            "10 batches, 80 samples, 4.0 MB in 2.000 s: 40.0 samples/s, 2.0 "
            "MB/s\n"
            "waited for batches 0.500 s (25.0 %), 75.0 % were ready, 3.0 of "
            "them on average\n"
            "workers: 3 of 4 effective, 90.0 % busy\n"
            "samples not read: 1, substituted: 0\n"
            "slowest samples: 77 (250.000 ms) 12 (1.000 ms, mean of 16)\n");
}

// Returns true if the brackets and quotes of a text without escapes match.
bool Balanced(const std::string& json) {
  std::string open;
  bool quoted = false;
  for (const char c : json) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '{') open += '}';
    if (c == '[') open += ']';
    if (c == '}' || c == ']') {
      if (open.empty() || open.back() != c) return false;
      open.pop_back();
    }
  }
  return open.empty() && !quoted;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

void ExpectJson(const std::string& json, int events) {
  EXPECT_TRUE(Balanced(json)) << json;
  EXPECT_EQ(json.find("{\"traceEvents\":["), 0u) << json;
  EXPECT_EQ(Count(json, "\"ph\":\"X\""), events);
  EXPECT_EQ(Count(json, "\"dur\":"), events);
  EXPECT_EQ(Count(json, "\"dur\":-"), 0);
  EXPECT_EQ(Count(json, ",\n"), std::max(0, events - 1));
}

TEST(Trace, HasWhatWasDone) {
  for (const Workers kind : {Workers::kTbb, Workers::kThreads}) {
    LoaderOptions options;
    options.num_workers = 2;
    options.workers = kind;
    options.prefetch_next_epoch = false;
    options.trace_events = 1000;
    const auto loader =
        Make(options, SlowSamples(std::chrono::milliseconds(20)));
    DigestOfEpoch(*loader, 4);
    const std::string json = loader->Trace();
    const int reads = Count(json, "\"name\":\"read\"");
    const int waits = Count(json, "\"name\":\"wait\"");
    EXPECT_EQ(reads, kSize);
    EXPECT_EQ(Count(json, "\"name\":\"complete\""), kSteps);
    EXPECT_EQ(Count(json, "\"tid\":0,"), waits);
    EXPECT_EQ(Count(json, "\"epoch\":4,"), kSize + kSteps + waits);
    EXPECT_GE(Count(json, "\"step\":7}"), kBatchSize + 1);
    ExpectJson(json, reads + static_cast<int>(kSteps) + waits);
  }
}

TEST(Events, AreThoseOfAStep) {
  for (const int workers : {0, 2}) {
    LoaderOptions options = Inline();
    options.num_workers = workers;
    options.prefetch_next_epoch = false;
    const auto loader =
        Make(options, SlowSamples(std::chrono::milliseconds(1)));
    loader->KeepEvents(1000);
    loader->KeepEvents(10);  // changes nothing
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(3));
    Batch batch;
    while (loader->Next(batch).kind() == NextKind::kBatch) {
      std::vector<int64_t> indices;
      for (const LoaderEvent& event :
           loader->EventsOf(3, batch.step()).events) {
        EXPECT_LE(event.begin, event.end);
        if (event.kind != LoaderEvent::Kind::kRead) continue;
        EXPECT_GE(event.worker, 0);
        EXPECT_EQ(event.rows, 1);
        indices.push_back(event.index);
      }
      std::vector<int64_t> expected(batch.indices().begin(),
                                    batch.indices().end());
      EXPECT_THAT(indices, testing::UnorderedElementsAreArray(expected));
    }
    EXPECT_THAT(loader->EventsOf(3, kSteps).events, testing::IsEmpty());
    EXPECT_THAT(loader->EventsOf(2, 0).events, testing::IsEmpty());
  }
}

// A log that is too small for the events of a step counts those that it has
// lost, and not those of steps that are over.
TEST(Events, ThatAreLostAreCounted) {
  LoaderOptions options = Inline();
  options.trace_events = 3;
  const auto loader = Make(options, SlowSamples(std::chrono::milliseconds(1)));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_EQ(loader->Next(batch).kind(), NextKind::kBatch);
  // Each sample is read on its own, and the batch is completed.
  LoaderEvents events = loader->EventsOf(0, 0);
  EXPECT_THAT(events.events, SizeIs(3));
  EXPECT_EQ(events.lost, kBatchSize + 1 - 3);
  // A larger log keeps what there is.
  loader->KeepEvents(4);
  EXPECT_THAT(loader->EventsOf(0, 0).events, SizeIs(3));
  ASSERT_EQ(loader->Next(batch).kind(), NextKind::kBatch);
  EXPECT_THAT(loader->EventsOf(0, 0).events, testing::IsEmpty());
  events = loader->EventsOf(0, 1);
  EXPECT_EQ(events.lost, kBatchSize + 1 - 4);
  ASSERT_THAT(events.events, SizeIs(4));
  EXPECT_EQ(events.events.front().index, batch.indices()[kBatchSize - 3]);
  EXPECT_EQ(events.events.back().kind, LoaderEvent::Kind::kComplete);
}

// An epoch that begins anew has the events of its steps once.
TEST(Events, AreThoseOfTheLastReading) {
  LoaderOptions options = Inline();
  options.trace_events = 1000;
  const auto loader = Make(options, SlowSamples(std::chrono::milliseconds(1)));
  Batch batch;
  for (int i = 0; i < 2; ++i) {
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_EQ(loader->Next(batch).kind(), NextKind::kBatch);
    EXPECT_THAT(loader->EventsOf(0, 0).events, SizeIs(kBatchSize + 1));
  }
}

TEST(Trace, IsBounded) {
  LoaderOptions options = Inline();
  options.trace_events = 5;
  const auto loader = Make(options);
  DigestOfEpoch(*loader, 0);
  DigestOfEpoch(*loader, 1);
  ExpectJson(loader->Trace(), 5);
}

TEST(Trace, NothingUnlessAskedFor) {
  const auto loader = Make(Inline());
  DigestOfEpoch(*loader, 0);
  ExpectJson(loader->Trace(), 0);
}

TEST(Progress, ReportsEachStep) {
  for (const int workers : {0, 2}) {
    std::vector<LoaderProgress> reports;
    LoaderOptions options = Inline();
    options.num_workers = workers;
    options.progress_interval = absl::ZeroDuration();
    options.progress = [&reports](const LoaderProgress& report) {
      reports.push_back(report);
    };
    const auto loader = Make(options);
    DigestOfEpoch(*loader, 6);
    // The time starts with the first batch.
    ASSERT_THAT(reports, SizeIs(kSteps - 1));
    for (size_t i = 0; i < reports.size(); ++i) {
      const int64_t steps = static_cast<int64_t>(i) + 2;
      EXPECT_EQ(reports[i].epoch, 6);
      EXPECT_EQ(reports[i].steps, steps);
      EXPECT_EQ(reports[i].steps_in_epoch, kSteps);
      EXPECT_EQ(reports[i].samples, steps * kBatchSize);
      EXPECT_GT(reports[i].samples_per_second, 0);
      EXPECT_GE(reports[i].seconds_left, 0);
    }
    EXPECT_EQ(reports.back().seconds_left, 0);
    EXPECT_EQ(reports.back().bytes, loader->Metrics().bytes);
  }
}

// Epochs without steps fill the ring, so that the place of a batch which was
// given out is planned anew at once.
TEST(Progress, CountsTheStepsOfItsOwnEpoch) {
  constexpr int64_t kLengths[] = {1, 0, 0, 0, 0, 0, 2, 0, 0, 90, 0, 0, 0};
  constexpr int64_t kEpochs = 2000;
  const auto length = [&kLengths](int64_t epoch) {
    return kLengths[epoch % std::size(kLengths)];
  };
  const auto order = CustomOrder::Create(
      {"lengths", /*size=*/100},
      [length](int64_t epoch) -> absl::StatusOr<std::vector<int64_t>> {
        std::vector<int64_t> indices(length(epoch));
        std::iota(indices.begin(), indices.end(), 0);
        return indices;
      });
  LOCKSTEP_ASSERT_OK(order);
  SamplerOptions cut;
  cut.cut.batch_size = 1;
  auto sampler = Sampler::Create(*order, cut);
  LOCKSTEP_ASSERT_OK(sampler);
  LoaderOptions options = Inline();
  options.num_workers = 2;
  options.workers = Workers::kThreads;
  options.prefetch_batches = 4;
  options.advance_epochs = true;
  options.progress_interval = absl::ZeroDuration();
  int64_t reports = 0;
  options.progress = [&](const LoaderProgress& report) {
    ++reports;
    EXPECT_EQ(report.steps_in_epoch, length(report.epoch));
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader, Loader::Create(std::make_shared<TestDataset>(100),
                                        *std::move(sampler), options));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  while (loader->progress().epoch < kEpochs) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const bool more, loader->Next(batch));
    ASSERT_TRUE(more);
  }
  EXPECT_GT(reports, 0);
}

TEST(Progress, AnExceptionIsNotTheBatchs) {
  int calls = 0;
  LoaderOptions options = Inline();
  options.progress_interval = absl::ZeroDuration();
  options.progress = [&calls](const LoaderProgress&) {
    ++calls;
    throw std::runtime_error("no terminal");
  };
  const auto loader = Make(options);
  DigestOfEpoch(*loader, 0);  // which expects that all batches are good
  EXPECT_EQ(calls, kSteps - 1);
  EXPECT_EQ(loader->Metrics().batches, kSteps);
}

TEST(Progress, ToString) {
  LoaderProgress progress;
  progress.epoch = 3;
  progress.steps = 120;
  progress.steps_in_epoch = 5004;
  progress.samples_per_second = 2048;
  progress.bytes_per_second = 12.3e6;
  progress.seconds_left = 300;
  EXPECT_EQ(progress.ToString(),
            "epoch 3: 120 of 5004 steps, 2048.0 samples/s, 12.3 MB/s, 300 s "
            "left");
}

TEST(Cpus, AtLeastOne) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_EQ(DefaultWorkers(), std::max(1, UsableCpus() / 2));
  LoaderOptions options;
  EXPECT_EQ(Make(options)->options().num_workers, DefaultWorkers());
}

TEST(Cpus, QuotaOf) {
  using internal_loader::QuotaOf;
  EXPECT_EQ(QuotaOf("max 100000"), 0);
  EXPECT_EQ(QuotaOf("max 100000\n"), 0);
  EXPECT_EQ(QuotaOf("150000 100000\n"), 1.5);
  EXPECT_EQ(QuotaOf("400000\n 100000\n"), 4);
  EXPECT_EQ(QuotaOf("-1\n 100000\n"), 0);
  EXPECT_EQ(QuotaOf("50000 0"), 0);
  EXPECT_EQ(QuotaOf("50000"), 0);
  EXPECT_EQ(QuotaOf(" "), 0);
  EXPECT_EQ(QuotaOf(""), 0);
}

}  // namespace
}  // namespace lockstep
