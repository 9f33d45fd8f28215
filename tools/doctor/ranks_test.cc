#include "lockstep/tools/doctor/ranks.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/finding.h"
#include "lockstep/tools/doctor/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RanksOptions Options() {
  RanksOptions options;
  options.until = absl::Now() + absl::Minutes(4);  // it only ends a hang
  options.effort.most_elements = 2000;
  options.effort.pairs.bytes = 10000;
  options.effort.pairs.pings = 3;
  options.effort.pairs.repeats = 2;
  return options;
}

// Examines ranks, whose options a test may change, and returns the report of
// rank 0.
RanksReport Examine(
    int size, const std::function<void(int rank, RanksOptions&)>& change = {},
    const std::function<void(int rank, WorldOptions&)>& change_world = {}) {
  RanksReport report;
  OnWorlds(
      size,
      [&](World& world) {
        RanksOptions options = Options();
        if (change) change(world.rank(), options);
        RanksReport mine = ExamineRanks(world, options);
        if (world.rank() == 0) {
          report = mine;
        } else {
          EXPECT_THAT(mine.findings, IsEmpty());
          EXPECT_FALSE(mine.must_speak);
        }
      },
      change_world);
  return report;
}

const Finding& FindingOf(const RanksReport& report, absl::string_view check) {
  static const Finding missing = {"", Verdict::kFailure, "missing", ""};
  for (const Finding& finding : report.findings) {
    if (finding.check == check) return finding;
  }
  return missing;
}

TEST(Ranks, OfOneMachineAreTriedOverAllItsBackends) {
  const RanksReport report = Examine(3);
  EXPECT_THAT(report.hosts, SizeIs(3));
  EXPECT_EQ(CountOf(report.findings, Verdict::kFailure), 0);
  EXPECT_EQ(FindingOf(report, "meeting").text,
            "all 3 ranks have come, from one machine");
  EXPECT_EQ(FindingOf(report, "connections").verdict, Verdict::kPass);
  for (const char* backend : {"shm", "tcp"}) {
    EXPECT_EQ(FindingOf(report, backend).verdict, Verdict::kPass);
  }
  EXPECT_EQ(FindingOf(report, "nccl").verdict, Verdict::kNotJudged);
  EXPECT_THAT(report.copies, SizeIs(3));
  ASSERT_THAT(report.pairs, SizeIs(2));
  for (const BackendPairs& backend : report.pairs) {
    ASSERT_THAT(backend.pairs, SizeIs(3));
    for (const PairSpeed& pair : backend.pairs) {
      EXPECT_TRUE(pair.is_local);
      EXPECT_GT(pair.limit, 0);
    }
    EXPECT_EQ(backend.pairs[1].a, 0);
    EXPECT_EQ(backend.pairs[1].b, 2);
  }
}

TEST(Ranks, OfOneAreFewButRight) {
  const RanksReport report = Examine(1);
  EXPECT_EQ(CountOf(report.findings, Verdict::kFailure), 0);
  EXPECT_THAT(report.pairs, IsEmpty());
}

// The ranks say that they run on two machines.
TEST(Ranks, OfTwoMachinesBringWhatEachHasFound) {
  const RanksReport report = Examine(4, [](int rank, RanksOptions& options) {
    options.machine.host = rank < 2 ? "trainer-0" : "trainer-1";
    options.machine_id = options.machine.host;
    options.machine.findings = {{"memory",
                                 rank < 2 ? Verdict::kPass : Verdict::kWarning,
                                 absl::StrCat("seen by rank ", rank), ""}};
    options.facts.network.interfaces = {
        {"wire", {"127.0.0.1"}, false, rank == 3 ? 1000 : 8000}};
  });
  EXPECT_THAT(report.hosts,
              ElementsAre("trainer-0", "trainer-0", "trainer-1", "trainer-1"));
  // Each machine comes once, by the first of its ranks.
  ASSERT_THAT(report.machines, SizeIs(2));
  EXPECT_EQ(report.machines[0].host, "trainer-0");
  EXPECT_EQ(report.machines[1].host, "trainer-1");
  EXPECT_EQ(report.machines[1].findings[0].text, "seen by rank 2");
  EXPECT_EQ(report.machines[1].findings[0].verdict, Verdict::kWarning);
  ASSERT_THAT(report.pairs, SizeIs(2));
  int far = 0;
  for (const PairSpeed& pair : report.pairs[1].pairs) {
    EXPECT_EQ(pair.is_local, pair.a / 2 == pair.b / 2);
    if (pair.is_local) continue;
    ++far;
    // Two pairs share the link of 8 Gbit/s, each of which uses it half of the
    // time.
    EXPECT_DOUBLE_EQ(pair.limit, 1e9);
  }
  EXPECT_EQ(far, 4);
}

