#include "lockstep/collective/rendezvous/spoke_join.h"

#include <algorithm>
#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <chrono>  // NOLINT: Asio speaks chrono
#include <map>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: Asio's errors
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/hub_door.h"
#include "lockstep/collective/rendezvous/slow_join.h"
#include "lockstep/collective/rendezvous/token.h"

namespace lockstep::internal_collective {
namespace {

using asio::ip::tcp;

constexpr absl::Duration kAttemptTakes = absl::Seconds(5);
constexpr absl::Duration kResolvingTakes = absl::Seconds(1);
// When this rank has joined, it waits so much longer than its deadline, since
// rank 0 says at its own deadline which ranks are missing.
constexpr absl::Duration kHubTakes = absl::Milliseconds(300);
// The most handlers that run after the deadline: a program that is not rank 0
// might write for ever.
constexpr int kMostAtTheEnd = 1 << 10;
constexpr absl::Duration kShortestPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(200);
constexpr absl::Duration kStoreSlice = absl::Milliseconds(500);
constexpr size_t kMostReasons = 8;

// One connection to a program that may be rank 0, until all ranks have joined.
// Thread-safety: use it on the thread that runs the io_context.
class Attempt {
 public:
  // Sets `progress` to rank 0's latest message about missing ranks. It stays
  // empty until the first one.
  Attempt(asio::io_context& io, const StarOptions& options, const Peer& self,
          SlowJoin& slow, std::string& progress, const tcp::endpoint& endpoint,
          absl::string_view nonce)
      : io_(io),
        options_(options),
        self_(self),
        slow_(slow),
        progress_(progress),
        endpoint_(endpoint),
        handshake_(Handshake::Role::kSpoke, options.token, nonce) {}
  ~Attempt() {
    if (connection_ == nullptr || outcome_ == Outcome::kJoined) return;
    connection_->Close();
  }

  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Returns OK if this rank has joined, and UNAVAILABLE if it should try again.
  // All other errors are final. RESOURCE_EXHAUSTED is final, too: this process
  // has no descriptor for a connection.
  absl::Status Run(SteadyTime deadline);

  JoinedSpoke Take() { return {std::move(peers_), connection_}; }

 private:
  enum class Outcome { kPending, kJoined, kFailed };
  enum class Step { kGreeting, kProof, kWelcome, kPeers };

  bool RunUntil(SteadyTime time);
  absl::Status Connect(SteadyTime limit);
  void OnInput(absl::string_view& input);
  absl::StatusOr<bool> Advance(absl::string_view& input);
  absl::Status TakeProof(Frame frame);
  absl::Status TakeAnswer(Frame frame);
  absl::Status TakeNews(const Frame& frame);

