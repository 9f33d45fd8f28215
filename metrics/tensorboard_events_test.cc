#include "lockstep/metrics/tensorboard_events.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace lockstep::internal_metrics {
namespace {

// The expected bytes were written by TensorBoard 2.21.
TEST(TensorboardEvents, HaveTheBytesOfTensorboards) {
  EXPECT_EQ(absl::BytesToHexString(EventFileBegin(1700000000.25)),
            "1800000000000000a37f4b22"
            "0900001040fc54d9411a0d627261696e2e4576656e743a32"
            "338d2fe9");
  EXPECT_EQ(absl::BytesToHexString(RestartEvent(1700000001.5, 300)),
            "100000000000000095fbfe18"
            "0900006040fc54d94110ac023a020801"
            "312d1a8d");
  EXPECT_EQ(absl::BytesToHexString(MetricsEvent(
                1700000001.5, 300, {{"loss", 0.25}, {"rate", -2}})),
            "2800000000000000ff70164a"
            "0900006040fc54d94110ac022a1a0a0b0a046c6f7373150000803e"
            "0a0b0a047261746515000000c0"
            "d1e45e36");
  EXPECT_EQ(absl::BytesToHexString(MetricsEvent(1700000001.5, 0, {{"a", 0}})),
            "1500000000000000d6ab6b2b"
            "0900006040fc54d9412a0a0a080a01611500000000"
            "2333e9a7");
}

}  // namespace
}  // namespace lockstep::internal_metrics
