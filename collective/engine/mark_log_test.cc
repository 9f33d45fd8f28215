#include "lockstep/collective/engine/mark_log.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {
namespace {

using testing::Gt;
using testing::IsEmpty;
using testing::Le;

Operation OperationOf(uint64_t number) {
  Operation op;
  op.name = absl::StrCat("of ", number);
  return op;
}

void Add(MarkLog& log, uint64_t number) {
  log.Add(number, number * number, OperationOf(number));
}

// Adds the collectives from `first` to `last`.
void AddAll(MarkLog& log, uint64_t first, uint64_t last) {
  for (uint64_t number = first; number <= last; ++number) Add(log, number);
}

// The digests of marks, by the number of the mark.
using Digests = std::map<uint64_t, uint64_t>;

void Keep(const std::vector<Mark>& marks, Digests& digests) {
  for (const Mark& mark : marks) {
    EXPECT_TRUE(digests.insert({mark.number, mark.digest}).second)
        << mark.number;
  }
}

TEST(MarkLog, NothingWasAddedSoThereAreNoMarks) {
  MarkLog log;
  EXPECT_THAT(log.Take(), IsEmpty());
  AddAll(log, 1, 100);
  EXPECT_FALSE(log.Take().empty());
  EXPECT_THAT(log.Take(), IsEmpty());
}

TEST(MarkLog, TheFirstOnesHaveWords) {
  MarkLog log;
  for (const uint64_t first : {1, 1001}) {
    AddAll(log, first, first + 999);
    size_t named = 0;
    const std::vector<Mark> marks = log.Take();
    while (named < marks.size() && !marks[named].what.empty()) {
      EXPECT_EQ(marks[named].number, first + named);
      EXPECT_EQ(marks[named].what, OperationOf(first + named).Describe());
      ++named;
    }
    EXPECT_EQ(named, 16u);
    for (size_t i = named; i < marks.size(); ++i) {
      EXPECT_EQ(marks[i].what, "");
    }
  }
}

TEST(MarkLog, TheLastOneIsThereAndTheyAreFew) {
  MarkLog log;
  uint64_t issued = 0;
  std::vector<uint64_t> counts = {100000, 1, 100000};
  for (uint64_t count = 1; count < 300; ++count) counts.push_back(count);
  for (const uint64_t count : counts) {
    AddAll(log, issued + 1, issued + count);
    const std::vector<Mark> marks = log.Take();
    ASSERT_FALSE(marks.empty());
    EXPECT_THAT(marks.size(), Le(49u));
    EXPECT_EQ(marks.front().number, issued + 1);
    issued += count;
    EXPECT_EQ(marks.back().number, issued);
    for (size_t i = 1; i < marks.size(); ++i) {
      EXPECT_THAT(marks[i].number, Gt(marks[i - 1].number));
    }
  }
}

TEST(MarkLog, AShortBatchAfterALongOneGetsDenseMarks) {
  MarkLog log;
  AddAll(log, 1, 100000);
  log.Take();
  AddAll(log, 100001, 100100);
  EXPECT_THAT(log.Take().size(), Gt(24u));
}

// Logs share marks whatever the paces at which the marks are taken.
TEST(MarkLog, LogsOfTheSameShareMarks) {
  constexpr uint64_t kCount = 100000;
  const auto digests_at = [](uint64_t pace) {
    MarkLog log;
    Digests digests;
    for (uint64_t number = 1; number <= kCount; ++number) {
      Add(log, number);
      if (number % pace == 0) Keep(log.Take(), digests);
    }
    Keep(log.Take(), digests);
    return digests;
  };
  const std::vector<uint64_t> paces = {1, 7, 300, 1023, 7001, 40000, kCount};
  std::map<uint64_t, Digests> logs;
  for (const uint64_t pace : paces) logs[pace] = digests_at(pace);
  for (const uint64_t fast : paces) {
    for (const uint64_t slow : paces) {
      if (slow <= fast) continue;
      std::map<uint64_t, int> shared;  // in each part of the slow one
      for (const auto& [number, digest] : logs[slow]) {
        const auto same = logs[fast].find(number);
        if (same == logs[fast].end()) continue;
        EXPECT_EQ(digest, same->second) << number;
        ++shared[(number - 1) / slow];
      }
      for (uint64_t part = 0; part < kCount / slow; ++part) {
        EXPECT_GE(shared[part], slow < 10 ? 7 : 10)
            << "paces " << fast << " and " << slow << ", part " << part;
      }
    }
  }
}

TEST(MarkLog, OneDifferenceChangesAllLaterDigests) {
  constexpr uint64_t kCount = 2000;
  for (const uint64_t different : {1, 2, 17, 700, 1999}) {
    MarkLog log;
    MarkLog other;
    Digests digests;
    Digests others;
    for (uint64_t number = 1; number <= kCount; ++number) {
      Add(log, number);
      const uint64_t bit = number == different ? 1 : 0;
      other.Add(number, (number * number) ^ bit, OperationOf(number));
      if (number % 500 != 0) continue;
      Keep(log.Take(), digests);
      Keep(other.Take(), others);
    }
    ASSERT_EQ(digests.size(), others.size());
    EXPECT_GT(digests.size(), 64u);
    for (const auto& [number, digest] : digests) {
      ASSERT_EQ(others.count(number), 1u);
      EXPECT_EQ(others[number] == digest, number < different) << number;
    }
  }
}

TEST(MarkLog, AnotherOrderHasAnotherDigest) {
  MarkLog log;
  MarkLog other;
  const Operation op;
  log.Add(1, 5, op);
  log.Add(2, 6, op);
  other.Add(1, 6, op);
  other.Add(2, 5, op);
  EXPECT_NE(log.Take().back().digest, other.Take().back().digest);
}

}  // namespace
}  // namespace lockstep::internal_collective