  asio::io_context& io_;
  const StarOptions& options_;
  const Peer& self_;
  SlowJoin& slow_;
  std::string& progress_;
  const tcp::endpoint endpoint_;
  Handshake handshake_;
  Step step_ = Step::kGreeting;
  std::shared_ptr<Connection> connection_;
  std::vector<Peer> peers_;
  Outcome outcome_ = Outcome::kPending;
  absl::Status why_;
};

// Runs one handler, and returns false if there was none to run until `time`. A
// handler that is ready runs even after `time`.
bool Attempt::RunUntil(SteadyTime time) {
  io_.restart();
  return io_.run_one_until(time) > 0 || io_.poll_one() > 0;
}

absl::Status Attempt::Connect(SteadyTime limit) {
  tcp::socket socket(io_);
  std::error_code error;
  socket.open(endpoint_.protocol(), error);
  if (error) return SystemError(error.value(), "can't open a socket");
  CloseOnExec(socket.native_handle());
  // The result is shared, since the handler may outlive an attempt that is
  // given up.
  const auto result = std::make_shared<std::optional<std::error_code>>();
  socket.async_connect(
      endpoint_, [result](const std::error_code& error) { *result = error; });
  while (!result->has_value()) {
    const bool over = SteadyNow() >= limit;
    const bool idle = !RunUntil(std::min(limit, slow_.next()));
    if (idle && over) return absl::UnavailableError("no answer");
    slow_.TellIfDue();
  }
  if (**result) return absl::UnavailableError((*result)->message());
  // On one host, a connection to a port on which no program listens may connect
  // to itself.
  if (socket.local_endpoint(error) == endpoint_) {
    return absl::UnavailableError("nobody listens there");
  }
  connection_ =
      std::make_shared<Connection>(std::move(socket), options_.silence);
  return absl::OkStatus();
}

absl::Status Attempt::Run(SteadyTime deadline) {
  const SteadyTime limit = std::min(deadline, After(kAttemptTakes));
  LOCKSTEP_RETURN_IF_ERROR(Connect(limit));
  connection_->SendRaw(handshake_.greeting());
  connection_->Read(
      {[this](absl::string_view& input) { OnInput(input); },
       [this](const std::string& how) {
         outcome_ = Outcome::kFailed;
         why_ = absl::UnavailableError(absl::StrCat(
             "the connection ended before all ranks were there: ", how));
       }});
  const absl::Duration beat = BeatOf(options_);
  RunningTime running(2 * beat);
  SteadyTime next_beat = After(beat);
  int at_the_end = 0;
  while (outcome_ == Outcome::kPending) {
    const SteadyTime end = step_ == Step::kPeers
                               ? deadline + absl::ToChronoNanoseconds(kHubTakes)
                               : limit;
    // Input that came in time is still handled after `end`, since this thread
    // may have been late.
    const bool over = SteadyNow() >= end;
    const bool idle = !RunUntil(std::min({end, next_beat, slow_.next()}));
    if (outcome_ != Outcome::kPending) break;
    slow_.TellIfDue();
    if (over && (idle || ++at_the_end == kMostAtTheEnd)) {
      return absl::UnavailableError("no answer");
    }
    const SteadyTime now = SteadyNow();
    if (now < next_beat) continue;
    next_beat = After(beat);
    const absl::Duration ran = running.Lap();
    if (step_ != Step::kPeers) continue;
    connection_->Send(FrameType::kBeat, "");
    if (connection_->CountSilence(ran) >= options_.silence) {
      return absl::UnavailableError("rank 0 fell silent");
    }
  }
  return why_;
}

void Attempt::OnInput(absl::string_view& input) {
  while (outcome_ == Outcome::kPending) {
    const absl::StatusOr<bool> more = Advance(input);
    if (!more.ok()) {
      outcome_ = Outcome::kFailed;
      why_ = more.status();
      return;
    }
    if (!*more) return;
  }
}

// Returns true if there may be more to take.
absl::StatusOr<bool> Attempt::Advance(absl::string_view& input) {
  if (step_ == Step::kGreeting) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool whole, handshake_.TakeGreeting(input));
    if (!whole) return false;
    step_ = Step::kProof;
    connection_->SendRaw(handshake_.Seal(FrameType::kProof, ""));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::optional<Frame> frame,
      TakeFrame(input,
                step_ == Step::kProof ? kLargestOfStranger : kLargestFrame));
  if (!frame.has_value()) return false;
  switch (step_) {
    case Step::kGreeting:
    case Step::kProof:
      LOCKSTEP_RETURN_IF_ERROR(TakeProof(*frame));
      break;
    case Step::kWelcome:
      LOCKSTEP_RETURN_IF_ERROR(TakeAnswer(*frame));
      break;
    case Step::kPeers:
      LOCKSTEP_RETURN_IF_ERROR(TakeNews(*frame));
      break;
  }
  return true;
}

absl::Status Attempt::TakeProof(Frame frame) {
  if (frame.type == FrameType::kStranger) {
    return absl::UnauthenticatedError(absl::StrCat(
        "this rank's token is another one than rank 0's; ", HowToMakeAToken()));
  }
  if (frame.type != FrameType::kProof || !handshake_.Open(frame)) {
    return absl::UnauthenticatedError(
        absl::StrCat("what listens there does not have this rank's token; ",
                     HowToMakeAToken()));
  }
  step_ = Step::kWelcome;
  connection_->SendRaw(handshake_.Seal(
      FrameType::kClaim, EncodeClaim({options_.size, options_.job, self_})));
  return absl::OkStatus();
}

