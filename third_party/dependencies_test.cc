// Each dependency compiles, links and runs under the label by which the tree
// and its consumers know it. When this fails, a shim or a label flag is wrong.
#include <openssl/evp.h>
#include <tbb/task_arena.h>

#include <Eigen/Core>
#include <array>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <unsupported/Eigen/CXX11/Tensor>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmark/benchmark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#define TOML_EXCEPTIONS 0
#include "toml.hpp"

namespace {

TEST(Dependencies, Abseil) {
  absl::StatusOr<int> missing = absl::NotFoundError(absl::StrCat("no ", 7));
  EXPECT_EQ(missing.status().ToString(), "NOT_FOUND: no 7");
  EXPECT_EQ(absl::StrFormat("%05.1f", 2.25), "002.2");
}

TEST(Dependencies, Asio) {
  asio::io_context context;
  int ran = 0;
  asio::post(context, [&ran] { ++ran; });
  EXPECT_EQ(context.run(), 1u);
  EXPECT_EQ(ran, 1);
}

TEST(Dependencies, Benchmark) {
  char program[] = "program";
  char* arguments[] = {program};
  EXPECT_FALSE(benchmark::ReportUnrecognizedArguments(1, arguments));
}

TEST(Dependencies, Crypto) {
  std::array<unsigned char, 32> digest;
  unsigned int size = 0;
  ASSERT_EQ(EVP_Digest("", 0, digest.data(), &size, EVP_sha256(), nullptr), 1);
  EXPECT_EQ(size, 32u);
  EXPECT_EQ(digest[0], 0xe3);
  EXPECT_EQ(digest[31], 0x55);
}

TEST(Dependencies, Eigen) {
  const Eigen::Vector3f v(1, 2, 3);
  EXPECT_EQ(v.dot(v), 14.0f);
  Eigen::Tensor<float, 3> tensor(2, 3, 4);
  tensor.setConstant(1.0f);
  EXPECT_EQ(tensor.size(), 24);
}

TEST(Dependencies, GoogleMock) {
  EXPECT_THAT((std::array<int, 2>{1, 2}), testing::ElementsAre(1, 2));
}

TEST(Dependencies, Tbb) {
  tbb::task_arena arena(2);
  EXPECT_EQ(
      arena.execute([] { return tbb::this_task_arena::max_concurrency(); }), 2);
}

TEST(Dependencies, Toml) {
  const toml::parse_result table = toml::parse("x = 7");
  ASSERT_TRUE(table);
  EXPECT_EQ(table["x"].value<int>(), 7);
}

}  // namespace
