#include "lockstep/loader/batch_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: yield
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Counts the calls, and checks their order.
class Counting : public BatchMemory {
 public:
  // Each gets the number of the call, from 0.
  std::function<absl::Status(int)> allocate, filled, before_reuse;

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    MutexLock lock(mutex_);
    LOCKSTEP_RETURN_IF_ERROR(Ask(allocate, allocations_));
    ++allocations_;
    LOCKSTEP_ASSIGN_OR_RETURN(void* const memory, heap_.Allocate(bytes));
    places_[memory].bytes = bytes;
    return memory;
  }

  void Free(void* memory, int64_t bytes) override {
    MutexLock lock(mutex_);
    ASSERT_EQ(places_.count(memory), 1u);
    EXPECT_EQ(places_[memory].bytes, bytes);
    places_.erase(memory);
    heap_.Free(memory, bytes);
  }

  absl::Status Filled(void* memory, const BatchView& batch) override {
    MutexLock lock(mutex_);
    Place& place = places_.at(memory);
    EXPECT_EQ(Find(batch), &place);
    EXPECT_FALSE(place.filled) << "twice, without a BeforeReuse between";
    place.filled = place.used = true;
    return Ask(filled, fillings_++);
  }

  absl::StatusOr<void*> OnDevice(void* memory, Stream stream) override {
    MutexLock lock(mutex_);
    EXPECT_TRUE(places_.at(memory).filled);
    EXPECT_EQ(stream.handle(), this);
    copies_.push_back(std::string(static_cast<const char*>(memory),
                                  places_.at(memory).bytes));
    return copies_.back().data();
  }

  void Released(void* memory) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(places_.at(memory).released) << "twice";
    places_.at(memory).released = true;
    ++releases_;
  }

  absl::Status BeforeReuse(void* memory) override {
    MutexLock lock(mutex_);
    Place& place = places_.at(memory);
    EXPECT_TRUE(place.used) << "fresh memory is not reused";
    place.filled = place.released = false;
    return Ask(before_reuse, reuses_++);
  }

  // Checks that every batch that is read was filled first.
  void Given(const Batch& batch) {
    MutexLock lock(mutex_);
    Place* place = Find(batch);
    ASSERT_NE(place, nullptr);
    EXPECT_TRUE(place->filled) << "given out before it was filled";
  }

  int allocations() const {
    MutexLock lock(mutex_);
    return allocations_;
  }
  int held() const {
    MutexLock lock(mutex_);
    return static_cast<int>(places_.size());
  }
  bool all_were_used() const {
    MutexLock lock(mutex_);
    return std::all_of(places_.begin(), places_.end(),
                       [](const auto& place) { return place.second.used; });
  }
  int fillings() const {
    MutexLock lock(mutex_);
    return fillings_;
  }
  int releases() const {
    MutexLock lock(mutex_);
    return releases_;
  }
  int reuses() const {
    MutexLock lock(mutex_);
    return reuses_;
  }

 private:
  struct Place {
    int64_t bytes = 0;
    bool filled = false;  // and not reused since
    bool released = false;
    bool used = false;
  };

  static absl::Status Ask(const std::function<absl::Status(int)>& function,
                          int call) {
    return function ? function(call) : absl::OkStatus();
  }

  Place* Find(const BatchView& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto& [memory, place] : places_) {
      const char* const first = static_cast<const char*>(memory);
      const char* const data = batch.Bytes(0).data();
      if (data >= first && data < first + place.bytes) return &place;
    }
    return nullptr;
  }

  mutable Mutex mutex_;
  HeapMemory heap_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, Place> places_ ABSL_GUARDED_BY(mutex_);
  int allocations_ ABSL_GUARDED_BY(mutex_) = 0;
  int fillings_ ABSL_GUARDED_BY(mutex_) = 0;
  int reuses_ ABSL_GUARDED_BY(mutex_) = 0;
  int releases_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<std::string> copies_ ABSL_GUARDED_BY(mutex_);
};

constexpr int64_t kSteps = 16;

struct Kind {
  int num_workers;
  Workers workers;
};
constexpr Kind kKinds[] = {{0, Workers::kTbb},
                           {1, Workers::kTbb},
                           {3, Workers::kTbb},
                           {3, Workers::kThreads}};

absl::StatusOr<std::unique_ptr<Loader>> Make(
    const std::shared_ptr<Counting>& memory, const Kind& kind = kKinds[0]) {
  TestJob job;
  job.size = kSteps * 8;
  job.batch_size = 8;
  LoaderOptions options;
  options.num_workers = kind.num_workers;
  options.workers = kind.workers;
  options.prefetch_batches = 2;
  options.prefetch_next_epoch = false;
  options.memory = memory;
  return Loader::Create(std::make_shared<TestDataset>(job.size),
                        TestSampler(job), options);
}