absl::Status Attempt::TakeAnswer(Frame frame) {
  const bool genuine = handshake_.Open(frame);
  if (genuine && frame.type == FrameType::kWelcome) {
    step_ = Step::kPeers;
    progress_ = std::string(frame.payload);
    return absl::OkStatus();
  }
  if (genuine && frame.type == FrameType::kRefused) {
    return Annotate(DecodeReason(frame.payload),
                    absl::StrCat("rank 0 refused rank ", self_.rank));
  }
  return absl::UnauthenticatedError("its answer does not prove who it is");
}

absl::Status Attempt::TakeNews(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kBeat:
      progress_ = std::string(frame.payload);
      return absl::OkStatus();
    case FrameType::kPeer: {
      LOCKSTEP_ASSIGN_OR_RETURN(Peer peer, DecodePeer(frame.payload));
      if (peer.rank != static_cast<int>(peers_.size()) ||
          peer.rank >= options_.size) {
        break;
      }
      peers_.push_back(std::move(peer));
      return absl::OkStatus();
    }
    case FrameType::kComplete:
      if (static_cast<int>(peers_.size()) != options_.size) break;
      connection_->Pause();
      outcome_ = Outcome::kJoined;
      return absl::OkStatus();
    case FrameType::kFailed:
      return DecodeReason(frame.payload);
    default:
      break;
  }
  return absl::InternalError("rank 0 sent what does not belong there");
}

// Joins as a spoke: tries addresses until one attempt succeeds.
// Thread-safety: use it on one thread.
class SpokeJoin {
 public:
  SpokeJoin(asio::io_context& io, const StarOptions& options, const Peer& self,
            SteadyTime deadline, const Resolver& resolve)
      : io_(io),
        options_(options),
        self_(self),
        deadline_(deadline),
        resolve_(resolve) {}

  absl::StatusOr<JoinedSpoke> Run();

 private:
  // These return the same codes as Attempt::Run.
  absl::Status TryAddress();
  absl::Status TryEndpoint(const tcp::endpoint& endpoint, bool one_of_several);
  absl::StatusOr<std::string> FindAddress();
  std::string Where() const;
  std::string Failures() const;
  std::string Situation() const;
  absl::Status GiveUp() const;

  asio::io_context& io_;
  const StarOptions& options_;
  const Peer& self_;
  const SteadyTime deadline_;
  const Resolver& resolve_;
  SlowJoin slow_{options_, [this] { return Situation(); }};

  JoinedSpoke joined_;
  std::map<std::string, int> failures_;  // the count of each message
  std::string progress_;  // the last message of rank 0 about missing ranks
};

absl::StatusOr<std::string> SpokeJoin::FindAddress() {
  if (options_.store == nullptr) return options_.address;
  const absl::Duration left = absl::FromChrono(deadline_ - SteadyNow());
  absl::StatusOr<std::string> address = options_.store->Get(
      AddressKey(options_.job), absl::Now() + std::min(left, kStoreSlice));
  if (absl::IsDeadlineExceeded(address.status())) {
    return absl::UnavailableError(
        "rank 0 has not left its address in the store");
  }
  return address;
}

absl::Status SpokeJoin::TryAddress() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, FindAddress());
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) {
    // The address in a store may still be corrected.
    if (options_.store == nullptr) return parsed.status();
    return absl::UnavailableError(parsed.status().message());
  }
  // If a report is due soon, this waits for the name service until then.
  // Otherwise the report would say that the name service does not answer.
  const SteadyTime until = std::max(slow_.next(), After(kResolvingTakes));
  const absl::StatusOr<std::vector<std::string>> found =
      resolve_(parsed->host, std::min(deadline_, until));
  if (absl::IsResourceExhausted(found.status())) return found.status();
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  // Rank 0 listens on one of the addresses. Another program may listen on
  // another.
  absl::Status for_good;
  std::vector<std::string> not_there;
  for (const std::string& text : *found) {
    std::error_code error;
    const asio::ip::address ip = asio::ip::make_address(text, error);
    if (error) continue;
    absl::Status tried =
        TryEndpoint(tcp::endpoint(ip, parsed->port), found->size() > 1);
    if (tried.ok()) return tried;
    if (absl::IsUnavailable(tried)) {
      not_there.emplace_back(tried.message());
    } else if (for_good.ok()) {
      for_good = std::move(tried);
    }
  }
  if (!for_good.ok()) return for_good;
  return absl::UnavailableError(not_there.empty()
                                    ? "it has no address"
                                    : absl::StrJoin(not_there, ", and "));
}