TEST(Ranks, OfMachinesWithOneNameAreToldApart) {
  const RanksReport report = Examine(2, [](int rank, RanksOptions& options) {
    options.machine.host = "trainer";
    options.machine_id = absl::StrCat(rank);
  });
  EXPECT_THAT(report.machines, SizeIs(2));
  EXPECT_EQ(FindingOf(report, "meeting").verdict, Verdict::kWarning);
  EXPECT_THAT(FindingOf(report, "meeting").text,
              HasSubstr("several have one name: trainer"));
  EXPECT_FALSE(report.pairs[0].pairs[0].is_local);
}

TEST(Ranks, WithOtherSettingsAreNamed) {
  const RanksReport report = Examine(3, [](int rank, RanksOptions& options) {
    options.job.Add("loader.train.seed", rank == 1 ? "8" : "7");
  });
  EXPECT_EQ(FindingOf(report, "settings").verdict, Verdict::kFailure);
  EXPECT_THAT(FindingOf(report, "settings").text,
              AllOf(HasSubstr("rank 1"), HasSubstr("loader.train.seed")));
  EXPECT_THAT(report.pairs, SizeIs(2));
}

// Two processors are too few for three ranks, so no pair is an exception. A
// launcher may bind each rank to its own.
TEST(Ranks, ThatShareProcessorsAreNotCompared) {
  const struct {
    const char* processors[3];
    double quota;
    bool is_crowded;
  } cases[] = {{{"0-1", "0-1", "0-1"}, 0, true},
               {{"0-2", "0-2", "0-2"}, 0, false},
               {{"0", "1", "2"}, 0, false},
               {{"0", "1", "1"}, 0, true},
               {{"0-7", "0-7", "0-7"}, 2.5, true}};
  for (const auto& each : cases) {
    const RanksReport report = Examine(3, [&](int rank, RanksOptions& options) {
      options.machine.host = "trainer";
      options.processors = each.processors[rank];
      options.facts.quota = each.quota;
    });
    EXPECT_EQ(report.pairs[0].pairs[0].has_processors, !each.is_crowded);
    EXPECT_EQ(FindingOf(report, "processors").text == "missing",
              !each.is_crowded);
    if (each.is_crowded) {
      EXPECT_THAT(FindingOf(report, "processors").text,
                  HasSubstr("ranks share them: 3 on the 2"));
    }
  }
}

TEST(Ranks, SayThatTheBackendOfTheJobCannotBeTried) {
  const RanksReport report =
      Examine(2, [](int, RanksOptions& options) { options.backend = "nccl"; });
  EXPECT_EQ(FindingOf(report, "nccl").verdict, Verdict::kFailure);
  EXPECT_THAT(FindingOf(report, "nccl").text,
              HasSubstr("although the job's group uses it"));
  EXPECT_THAT(FindingOf(Examine(2), "shm").text,
              HasSubstr("; the job's group uses it"));
}

TEST(Ranks, SayWhoseResultsAreWrong) {
  const RanksReport report = Examine(3, [](int, RanksOptions& options) {
    options.backend = "mine";
    options.make_own = [](World& world) {
      return MakeWrongGroup(world, OpKind::kAllGather, /*rank=*/1, "mine");
    };
  });
  const Finding& wrong = FindingOf(report, "mine");
  EXPECT_EQ(wrong.verdict, Verdict::kFailure);
  EXPECT_THAT(wrong.text,
              AllOf(HasSubstr("rank 1 ("), HasSubstr("all_gather of "),
                    HasSubstr("element 0 is ")));
  // The other backends are measured all the same.
  EXPECT_THAT(report.pairs, SizeIs(2));
}

// The others may be at another operation when one fails.
TEST(Ranks, SayWhichBackendFailsOnOneOfThem) {
  for (const int rank : {0, 1, 2}) {
    const RanksReport report = Examine(3, [rank](int, RanksOptions& options) {
      options.backend = "mine";
      options.make_own = [rank](World& world) {
        return MakeWrongGroup(world, OpKind::kGather, rank, "mine",
                              Fault::kFails);
      };
    });
    EXPECT_EQ(FindingOf(report, "mine").verdict, Verdict::kFailure);
    EXPECT_THAT(FindingOf(report, "mine").text, HasSubstr("planted failure"));
    EXPECT_EQ(FindingOf(report, "ranks").text, "missing");
    EXPECT_THAT(report.pairs, SizeIs(2));
  }
}

TEST(Ranks, SayWhichBackendCannotBeMade) {
  const RanksReport report = Examine(2, [](int, RanksOptions& options) {
    options.backend = "mine";
    options.make_own = [](World&) {
      return absl::UnavailableError("mine is not there");
    };
  });
  EXPECT_EQ(FindingOf(report, "mine").verdict, Verdict::kFailure);
  EXPECT_EQ(FindingOf(report, "mine").text, "mine is not there");
  EXPECT_EQ(FindingOf(report, "mine").check, "mine");
  EXPECT_THAT(report.pairs, SizeIs(2));
}

