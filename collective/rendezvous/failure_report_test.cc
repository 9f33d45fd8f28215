#include "lockstep/collective/rendezvous/failure_report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// The launcher and a rank of it are this process.
class FailureReportTest : public testing::Test {
 protected:
  FailureReportTest() {
    Become(3);
    ::setenv("LOCKSTEP_FAILURES", reports_.path().c_str(), 1);
  }
  ~FailureReportTest() override {
    ::unsetenv("LOCKSTEP_FAILURES");
    ::unsetenv("RANK");
  }

  static void Become(int rank) {
    ::setenv("RANK", absl::StrCat(rank).c_str(), 1);
  }

  const FailureReports reports_ = FailureReports::Create();
};

TEST_F(FailureReportTest, KeepsTheOrder) {
  EXPECT_THAT(reports_.Read(), IsEmpty());
  const absl::Status told = WithBlame(absl::AbortedError("rank 3 aborted"),
                                      BlameOn(3, absl::StatusCode::kNotFound));
  Become(1);
  ReportFailure(told);
  Become(3);
  ReportFailure(absl::NotFoundError("no file\nin the folder"));
  ReportFailure(absl::OkStatus());
  const std::vector<FailureReport> got = reports_.Read();
  ASSERT_THAT(got, SizeIs(2));
  EXPECT_EQ(got[0].rank, 1);
  EXPECT_EQ(got[0].blame.rank(), 3);
  EXPECT_EQ(got[0].text, "ABORTED: rank 3 aborted");
  EXPECT_EQ(got[1].rank, 3);
  EXPECT_EQ(got[1].blame.rank(), 3);
  EXPECT_EQ(got[1].blame.code, absl::StatusCode::kNotFound);
  EXPECT_EQ(got[1].blame.ranks[0].pid, ::getpid());
  EXPECT_EQ(got[1].text, "NOT_FOUND: no file in the folder");
}

TEST_F(FailureReportTest, CutsALongText) {
  ReportFailure(absl::InternalError(std::string(1 << 20, 'x')));
  const std::vector<FailureReport> got = reports_.Read();
  ASSERT_THAT(got, SizeIs(1));
  EXPECT_EQ(got[0].text, "INTERNAL: " + std::string(990, 'x'));
}

TEST_F(FailureReportTest, LeavesOutWhatIsNoReport) {
  std::ofstream file(reports_.path(), std::ios::app);
  const std::string blame = ToJson(BlameOn(2, absl::StatusCode::kInternal));
  file << "\n1\n1\t" << blame << "\nx\t" << blame << "\ttext\n1\tx\ttext\n"
       << std::string(1 << 20, 'x') << "\n1\t" << blame << "\t\n1\t" << blame
       << "\t\x1b[2Jred\a\n4\t" << blame << "\thalf of a line";
  file.close();
  const std::vector<FailureReport> got = reports_.Read();
  ASSERT_THAT(got, SizeIs(2));
  EXPECT_EQ(got[0].blame.rank(), 2);
  EXPECT_EQ(got[0].text, "");
  EXPECT_EQ(got[1].text, " [2Jred ");
}

TEST_F(FailureReportTest, MayBlameNobody) {
  ReportFailure(internal_collective::Blaming(
      Blame::Cause::kDiffer, absl::FailedPreconditionError("they differ")));
  ReportFailure(WithBlame(absl::NotFoundError("mine"),
                          BlameOn(-1, absl::StatusCode::kNotFound)));
  const std::vector<FailureReport> got = reports_.Read();
  ASSERT_THAT(got, SizeIs(2));
  EXPECT_EQ(got[0].blame.rank(), -1);
  EXPECT_EQ(got[0].blame.cause, Blame::Cause::kDiffer);
  EXPECT_EQ(got[1].blame.rank(), 3);
}

// The variable may be left over, or mean another file here.
TEST_F(FailureReportTest, WritesToNoOtherFile) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/file");
  std::ofstream(path) << "mine";
  ::setenv("LOCKSTEP_FAILURES", path.c_str(), 1);
  ReportFailure(absl::InternalError("why"));
  std::string left;
  std::ifstream(path) >> left;
  EXPECT_EQ(left, "mine");
  // To open a pipe that nobody reads would block.
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::setenv("LOCKSTEP_FAILURES", pipe.c_str(), 1);
  ReportFailure(absl::InternalError("why"));
}

TEST_F(FailureReportTest, DoesNothingWithoutALauncher) {
  ::unsetenv("RANK");
  ReportFailure(absl::InternalError("why"));
  EXPECT_THAT(reports_.Read(), IsEmpty());
  Become(0);
  ::unsetenv("LOCKSTEP_FAILURES");
  ReportFailure(absl::InternalError("why"));
  EXPECT_THAT(reports_.Read(), IsEmpty());
  // A launcher that has gone leaves a path at which no file is made.
  const std::string gone = absl::StrCat(::testing::TempDir(), "/gone");
  ::setenv("LOCKSTEP_FAILURES", gone.c_str(), 1);
  ReportFailure(absl::InternalError("why"));
  struct stat info;
  EXPECT_NE(::stat(gone.c_str(), &info), 0);
}

}  // namespace
}  // namespace lockstep
