// Reading samples from files allocates nothing.
#include <cstdint>
#include <filesystem>  // NOLINT: to make folders
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tfrecord_dataset.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

void ExpectNoAllocation(Dataset& dataset) {
  const auto buffer = *RowBuffer::Create(dataset.fields());
  ASSERT_GT(dataset.size(), 0);
  LOCKSTEP_ASSERT_OK(buffer->Read(dataset, 0));
  const int64_t before = Allocations();
  bool all_ok = true;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    all_ok = all_ok && buffer->Read(dataset, i).ok();
  }
  EXPECT_EQ(Allocations() - before, 0);
  EXPECT_TRUE(all_ok);
}

TEST(Allocation, NpyDataset) {
  NpyDatasetOptions options;
  options.files = {{"x", "testdata/npy/f4.npy"}, {"y", "testdata/npy/i8.npy"}};
  for (const NpyAccess access : {NpyAccess::kMapped, NpyAccess::kRead}) {
    options.access = access;
    ExpectNoAllocation(**NpyDataset::Create(options));
  }
  options.files = {{"x", "testdata/npy/fortran_4d.npy"}};
  options.access = NpyAccess::kMapped;
  ExpectNoAllocation(**NpyDataset::Create(options));
}

TEST(Allocation, TfRecordDataset) {
  TfRecordDatasetOptions options;
  options.files = {"testdata/tfrecord/first.tfrecord",
                   "testdata/tfrecord/second.tfrecord"};
  ExpectNoAllocation(**TfRecordDataset::Create(options));
}

TEST(Allocation, FileFolder) {
  FileFolderOptions options;
  options.path = testing::TempDir() + "/allocation_test";
  std::filesystem::create_directories(options.path + "/x");
  std::ofstream(options.path + "/x/a file with a long name") << "content";
  ExpectNoAllocation(**FileFolder::Create(options));
}

// A number in a JSON object is not among them.
TEST(Allocation, TarFiles) {
  TarFilesOptions options;
  options.files = {"testdata/tar/webdataset.tar"};
  options.fields = {{"image", {"jpg"}},
                    {"label", {"cls"}},
                    {"array", {"npy"}},
                    {"ragged", {"npy"}},
                    {"missing", {"none", "txt"}}};
  options.fields[3].shape = {-1, 3};
  options.fields[4].missing = TarMissing::kEmpty;
  options.key = true;
  for (const TarIndex index : {TarIndex::kRead, TarIndex::kIgnore}) {
    options.index = index;
    ExpectNoAllocation(**TarFiles::Create(options));
  }
}

}  // namespace
}  // namespace lockstep
