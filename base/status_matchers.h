// GoogleTest matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(DoIt(), IsOk());
//   EXPECT_THAT(Parse("7"), IsOkAndHolds(7));
//   EXPECT_THAT(Parse("x"), StatusIs(absl::StatusCode::kInvalidArgument,
//                                    HasSubstr("'x' is not a number")));
//   LOCKSTEP_ASSERT_OK_AND_ASSIGN(Plan plan, MakePlan("size:25"));
#ifndef LOCKSTEP_BASE_STATUS_MATCHERS_H_
#define LOCKSTEP_BASE_STATUS_MATCHERS_H_

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace internal_base {

inline const absl::Status& GetStatus(const absl::Status& status) {
  return status;
}

template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

// Matches the value of a StatusOr<T> against a matcher for T.
// Thread-safety: immutable.
template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename StatusOr>
  operator testing::Matcher<StatusOr>() const {  // NOLINT: implicit by design
    return testing::MakeMatcher(new Impl<StatusOr>(inner_));
  }

 private:
  template <typename StatusOr>
  class Impl : public testing::MatcherInterface<StatusOr> {
   public:
    using Value = typename std::decay_t<StatusOr>::value_type;

    explicit Impl(const Inner& inner)
        : inner_(testing::SafeMatcherCast<const Value&>(inner)) {}

    void DescribeTo(std::ostream* os) const override {
      *os << "is OK and has a value that ";
      inner_.DescribeTo(os);
    }

    bool MatchAndExplain(
        StatusOr actual,
        testing::MatchResultListener* listener) const override {
      if (!actual.ok()) {
        *listener << "which has status " << actual.status().ToString();
        return false;
      }
      return inner_.MatchAndExplain(*actual, listener);
    }

   private:
    const testing::Matcher<const Value&> inner_;
  };

  const Inner inner_;
};

}  // namespace internal_base

// Matches a Status that is OK, or a StatusOr that holds a value.
MATCHER(IsOk, negation ? "isn't OK" : "is OK") {
  const absl::Status& status = internal_base::GetStatus(arg);
  *result_listener << "which has status " << status.ToString();
  return status.ok();
}

// Matches a StatusOr that is OK and whose value equals or matches `inner`.
template <typename Inner>
internal_base::IsOkAndHoldsMatcher<std::decay_t<Inner>> IsOkAndHolds(
    Inner&& inner) {
  return internal_base::IsOkAndHoldsMatcher<std::decay_t<Inner>>(
      std::forward<Inner>(inner));
}

// Matches a Status or a StatusOr with `code`.
MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  const absl::Status& status = internal_base::GetStatus(arg);
  *result_listener << "which has status " << status.ToString();
  return status.code() == code;
}

// Matches a Status or a StatusOr with `code` and a message that equals or
// matches `message`.
MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) +
               " and a message that " +
               testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = internal_base::GetStatus(arg);
  *result_listener << "which has status " << status.ToString();
  return status.code() == code &&
         testing::ExplainMatchResult(message, std::string(status.message()),
                                     result_listener);
}

}  // namespace lockstep

#define LOCKSTEP_EXPECT_OK(expression) \
  EXPECT_THAT(expression, ::lockstep::IsOk())
#define LOCKSTEP_ASSERT_OK(expression) \
  ASSERT_THAT(expression, ::lockstep::IsOk())

// Moves the value of a StatusOr into `target`, which may declare a variable. If
// there is none, the test fails and ends.
#define LOCKSTEP_ASSERT_OK_AND_ASSIGN(target, expression) \
  LOCKSTEP_ASSERT_OK_AND_ASSIGN_IMPL_(                    \
      LOCKSTEP_CONCAT_(lockstep_status_or_, __LINE__), target, expression)

#define LOCKSTEP_ASSERT_OK_AND_ASSIGN_IMPL_(result, target, expression) \
  auto result = (expression);                                           \
  ASSERT_THAT(result, ::lockstep::IsOk());                              \
  target = *std::move(result)

#endif  // LOCKSTEP_BASE_STATUS_MATCHERS_H_
