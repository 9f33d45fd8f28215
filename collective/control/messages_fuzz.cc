// Reads the input as a message of each type. A message that is accepted has the
// same bytes when it is encoded and decoded again, and takes no more memory
// than its bytes explain.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/control/messages.h"

namespace lockstep::internal_collective {
namespace {

template <typename M>
void Check(absl::string_view bytes) {
  const std::optional<M> message = Decode<M>(bytes);
  if (!message.has_value()) return;
  ++fuzz_accepts;
  // Long texts are cut off, so there may be fewer bytes now.
  const std::string encoded = Encode(*message);
  LOCKSTEP_CHECK(TypeOf(encoded) == M::kType);
  const std::optional<M> again = Decode<M>(encoded);
  LOCKSTEP_CHECK(again.has_value());
  LOCKSTEP_CHECK(Encode(*again) == encoded);
}

template <typename... M>
void CheckAll(absl::string_view bytes) {
  (Check<M>(bytes), ...);
}

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::internal_collective;  // NOLINT: for all messages
  if (size == 0) return 0;
  CheckAll<OpenMessage, FailMessage, HearsayMessage, EchoedMessage,
           LeaveMessage, DetachMessage, LateMessage, AnswerMessage,
           MarksMessage, SetMessage, GetMessage, ClosedMessage, OpenedMessage,
           FailedMessage, LostMessage, EchoMessage, LeftMessage, AskMessage,
           SlowMessage, ValueMessage>(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