TEST(BatchMemory, EveryBatchIsFilledAndAllMemoryIsFreed) {
  for (const Kind& kind : kKinds) {
    const auto memory = std::make_shared<Counting>();
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Loader> loader,
                                  Make(memory, kind));
    EXPECT_EQ(memory->allocations(), 3);  // two ahead and one in use
    int64_t batches = 0;
    for (const absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      LOCKSTEP_ASSERT_OK(batch);
      memory->Given(*batch);
      ++batches;
    }
    EXPECT_EQ(batches, kSteps);
    EXPECT_EQ(memory->fillings(), kSteps);
    EXPECT_EQ(memory->allocations(), 3);
    EXPECT_EQ(memory->held(), 3);
    loader = nullptr;
    EXPECT_EQ(memory->held(), 0);
  }
}

TEST(BatchMemory, FreshMemoryIsNotReused) {
  const auto memory = std::make_shared<Counting>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(memory));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  std::vector<Batch> held(3);
  for (Batch& batch : held) {
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    memory->Given(batch);
  }
  EXPECT_EQ(memory->reuses(), 0);
  // From now on all memory was used before.
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(loader->Next(held[i % 3]), IsOkAndHolds(true));
    EXPECT_EQ(memory->reuses(), i + 1);
    memory->Given(held[i % 3]);
  }
}

TEST(BatchMemory, EveryUseButTheFirstIsAReuse) {
  for (const Kind& kind : kKinds) {
    const auto memory = std::make_shared<Counting>();
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(memory, kind));
    for (const absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
      LOCKSTEP_ASSERT_OK(batch);
      memory->Given(*batch);
    }
    // A pool of three, of which at least one was used.
    EXPECT_LE(memory->reuses(), kSteps - 1);
    EXPECT_GE(memory->reuses(), kSteps - 3);
  }
}

TEST(BatchMemory, ABatchOutlivesTheLoader) {
  for (const Kind& kind : kKinds) {
    const auto memory = std::make_shared<Counting>();
    Batch batch;
    std::string bytes;
    {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                    Make(memory, kind));
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
      bytes = BytesOf(batch);
    }
    EXPECT_GE(memory->held(), 1);
    EXPECT_EQ(BytesOf(batch), bytes);
    batch.Release();
    EXPECT_EQ(memory->held(), 0);
  }
}

TEST(BatchMemory, LivesAsLongAsItsBatches) {
  Batch batch;
  std::weak_ptr<Counting> watched;
  {
    auto memory = std::make_shared<Counting>();
    watched = memory;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(memory));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  }
  EXPECT_FALSE(watched.expired());
  batch = Batch();
  EXPECT_TRUE(watched.expired());
}

TEST(BatchMemory, WhatTheUserGivesBackIsReleasedOnce) {
  for (const Kind& kind : kKinds) {
    const auto memory = std::make_shared<Counting>();
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(memory, kind));
    Batch batch, other;
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    ASSERT_THAT(loader->Next(other), IsOkAndHolds(true));
    EXPECT_EQ(memory->releases(), 0);
    batch.Release();
    EXPECT_EQ(memory->releases(), 1);
    batch = std::move(other);
    EXPECT_EQ(memory->releases(), 1);
    batch = Batch();
    EXPECT_EQ(memory->releases(), 2);
    // Workers read ahead. Without workers, nothing was planned that could be
    // dropped before it is filled.
    while (kind.num_workers > 0 && !memory->all_were_used()) {
      std::this_thread::yield();
    }
    // The user never had the batches that are dropped.
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));
    EXPECT_EQ(memory->releases(), 2);
  }
}

