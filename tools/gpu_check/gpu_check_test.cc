// Runs gpu_check as a program, on the fake GPU.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code = -1;
  std::string printed;
  std::string json;
};

// Runs it with `variables` such as "FAKE_GPU_VERSION=23003".
Outcome Check(const std::string& variables) {
  const std::string out = testing::TempDir() + "/gpu-results.json";
  const std::string command = absl::StrCat(
      variables,
      " tools/gpu_check/gpu_check --nccl=collective/nccl/libfake_gpu.so "
      "--cuda=collective/nccl/libfake_gpu.so --seconds=0.1 --most_bytes=65536 "
      "--out='",
      out, "' 2>&1");
  std::remove(out.c_str());
  Outcome run;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    run.printed += static_cast<char>(c);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) run.code = WEXITSTATUS(status);
  std::ifstream file(out);
  run.json.assign(std::istreambuf_iterator<char>(file), {});
  return run;
}

std::string Result(const std::string& section, const std::string& result) {
  return absl::StrCat("\"section\": \"", section, "\", \"result\": \"", result);
}

std::string RowOf(const std::string& what) {
  return absl::StrCat("\"what\": \"", what);
}

// The speed does not matter: "missed" is as good as "ok".
TEST(GpuCheck, EverySectionIsDone) {
  for (const char* nccl : {"22809", "23003"}) {
    const Outcome run = Check(
        absl::StrCat("FAKE_GPU_ALLOW_DUPLICATE_GPU=1 FAKE_GPU_VERSION=", nccl));
    EXPECT_EQ(run.code, 0) << run.printed;
    EXPECT_THAT(run.json, AllOf(HasSubstr("\"card\": \"fake GPU 0\""),
                                HasSubstr("\"CUDA\": \"13.0\""),
                                HasSubstr("\"date\": \"20")));
    for (const char* section :
         {"conformance", "two ranks on one card", "gradients, one rank",
          "gradients, two ranks on one card"}) {
      EXPECT_THAT(run.json, HasSubstr(Result(section, "ok\"")));
    }
    for (const char* section : {"faults", "copies", "prefetched", "overhead"}) {
      EXPECT_THAT(run.json, ContainsRegex(Result(section, "(ok|missed)\"")));
    }
    for (const char* what :
         {"all-reduce of 4 MiB",
          "broadcast of 4 MiB",
          "send and receive",
          "a rank does not come",
          "kill -9",
          "all-reduces of 1000 and of 2000",
          "all-reduces of sum and of max",
          "Abort",
          "memory of the group, three times: 2 all-reduces of 4 MiB",
          "Abort, with memory of the group",
          "64 KiB from the host to the device: pageable",
          "64 KiB from the host to the device: page-locked",
          "batches of 64 KiB: bare page-locked copies",
          "batches of 64 KiB: prefetched, of the bare rate",
          "a step that only computes",
          "a step with a copy in its stream",
          "a step with a prefetched batch",
          "step time without copies / with prefetched ones",
          "all-reduce of 4 B, one by one: NCCL alone, blocking",
          "all-reduce of 4 B, one by one: the difference",
          "all-reduce of 64 KiB, 100 queued: the difference"}) {
      EXPECT_THAT(run.json, HasSubstr(RowOf(what)));
      EXPECT_THAT(run.printed, HasSubstr(what));
    }
    // A slow machine leaves it out.
    EXPECT_THAT(
        run.json,
        ContainsRegex(RowOf("192 tensors(, 0.0 MB: Average|: models)")));
  }
}

TEST(GpuCheck, SaysThatNcclRefusesTwoRanksOnOneCard) {
  const Outcome run = Check("");
  EXPECT_EQ(run.code, 0) << run.printed;
  for (const char* section : {"two ranks on one card", "faults",
                              "gradients, two ranks on one card"}) {
    EXPECT_THAT(run.json, ContainsRegex(Result(
                              section, "refused: .*Duplicate GPU detected")));
  }
  EXPECT_THAT(run.json, AllOf(HasSubstr(Result("conformance", "ok\"")),
                              HasSubstr(Result("gradients, one rank", "ok\"")),
                              Not(HasSubstr(RowOf("kill -9")))));
}

TEST(GpuCheck, SaysWhatFailed) {
  const Outcome run =
      Check("FAKE_GPU_ALLOW_DUPLICATE_GPU=1 FAKE_GPU_ASYNC_ERROR_AT=3");
  EXPECT_EQ(run.code, 1) << run.printed;
  EXPECT_THAT(run.json,
              AllOf(ContainsRegex(Result("conformance", "failed: .*nccl")),
                    HasSubstr(Result("gradients, one rank", "failed: ")),
                    HasSubstr(Result("overhead", "failed: "))));
}

TEST(GpuCheck, SaysThatThereIsNoGpu) {
  const Outcome run = Check("FAKE_GPU_NO_DRIVER=1");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.printed, HasSubstr("no CUDA-capable device is detected"));
  EXPECT_EQ(run.json, "");
}

}  // namespace
}  // namespace lockstep
