// The messages of the control protocol, as structs and as bytes;
// docs/formats.md has them as a table.
//
//   star.Send(0, Encode(FailMessage{"world", absl::AbortedError("why")}));
//   ...
//   if (TypeOf(bytes) == Message::kFail) {
//     const std::optional<FailMessage> fail = Decode<FailMessage>(bytes);
//
// A message's bytes are one byte, its type, and then its fields in the order in
// which Fields() lists them. The C++ type of a field decides how it is written.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_MESSAGES_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {

// The most bytes of a text that goes to other ranks, and of the words for one
// operation or the name of a backend. Encode cuts longer ones off there.
inline constexpr size_t kLongestText = 16384;
inline constexpr size_t kLongestPart = 1024;

// Type 17 goes from rank 0 to itself, and so is not on the wire.
enum class Message : uint8_t {
  kOpen = 1,
  kOpened = 2,
  kFail = 3,
  kFailed = 4,
  kLeave = 5,
  kLeft = 6,
  kDetach = 7,
  kLate = 8,
  kAsk = 9,
  kAnswer = 10,
  kSlow = 11,
  kSet = 12,
  kGet = 13,
  kValue = 14,
  kMarks = 15,
  kClosed = 17,
  kLost = 18,
  kHearsay = 19,
  kEcho = 20,
  kEchoed = 21,
};

// Returns the type of a message, which need not be one of those above.
// Requires: `message` is not empty.
inline Message TypeOf(absl::string_view message) {
  return static_cast<Message>(message[0]);
}

// ---- To rank 0. `group` is always a group's key.

// A rank joins a group. Rank 0 answers with kOpened or kFailed.
struct OpenMessage {
  static constexpr Message kType = Message::kOpen;
  GroupInfo info;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.info);
  }
};

// A group has failed, or, if `after` is not 0, fails after that collective. If
// `group` is empty, the rank aborts the job.
struct FailMessage {
  static constexpr Message kType = Message::kFail;
  std::string group;
  absl::Status why;
  uint64_t after = 0;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.why, m.after);
  }
};

// A rank can't go on, and may not know the reason.
struct HearsayMessage {
  static constexpr Message kType = Message::kHearsay;
  std::string group;
  absl::Status why;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.why);
  }
};

// The answer to kEcho. It comes behind all that the rank had sent before.
struct EchoedMessage {
  static constexpr Message kType = Message::kEchoed;
  std::string group;
  int round = 0;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.round);
  }
};

// A rank leaves a group.
struct LeaveMessage {
  static constexpr Message kType = Message::kLeave;
  std::string group;
  LaneCounts counts;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.counts);
  }
};

// A rank has nothing to do with a group any more.
struct DetachMessage {
  static constexpr Message kType = Message::kDetach;
  std::string group;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group);
  }
};

// An operation waits too long.
struct LateMessage {
  static constexpr Message kType = Message::kLate;
  Late late;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.late);
  }
};

// The answer to kAsk.
struct AnswerMessage {
  static constexpr Message kType = Message::kAnswer;
  TurnId turn;
  Position position;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.turn, m.position);
  }
};

// Digests of what a rank has issued.
struct MarksMessage {
  static constexpr Message kType = Message::kMarks;
  std::string group;
  std::vector<Mark> marks;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.marks);
  }
};

// A rank leaves a value in the group's store.
struct SetMessage {
  static constexpr Message kType = Message::kSet;
  std::string group;
  std::string name;
  std::string value;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.name, m.value);
  }
};

// A rank wants a value. Rank 0 answers with kValue, once it is there.
struct GetMessage {
  static constexpr Message kType = Message::kGet;
  std::string group;
  std::string name;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.name);
  }
};

// Rank 0 leaves the job. It sends this to itself.
struct ClosedMessage {
  static constexpr Message kType = Message::kClosed;

  template <typename M>
  static auto Fields(M&) {
    return std::tie();
  }
};

// ---- From rank 0.

// The rank has joined the group.
struct OpenedMessage {
  static constexpr Message kType = Message::kOpened;
  std::string group;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group);
  }
};

// The group has failed, as in FailMessage.
struct FailedMessage {
  static constexpr Message kType = Message::kFailed;
  std::string group;
  absl::Status why;
  uint64_t after = 0;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.why, m.after);
  }
};

