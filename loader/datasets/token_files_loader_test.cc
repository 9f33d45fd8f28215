// These tests read files of tokens through a Loader.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

// Writes two pairs of Megatron's, of 50 documents each. Token k of all is k.
std::vector<std::string> WriteFiles(const TokenFolder& folder) {
  int64_t token = 0;
  std::vector<std::string> paths;
  for (const std::string name : {"a", "b"}) {
    TokenDocuments documents;
    int64_t count = 0;
    for (int32_t i = 0; i < 50; ++i) {
      documents.push_back({i * 7 % 31, 2});
      count += i * 7 % 31 + 2;
    }
    folder.Write(name + ".idx", MegatronIndexBytes(documents, 4, 4));
    paths.push_back(folder.Write(
        name + ".bin", TokenBytes(TokensFrom<int32_t>(token, count))));
    token += count;
  }
  return paths;
}

std::vector<TokenFilesOptions> BothKinds(const TokenFolder& folder) {
  std::vector<TokenFilesOptions> kinds = {WindowsOf(WriteFiles(folder), 6),
                                          DocumentsOf(WriteFiles(folder))};
  for (TokenFilesOptions& options : kinds) {
    options.targets = true;
    options.document = true;
    options.position = true;
  }
  return kinds;
}

std::unique_ptr<Loader> Make(const TokenFilesOptions& options, TestJob job,
                             int workers) {
  auto dataset = TokenFiles::Create(options);
  EXPECT_THAT(dataset, IsOk());
  job.size = (*dataset)->size();
  LoaderOptions loader_options;
  loader_options.num_workers = workers;
  auto loader =
      Loader::Create(*std::move(dataset), TestSampler(job), loader_options);
  EXPECT_THAT(loader, IsOk());
  return *std::move(loader);
}

TEST(TokenFilesLoader, BatchesAreTheSameWithAnyWorkersAndAccess) {
  const TokenFolder folder;
  for (TokenFilesOptions options : BothKinds(folder)) {
    std::string expected;
    for (const FileAccess access : {FileAccess::kMapped, FileAccess::kRead}) {
      for (const int workers : {0, 1, 3}) {
        options.access = access;
        const std::string digest =
            DigestOfEpoch(*Make(options, TestJob(), workers), 1);
        if (expected.empty()) expected = digest;
        EXPECT_EQ(digest, expected) << workers;
      }
    }
  }
}

// Returns the tokens and targets of a row, and its document and position.
std::string RowOf(const Batch& batch, int64_t row) {
  const auto tokens = batch.Row<int32_t>("tokens", row);
  const auto targets = batch.Row<int32_t>("targets", row);
  const auto document = batch.Row<int64_t>("document", row);
  const auto position = batch.Row<int64_t>("position", row);
  EXPECT_THAT(tokens, IsOk());
  EXPECT_THAT(targets, IsOk());
  EXPECT_THAT(document, IsOk());
  EXPECT_THAT(position, IsOk());
  for (size_t i = 0; i < tokens->size(); ++i) {
    EXPECT_EQ((*tokens)[i], (*tokens)[0] + static_cast<int32_t>(i));
    EXPECT_EQ((*targets)[i], (*tokens)[i] + 1);
  }
  return std::to_string((*tokens)[0]) + "+" + std::to_string(tokens->size()) +
         " " + std::to_string((*document)[0]) + " " +
         std::to_string((*position)[0]);
}

// Three ranks begin an epoch, and two go on from their state.
TEST(TokenFilesLoader, AnEpochGoesOnOnAnotherNumberOfRanks) {
  const TokenFolder folder;
  for (const TokenFilesOptions& options : BothKinds(folder)) {
    TestJob job;
    job.tail = Tail::kUneven;
    std::vector<std::string> whole;
    const auto alone = Make(options, job, 0);
    for (absl::StatusOr<Batch>& batch : alone->Epoch(0)) {
      LOCKSTEP_ASSERT_OK(batch);
      for (int64_t row = 0; row < batch->valid(); ++row) {
        whole.push_back(RowOf(*batch, row));
      }
    }
    EXPECT_GT(whole.size(), 90u);
    std::vector<std::string> rows(whole.size());
    const auto take = [&](const Batch& batch) {
      for (int64_t row = 0; row < batch.valid(); ++row) {
        std::string& place = rows[batch.positions()[row]];
        EXPECT_EQ(place, "");
        place = RowOf(batch, row);
      }
    };
    std::string state;
    job.world = 3;
    job.batch_size = 4;
    for (job.rank = 0; job.rank < job.world; ++job.rank) {
      const auto loader = Make(options, job, static_cast<int>(job.rank));
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
      for (int step = 0; step < 3; ++step) {
        Batch batch;
        ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
        take(batch);
      }
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(state, loader->SaveState());
    }
    job.world = 2;
    job.batch_size = 5;
    for (job.rank = 0; job.rank < job.world; ++job.rank) {
      const auto loader = Make(options, job, 3 - static_cast<int>(job.rank));
      LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
      Batch batch;
      while (true) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const bool more, loader->Next(batch));
        if (!more) break;
        take(batch);
      }
    }
    EXPECT_EQ(rows, whole);
  }
}

}  // namespace
}  // namespace lockstep