TEST(BatchMemory, WhatIsOnTheDeviceIsTheCopy) {
  const auto memory = std::make_shared<Counting>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(memory));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DeviceBatch copy,
                                batch.ToDevice(Stream(memory.get())));
  EXPECT_TRUE(copy.on_device());
  EXPECT_EQ(copy.step(), batch.step());
  EXPECT_EQ(copy.rows(), 8);
  EXPECT_EQ(copy.indices(), batch.indices());
  EXPECT_NE(copy.Bytes(1).data(), batch.Bytes(1).data());
  EXPECT_EQ(copy.Bytes(1), absl::Span<const char>(batch.Bytes(1)));
  EXPECT_EQ(*copy.Values<int64_t>("id"), *batch.Values<int64_t>("id"));
  EXPECT_EQ(*copy.Row<float>("x", 3), *batch.Row<float>("x", 3));
  EXPECT_EQ(*copy.Row<int32_t>("tokens", 7), *batch.Row<int32_t>("tokens", 7));
  EXPECT_NE(copy.Splits("tokens")->data(), batch.Splits("tokens")->data());
  EXPECT_EQ(*copy.Splits("tokens"), *batch.Splits("tokens"));
  EXPECT_THAT(copy.Values<float>("id"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(BatchMemory, ThereIsADeviceOnlyWhereMemoryHasOne) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(nullptr));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  EXPECT_THAT(batch.ToDevice(Stream(nullptr)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("empty batch")));
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.ToDevice(Stream(nullptr)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("set LoaderOptions::memory")));
}

TEST(BatchMemory, CreateFailsWithoutMemory) {
  const auto memory = std::make_shared<Counting>();
  memory->allocate = [](int call) {
    return call == 2 ? absl::ResourceExhaustedError("no pages left")
                     : absl::OkStatus();
  };
  EXPECT_THAT(Make(memory), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("no pages left")));
  EXPECT_EQ(memory->allocations(), 2);
  EXPECT_EQ(memory->held(), 0);
}

// Expects that one step of the epoch fails with `text`, and no other step.
void ExpectOneFails(const std::shared_ptr<Counting>& memory, const Kind& kind,
                    absl::StatusCode code, const std::string& text) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(memory, kind));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  int64_t good = 0, failed = 0;
  Batch batch;
  while (true) {
    const NextResult next = loader->Next(batch);
    if (next.kind() == NextKind::kEnd) break;
    if (next.ok()) {
      ++good;
      continue;
    }
    ++failed;
    ASSERT_EQ(next.kind(), NextKind::kFailedStep) << next.status();
    EXPECT_THAT(next, StatusIs(code, testing::AllOf(HasSubstr("epoch 0, step "),
                                                    HasSubstr(text))));
  }
  EXPECT_EQ(good, kSteps - 1);
  EXPECT_EQ(failed, 1);
  EXPECT_TRUE(loader->ok());
}

TEST(BatchMemory, AFailureOfFilledFailsOneStep) {
  for (const Kind& kind : kKinds) {
    auto memory = std::make_shared<Counting>();
    memory->filled = [](int call) {
      return call == 5 ? absl::UnavailableError("no copy") : absl::OkStatus();
    };
    ExpectOneFails(memory, kind, absl::StatusCode::kUnavailable, "no copy");
    EXPECT_EQ(memory->fillings(), kSteps);
    memory = std::make_shared<Counting>();
    memory->filled = [](int call) -> absl::Status {
      if (call == 5) throw std::runtime_error("boom");
      return absl::OkStatus();
    };
    ExpectOneFails(
        memory, kind, absl::StatusCode::kUnknown,
        "BatchMemory::Filled failed: it threw std::runtime_error: boom");
  }
}

TEST(BatchMemory, AFailureOfBeforeReuseFailsOneStep) {
  for (const Kind& kind : kKinds) {
    auto memory = std::make_shared<Counting>();
    memory->before_reuse = [](int call) {
      return call == 5 ? absl::UnavailableError("no event") : absl::OkStatus();
    };
    ExpectOneFails(memory, kind, absl::StatusCode::kUnavailable, "no event");
    EXPECT_EQ(memory->fillings(), kSteps - 1);  // The step was not read.
    memory = std::make_shared<Counting>();
    memory->before_reuse = [](int call) -> absl::Status {
      if (call == 5) throw std::runtime_error("boom");
      return absl::OkStatus();
    };
    ExpectOneFails(
        memory, kind, absl::StatusCode::kUnknown,
        "BatchMemory::BeforeReuse failed: it threw std::runtime_error: boom");
  }
}

TEST(HeapMemory, IsAligned) {
  HeapMemory heap;
  for (const int64_t bytes : {0, 1, 63, 64, 1000, 2 << 20, (2 << 20) + 1}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(void* const memory, heap.Allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u) << bytes;
    std::memset(memory, 1, bytes);
    heap.Free(memory, bytes);
  }
}

TEST(HeapMemory, EveryFieldOfABatchIsAligned) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(nullptr));
  for (const absl::StatusOr<Batch>& batch : loader->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    for (int field = 0; field < 3; ++field) {
      const auto data = reinterpret_cast<uintptr_t>(batch->Bytes(field).data());
      EXPECT_EQ(data % 64, 0u) << field;
    }
  }
}

}  // namespace
}  // namespace lockstep
