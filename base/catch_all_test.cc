#include "lockstep/base/catch_all.h"

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>  // NOLINT: what the standard library throws

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

template <typename Exception>
absl::Status Throwing(const Exception& exception) {
  return CatchAll("the callback", [&]() -> absl::Status { throw exception; });
}

TEST(CatchAll, ReturnsWhatTheFunctionReturns) {
  LOCKSTEP_EXPECT_OK(CatchAll("it", [] { return absl::OkStatus(); }));
  EXPECT_THAT(CatchAll("it", [] { return absl::StatusOr<int>(7); }),
              IsOkAndHolds(7));
  EXPECT_THAT(CatchAll("it", [] { return absl::NotFoundError("gone"); }),
              StatusIs(absl::StatusCode::kNotFound, "gone"));
}

TEST(CatchAll, NamesWhatIsThrown) {
  EXPECT_THAT(Throwing(std::runtime_error("bad row")),
              StatusIs(absl::StatusCode::kUnknown,
                       "the callback threw std::runtime_error: bad row"));
  EXPECT_THAT(Throwing(42), StatusIs(absl::StatusCode::kUnknown,
                                     HasSubstr("that is no std::exception")));
}

TEST(CatchAll, AShortageIsResourceExhausted) {
  EXPECT_THAT(Throwing(std::bad_alloc()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the callback ran out of memory")));
  for (const int code : {EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    EXPECT_THAT(Throwing(std::system_error(code, std::generic_category())),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("the callback threw std::system_error")));
  }
  // Asio has its own error category for errors of the system.
  struct : std::error_category {
    const char* name() const noexcept override { return "asio.system"; }
    std::string message(int) const override { return "epoll"; }
  } asios;
  EXPECT_THAT(Throwing(std::system_error(EMFILE, asios)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("raise the limit of open files")));
  EXPECT_THAT(Throwing(std::system_error(EPERM, std::generic_category())),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("not permitted")));
}

}  // namespace
}  // namespace lockstep
