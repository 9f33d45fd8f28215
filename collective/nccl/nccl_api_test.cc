#include "lockstep/collective/nccl/nccl_api.h"

#include <dlfcn.h>

#include <cstdio>
#include <set>
#include <string>
#include <thread>  // NOLINT: loading from several
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr char kFake[] = "collective/nccl/libfake_gpu.so";
constexpr char kWithoutFunctions[] = "gpu/libfake_without_functions.so";

void SetVersion(const char* library, int version) {
  const auto set = reinterpret_cast<void (*)(const char*, long long)>(
      dlsym(dlopen(library, RTLD_NOW | RTLD_LOCAL), "FakeGpuSet"));
  ASSERT_NE(set, nullptr);
  set("version", version);
}

auto IsUnavailable(const std::string& file, const std::string& what) {
  return StatusIs(absl::StatusCode::kUnavailable,
                  AllOf(HasSubstr(file), HasSubstr(what),
                        HasSubstr("needs NCCL 2.18.0 or newer")));
}

TEST(NcclVersionText, HasThreeParts) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21800), "2.18.0");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

TEST(LoadNccl, SaysThatThereIsNoFile) {
  EXPECT_THAT(
      LoadNccl("/nowhere/libnccl.so.2"),
      IsUnavailable("/nowhere/libnccl.so.2", "No such file or directory"));
}

TEST(LoadNccl, SaysThatAFileIsNoLibrary) {
  const std::string path = testing::TempDir() + "/no_library.so";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(
      "It is a text, which is long enough for the header of a library "
      "to have its place in it.",
      file);
  std::fclose(file);
  EXPECT_THAT(LoadNccl(path), IsUnavailable(path, "invalid ELF header"));
}

TEST(LoadNccl, NamesTheFunctionThatIsMissing) {
  EXPECT_THAT(LoadNccl(kWithoutFunctions),
              IsUnavailable(kWithoutFunctions,
                            "undefined symbol: ncclGetUniqueId, though it says "
                            "that it is NCCL 2.28.9"));
}

TEST(LoadNccl, RefusesWhatIsTooOldAndTakesItWhenItIsRenewed) {
  // A library is loaded again by another path.
  const std::string path = absl::StrCat("./", kFake);
  SetVersion(kFake, 21799);
  EXPECT_THAT(LoadNccl(path), IsUnavailable(path, "2.17.99"));
  SetVersion(kFake, 21800);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const NcclApi* const nccl, LoadNccl(path));
  EXPECT_EQ(nccl->version, 21800);
}

TEST(LoadNccl, LoadsOnceAndKeepsTheNamesToItself) {
  std::vector<const NcclApi*> loaded(4);
  std::vector<std::thread> threads;
  threads.reserve(loaded.size());
  for (const NcclApi*& each : loaded) {
    threads.emplace_back([&each] { each = LoadNccl(kFake).value_or(nullptr); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(std::set<const NcclApi*>(loaded.begin(), loaded.end()),
              SizeIs(1));
  ASSERT_NE(loaded[0], nullptr);
  EXPECT_NE(dlsym(RTLD_DEFAULT, "ncclGetVersion"),
            reinterpret_cast<void*>(loaded[0]->GetVersion));
}

// Returns the NCCL of this machine, if the loader or a toolkit has one.
absl::StatusOr<const NcclApi*> LoadReal() {
  absl::StatusOr<const NcclApi*> nccl = LoadNccl("");
  if (nccl.ok()) return nccl;
  return LoadNccl("/usr/local/cuda/lib64/libnccl.so.2");
}

TEST(RealNccl, HasAVersionAndMakesIds) {
  const absl::StatusOr<const NcclApi*> nccl = LoadReal();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  int version = 0;
  EXPECT_EQ((*nccl)->GetVersion(&version), NcclResult::kSuccess);
  EXPECT_EQ(version, (*nccl)->version);
  NcclUniqueId first;
  NcclUniqueId second;
  ASSERT_EQ((*nccl)->GetUniqueId(&first), NcclResult::kSuccess);
  ASSERT_EQ((*nccl)->GetUniqueId(&second), NcclResult::kSuccess);
  EXPECT_NE(absl::string_view(first.internal, sizeof(first.internal)),
            absl::string_view(second.internal, sizeof(second.internal)));
}

TEST(RealNccl, SaysThatThereIsNoGpu) {
  const absl::StatusOr<const NcclApi*> nccl = LoadReal();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  if (internal_gpu::LoadCuda("").ok()) GTEST_SKIP() << "this machine has a GPU";
  NcclUniqueId id;
  ASSERT_EQ((*nccl)->GetUniqueId(&id), NcclResult::kSuccess);
  NcclComm* comm = nullptr;
  NcclConfig config;
  const NcclResult result =
      (*nccl)->CommInitRankConfig(&comm, 1, id, 0, &config);
  EXPECT_EQ(result, NcclResult::kUnhandledCudaError);
  EXPECT_THAT((*nccl)->GetErrorString(result), HasSubstr("cuda"));
  EXPECT_THAT((*nccl)->GetLastError(nullptr), HasSubstr("CUDA driver"));
}

}  // namespace
}  // namespace lockstep::internal_collective