TEST(Ranks, AreToldOfOneThatIsGone) {
  OnWorlds(3, [](World& world) {
    RanksOptions options = Options();
    // Rank 2 never comes to the examination.
    if (world.rank() == 2) return;
    const RanksReport report = ExamineRanks(world, options);
    ASSERT_THAT(report.findings, SizeIs(1));
    EXPECT_EQ(report.findings[0].verdict, Verdict::kFailure);
    EXPECT_THAT(report.findings[0].text, HasSubstr("rank 2"));
    // Rank 0 is there to say it.
    EXPECT_EQ(report.must_speak, world.rank() == 0);
  });
}

TEST(Ranks, NeedNoLimit) {
  const RanksReport report = Examine(2, [](int, RanksOptions& options) {
    options.until = absl::InfiniteFuture();
  });
  EXPECT_EQ(CountOf(report.findings, Verdict::kFailure), 0);
  EXPECT_THAT(report.pairs, SizeIs(2));
}

TEST(Ranks, EndAtTheirTime) {
  OnWorlds(1, [](World& world) {
    RanksOptions options = Options();
    options.until = absl::InfinitePast();
    const RanksReport report = ExamineRanks(world, options);
    EXPECT_EQ(CountOf(report.findings, Verdict::kFailure), 1);
  });
}

TEST(Ranks, WithGpusTryNcclToo) {
  const std::string fake =
      std::filesystem::absolute("collective/nccl/libfake_gpu.so");
  const RanksReport report = Examine(2, [&](int, RanksOptions& options) {
    options.nccl.cuda_library = options.nccl.nccl_library = fake;
    options.machine.host = "trainer-0";
    options.facts.gpus.names = {"a", "b"};
    options.facts.gpus.nccl.emplace(22809);
  });
  EXPECT_EQ(FindingOf(report, "nccl").verdict, Verdict::kPass)
      << FindingOf(report, "nccl").text;
  EXPECT_THAT(report.pairs, SizeIs(3));

  const RanksReport few = Examine(2, [&](int, RanksOptions& options) {
    options.nccl.cuda_library = options.nccl.nccl_library = fake;
    options.machine.host = "trainer-0";
    options.facts.gpus.names = {"a"};
    options.facts.gpus.nccl.emplace(22809);
  });
  EXPECT_EQ(FindingOf(few, "nccl").verdict, Verdict::kNotJudged);
}

TEST(Ranks, WithoutTimeToMeasureSaySo) {
  const RanksReport report = Examine(2, [](int rank, RanksOptions& options) {
    // Rank 0 decides for all.
    if (rank == 0) options.effort.for_pairs = 0;
  });
  EXPECT_EQ(CountOf(report.findings, Verdict::kFailure), 0);
  EXPECT_THAT(FindingOf(report, "pairs, tcp").text,
              HasSubstr("there was time for 0 of 1 pairs"));
  EXPECT_EQ(FindingOf(report, "tcp").verdict, Verdict::kNotJudged);
  EXPECT_EQ(FindingOf(report, "pairs, tcp").verdict, Verdict::kNotJudged);
}

// A job that uses another backend runs all the same.
TEST(Ranks, WithABrokenNcclAreWarned) {
  for (const char* backend : {"auto", "nccl"}) {
    const RanksReport report = Examine(2, [&](int, RanksOptions& options) {
      options.backend = backend;
      options.nccl.cuda_library = options.nccl.nccl_library = "/nowhere/lib.so";
      options.machine.host = "trainer-0";
      options.facts.gpus.names = {"a", "b"};
      options.facts.gpus.nccl.emplace(22809);
    });
    EXPECT_EQ(FindingOf(report, "nccl").verdict, std::string(backend) == "nccl"
                                                     ? Verdict::kFailure
                                                     : Verdict::kWarning);
    EXPECT_THAT(FindingOf(report, "nccl").text, HasSubstr("/nowhere/lib.so"));
  }
}

// A rank whose data interface has no address on this machine can't listen.
TEST(Ranks, ThatCannotListenAreNamed) {
  const RanksReport report = Examine(
      3, [](int, RanksOptions& options) { options.backend = "tcp"; },
      [](int rank, WorldOptions& world) {
        if (rank == 1) world.interface = "192.0.2.99";
      });
  const Finding& finding = FindingOf(report, "connections");
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("1 of 6 fail: rank 1 ("),
                                  HasSubstr("can't listen at 192.0.2.99")));
  EXPECT_THAT(finding.remedy, HasSubstr("world.interface"));
  EXPECT_THAT(report.unconnected, SizeIs(1));
  // The job's group is one of tcp.
  EXPECT_EQ(FindingOf(report, "tcp").verdict, Verdict::kFailure);
  EXPECT_EQ(FindingOf(report, "shm").verdict, Verdict::kPass);
}

TEST(Ranks, TellTheirProgress) {
  Mutex mutex;
  std::vector<std::string> told;
  Examine(2, [&](int rank, RanksOptions& options) {
    options.tell = [&, rank](absl::string_view line) {
      if (rank != 1) return;
      MutexLock lock(mutex);
      told.emplace_back(line);
    };
  });
  EXPECT_THAT(told, AllOf(SizeIs(8), Contains("trying the backend tcp")));
}

}  // namespace
}  // namespace lockstep
