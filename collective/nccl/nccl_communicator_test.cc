#include "lockstep/collective/nccl/nccl_communicator.h"

#include <atomic>
#include <future>  // NOLINT: threads that are let go
#include <thread>  // NOLINT: a call and its abort

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/nccl/nccl_api.h"

namespace lockstep::internal_collective {

struct NcclComm {};

namespace {

constexpr auto kCancelled = absl::StatusCode::kCancelled;

// A fake NCCL with one communicator.
struct Nccl {
  NcclComm comm;
  std::promise<void> looks;  // set when CommGetAsyncError is called
  std::promise<void> seen;   // CommGetAsyncError waits for it
  std::atomic<bool> looking{false};
  std::promise<void> aborted;
  bool looking_when_aborted = false;
};
Nccl* nccl = nullptr;

NcclApi Api() {
  NcclApi api = {};
  api.CommInitRankConfig = [](NcclComm** comm, int, NcclUniqueId, int,
                              NcclConfig*) {
    *comm = &nccl->comm;
    return NcclResult::kSuccess;
  };
  api.CommGetAsyncError = [](NcclComm*, NcclResult* error) {
    *error = NcclResult::kSuccess;
    nccl->looking = true;
    nccl->looks.set_value();
    nccl->seen.get_future().wait();
    nccl->looking = false;
    return NcclResult::kSuccess;
  };
  api.CommAbort = [](NcclComm* comm) {
    EXPECT_EQ(comm, &nccl->comm);
    nccl->looking_when_aborted = nccl->looking;
    nccl->aborted.set_value();
    return NcclResult::kSuccess;
  };
  return api;
}

class NcclCommunicatorTest : public testing::Test {
 protected:
  NcclCommunicatorTest() {
    nccl = &nccl_;
    LOCKSTEP_EXPECT_OK(communicator_.Connect(1, NcclUniqueId(), 0));
  }

  Nccl nccl_;
  const NcclApi api_ = Api();
  std::atomic<bool> cancelled_{false};
  NcclCommunicator communicator_{api_, cancelled_};
};

// A launch hangs like this if the device has no room for it.
TEST_F(NcclCommunicatorTest, AbortEndsACallThatHangs) {
  std::promise<void> called;
  std::thread launching([&] {
    EXPECT_THAT(communicator_.Begin("launch",
                                    [&](NcclComm*) {
                                      called.set_value();
                                      nccl_.aborted.get_future().wait();
                                      return NcclResult::kSuccess;
                                    }),
                IsOkAndHolds(true));
  });
  called.get_future().wait();
  communicator_.Abort();
  EXPECT_TRUE(communicator_.aborted());
  launching.join();
  EXPECT_THAT(communicator_.Settled("launch"), StatusIs(kCancelled));
}

// The looking thread may have been kept from running for longer than an abort
// waits for a call.
TEST_F(NcclCommunicatorTest, AbortWaitsForALook) {
  std::thread looking([&] {
    EXPECT_THAT(communicator_.Settled("launch"), IsOkAndHolds(true));
  });
  nccl_.looks.get_future().wait();
  std::thread aborting([&] { communicator_.Abort(); });
  // An abort with a defect would have stopped waiting by now. If this thread is
  // slow, the test still passes.
  absl::SleepFor(absl::Milliseconds(1500));
  EXPECT_FALSE(communicator_.aborted());
  nccl_.seen.set_value();
  looking.join();
  aborting.join();
  EXPECT_TRUE(communicator_.aborted());
  EXPECT_FALSE(nccl_.looking_when_aborted);
}

}  // namespace
}  // namespace lockstep::internal_collective
