#include "lockstep/tools/cli/order_command.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

OrderCommand Sized(int64_t size) {
  OrderCommand command;
  command.samples.size = size;
  return command;
}

std::string Order(const OrderCommand& command) {
  const TestHost host;
  return Printed(
      [&](std::ostream& out) { return RunOrder(host, command, out); });
}

TEST(Order, IndicesAndDigest) {
  OrderCommand command = Sized(10);
  command.first = 2;
  command.count = 3;
  EXPECT_EQ(Order(command), "7\n5\n3\n");
  command.format = "csv";
  EXPECT_EQ(Order(command), "position,index\n2,7\n3,5\n4,3\n");
  command.format = "json";
  EXPECT_EQ(Order(command), "[7, 5, 3]\n");
  command.format = "text";
  command.count = std::nullopt;
  command.first = 9;
  EXPECT_EQ(Order(command), "2\n");
  command.first = 10;
  EXPECT_EQ(Order(command), "");
  command.count = 0;
  EXPECT_EQ(Order(command), "");
  command = Sized(0);
  command.digest = true;
  EXPECT_EQ(Order(command),
            "da39a3ee5e6b4b0d3255bfef95601890afd80709\n");  // SHA-1 of nothing
  command = Sized(1000);
  command.digest = true;
  const std::string digest =  // as torch.randperm gives it
      "a6162bfdb763b2b6707172d327878e6a34ab3411";
  EXPECT_EQ(Order(command), digest + "\n");
  command.format = "csv";
  EXPECT_EQ(Order(command), "size,sha1\n1000," + digest + "\n");
  command.format = "json";
  EXPECT_EQ(Order(command),
            "[\n  {\"size\": 1000, \"sha1\": \"" + digest + "\"}\n]\n");
}

TEST(Order, OfAJob) {
  OrderCommand command;
  command.samples.job.config =
      WriteText("order.toml",
                "[loader.test]\n"
                "dataset = {name = \"words\", size = 3}\n"
                "sampler = {name = \"sequential\", global_batch_size = 1}\n");
  EXPECT_EQ(Order(command), "0\n1\n2\n");
}

TEST(Order, SaysWhatIsWrong) {
  const auto expect = [](const OrderCommand& command,
                         const std::string& message) {
    const TestHost host;
    EXPECT_THAT(
        ErrorOf(
            [&](std::ostream& out) { return RunOrder(host, command, out); }),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  OrderCommand command = Sized(10);
  command.first = 11;
  expect(command, "--first should be from 0 to 10");
  command.first = -1;
  expect(command, "--first should be from 0 to 10");
  command.first = 4;
  command.count = 7;
  expect(command,
         "--count should be from 0 to 6, what is left of the order from "
         "position 4 on, but it is 7");
  command.count = -1;
  expect(command, "--count should be from 0 to 6");
  command.first = 0;
  command.count = 20;
  expect(command,
         "--count should be from 0 to 10, the size of the order, but it is 20");
  command.digest = true;
  expect(command, "leave out --first and --count");
}

}  // namespace
}  // namespace lockstep