// A rank of the job is the first that was lost.
struct LostMessage {
  static constexpr Message kType = Message::kLost;
  absl::Status why;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.why);
  }
};

// The rank is to answer with kEchoed at once.
struct EchoMessage {
  static constexpr Message kType = Message::kEcho;
  std::string group;
  int round = 0;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.round);
  }
};

// Rank `rank` of the group has left it.
struct LeftMessage {
  static constexpr Message kType = Message::kLeft;
  std::string group;
  int rank = 0;
  LaneCounts counts;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.rank, m.counts);
  }
};

// The rank is to say where it is, by kAnswer.
struct AskMessage {
  static constexpr Message kType = Message::kAsk;
  TurnId turn;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.turn);
  }
};

// An operation is slow. The sender cuts `what` at kLongestText.
struct SlowMessage {
  static constexpr Message kType = Message::kSlow;
  std::string group;
  std::string what;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.what);
  }
};

// A value of the group's store that the rank wanted.
struct ValueMessage {
  static constexpr Message kType = Message::kValue;
  std::string group;
  std::string name;
  std::string value;

  template <typename M>
  static auto Fields(M& m) {
    return std::tie(m.group, m.name, m.value);
  }
};

// ---- Implementation details

// Writes fields behind a message's type.
// Thread-safety: thread-compatible.
class FieldWriter {
 public:
  explicit FieldWriter(Message type)
      : wire_(std::string(1, static_cast<char>(type))) {}

  // Writes a number, or the fields of a struct.
  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      wire_.Number(static_cast<uint64_t>(value));
    } else {
      std::apply([this](const auto&... field) { (Put(field), ...); },
                 T::Fields(value));
    }
  }
  template <typename Text>
  void Put(const Shortened<Text>& part) {
    wire_.Text(absl::string_view(part.text).substr(0, kLongestPart));
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(values.size());
    for (const T& value : values) Put(value);
  }
  void Put(const LaneCounts& counts);
  void Put(const std::string& text) { wire_.Text(text); }
  void Put(absl::Duration time) { Put(absl::ToInt64Nanoseconds(time)); }
  void Put(const absl::Status& status);

  std::string Take() { return wire_.Take(); }

 private:
  WireWriter wire_;
};

// Reads fields back. The sender has proved that it belongs to the job; still,
// nothing is read beyond the end. Behind a field that is cut off all fields are
// 0 and empty, and good() is false.
// Thread-safety: thread-compatible.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view fields) : wire_(fields) {}

  bool good() const { return wire_.good(); }

  template <typename T>
  void Get(T& value) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(wire_.Number(UINT64_MAX));
    } else {
      std::apply([this](auto&&... field) { (Get(field), ...); },
                 T::Fields(value));
    }
  }
  template <typename Text>
  void Get(Shortened<Text>& part) {
    Get(part.text);
  }
  template <typename T>
  void Get(std::vector<T>& values) {
    values.resize(wire_.Count(LeastOf<T>()));
    for (T& value : values) Get(value);
  }
  void Get(LaneCounts& counts);
  void Get(std::string& text) { text = wire_.Text(SIZE_MAX); }
  void Get(absl::Duration& time);
  void Get(absl::Status& status);

  // Returns a number of bytes that a number or a struct takes at least.
  template <typename T>
  static constexpr size_t LeastOf() {
    if constexpr (std::is_integral_v<T>) {
      return sizeof(uint64_t);
    } else {
      using Fields = decltype(T::Fields(std::declval<T&>()));
      return std::tuple_size_v<Fields> * sizeof(uint64_t);
    }
  }

 private:
  WireReader wire_;
};

// Returns the message's bytes.
template <typename M>
std::string Encode(const M& message) {
  FieldWriter out(M::kType);
  out.Put(message);
  return out.Take();
}

// Returns the message of these bytes, of which the first is its type, or
// nothing if they are cut off. Bytes behind the last field are ignored.
template <typename M>
std::optional<M> Decode(absl::string_view bytes) {
  M message;
  FieldReader in(bytes.substr(1));
  in.Get(message);
  if (!in.good()) return std::nullopt;
  return message;
}

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_MESSAGES_H_