absl::Status SpokeJoin::TryEndpoint(const tcp::endpoint& endpoint,
                                    bool one_of_several) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string nonce, RandomBytes(kMacBytes));
  progress_.clear();
  Attempt attempt(io_, options_, self_, slow_, progress_, endpoint, nonce);
  absl::Status status = attempt.Run(deadline_);
  if (status.ok()) {
    joined_ = attempt.Take();
    return status;
  }
  // If the hub is gone, another program may have its port now. And a hub that
  // has not started yet may use another address of the name.
  const bool not_ours = absl::IsInvalidArgument(status);
  const bool may_change = options_.store != nullptr || one_of_several;
  const absl::StatusCode code =
      not_ours ? (may_change ? absl::StatusCode::kUnavailable
                             : absl::StatusCode::kFailedPrecondition)
               : status.code();
  return InPlaceOf(status,
                   absl::Status(code, absl::StrCat(Format(endpoint), ": ",
                                                   status.message())));
}

absl::StatusOr<JoinedSpoke> SpokeJoin::Run() {
  absl::Duration pause = kShortestPause;
  while (true) {
    const absl::Status status = TryAddress();
    if (status.ok()) return std::move(joined_);
    if (!absl::IsUnavailable(status)) return status;
    if (failures_.size() < kMostReasons ||
        failures_.count(std::string(status.message())) > 0) {
      ++failures_[std::string(status.message())];
    }
    const absl::Duration left = absl::FromChrono(deadline_ - SteadyNow());
    if (left <= absl::ZeroDuration()) return GiveUp();
    slow_.TellIfDue();
    absl::SleepFor(std::min(pause, left));
    pause = std::min(2 * pause, kLongestPause);
  }
}

std::string SpokeJoin::Where() const {
  return options_.store == nullptr
             ? absl::StrCat("at '", absl::CHexEscape(options_.address), "'")
             : "by the store";
}

std::string SpokeJoin::Failures() const {
  return absl::StrJoin(
      failures_, "; ", [](std::string* out, const auto& failure) {
        absl::StrAppend(out, failure.first, " (", failure.second,
                        failure.second == 1 ? " time)" : " times)");
      });
}

std::string SpokeJoin::Situation() const {
  if (!progress_.empty()) {
    return absl::StrCat("it has reached rank 0 ", Where(),
                        ", which said last: ", progress_);
  }
  return absl::StrCat("it has not reached rank 0 ", Where(), ": ",
                      failures_.empty() ? "no answer yet" : Failures());
}

absl::Status SpokeJoin::GiveUp() const {
  const std::string where = Where();
  const std::string who = absl::StrCat("rank ", self_.rank, " of job '",
                                       absl::CHexEscape(options_.job), "'");
  const std::string time = absl::FormatDuration(options_.join_deadline);
  if (!progress_.empty()) {
    return Blaming(
        Blame::Cause::kAbsent,
        absl::DeadlineExceededError(absl::StrCat(
            who, " reached rank 0 ", where, ", but not all ranks came in ",
            time, "; rank 0 said last: ", progress_)));
  }
  Blame blame;
  blame.cause = Blame::Cause::kAbsent;
  blame.code = absl::StatusCode::kDeadlineExceeded;
  blame.ranks.emplace_back().rank = 0;
  return WithBlame(
      absl::DeadlineExceededError(absl::StrCat(
          who, " did not reach rank 0 ", where, " in ", time, ": ", Failures(),
          "; see that rank 0 runs, ",
          options_.store == nullptr ? "and that this is its address"
                                    : "with the same job and store")),
      blame);
}

}  // namespace

absl::StatusOr<JoinedSpoke> JoinAsSpoke(asio::io_context& io,
                                        const StarOptions& options,
                                        const Peer& self, SteadyTime deadline,
                                        const Resolver& resolve) {
  return SpokeJoin(io, options, self, deadline, resolve).Run();
}

}  // namespace lockstep::internal_collective
