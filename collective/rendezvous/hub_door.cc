#include "lockstep/collective/rendezvous/hub_door.h"

#include <sys/resource.h>

#include <algorithm>
#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <cerrno>
#include <chrono>  // NOLINT: Asio speaks chrono
#include <string>
#include <system_error>  // NOLINT: Asio's errors
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/token.h"

namespace lockstep::internal_collective {
namespace {

using asio::ip::tcp;

// The most time that a stop of this process counts against a client.
constexpr absl::Duration kMostOfAStop = absl::Seconds(1);
// The limits for clients that have not yet proved that they have the token.
// Before the job is complete, they get at most this share of the process's
// descriptors; afterwards, at most kMostAfterAll.
constexpr size_t kMostHalfOpen = 256;
constexpr size_t kShareOfDescriptors = 8;
constexpr size_t kMostAfterAll = 8;
constexpr size_t kMostRefusals = 16;
constexpr size_t kMostListed = 16;
// The most handlers that run after the deadline, so that strangers can't keep
// rank 0 busy.
constexpr int kMostAtTheEnd = 1 << 16;
constexpr absl::Duration kAcceptAgainAfter = absl::Milliseconds(100);
constexpr absl::Duration kResolveAgainAfter = absl::Milliseconds(200);
// The time for sending the news that the rendezvous has failed.
constexpr absl::Duration kFarewellTakes = absl::Milliseconds(300);

// Returns, for example, "ranks 1, 3-5".
std::string ListRanks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (parts.size() == kMostListed) {
      parts.push_back(absl::StrCat("and ", ranks.size() - i, " more"));
      break;
    }
    parts.push_back(end - i == 1 ? absl::StrCat(ranks[i])
                                 : absl::StrCat(ranks[i], "-", ranks[end - 1]));
    i = end;
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(parts, ", "));
}

size_t MostHalfOpen() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostAfterAll;
  return std::clamp<rlim_t>(limit.rlim_cur / kShareOfDescriptors, kMostAfterAll,
                            kMostHalfOpen);
}

}  // namespace

struct HubDoor::Client {
  enum class Step { kGreeting, kProof, kClaim, kRefused };

  std::shared_ptr<Connection> connection;
  Handshake handshake;
  std::string from;
  asio::steady_timer limit;
  Step step = Step::kGreeting;
};

std::string AddressKey(absl::string_view job) {
  return absl::StrCat("lockstep/", job, "/address");
}

absl::Duration BeatOf(const StarOptions& options) {
  return std::min(options.beat, options.silence / 4);
}

HubDoor::HubDoor(asio::io_context& io, const StarOptions& options,
                 const Peer& self)
    : io_(io),
      options_(options),
      acceptor_(io),
      accept_again_(io),
      most_half_open_(MostHalfOpen()),
      peers_(options.size),
      links_(options.size) {
  peers_[0] = self;
}

HubDoor::~HubDoor() = default;

absl::StatusOr<std::unique_ptr<HubDoor>> HubDoor::Open(
    asio::io_context& io, const StarOptions& options, const Peer& self,
    SteadyTime deadline) {
  std::unique_ptr<HubDoor> door(new HubDoor(io, options, self));
  if (options.store == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort address,
                              ParseHostPort(options.address));
    LOCKSTEP_RETURN_IF_ERROR(
        door->Listen(address.host, address.port, deadline));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(door->Listen(options.listen_host, 0, deadline));
    std::error_code error;
    const std::string address = Format(door->acceptor_.local_endpoint(error));
    LOCKSTEP_RETURN_IF_ERROR(
        options.store->Set(AddressKey(options.job), address));
  }
  door->Accept();
  return door;
}

// Resolves again until the deadline: a cluster may publish the name of a host
// only after the host has started.
absl::StatusOr<std::vector<std::string>> HubDoor::ResolveInTime(
    const std::string& host, SteadyTime deadline) {
  while (true) {
    absl::StatusOr<std::vector<std::string>> found =
        Resolve(host, std::min(deadline, slow_.next()));
    const bool again = absl::IsUnavailable(found.status());
    if (!again && !absl::IsDeadlineExceeded(found.status())) return found;
    const SteadyTime now = SteadyNow();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank 0 can't listen: ", found.status().message(),
                       "; give a name or an address of its host"));
    }
    slow_.TellIfDue();
    if (!again) continue;
    absl::SleepFor(
        std::min(absl::FromChrono(std::min(deadline, slow_.next()) - now),
                 kResolveAgainAfter));
  }
}

absl::Status HubDoor::Listen(const std::string& host, uint16_t port,
                             SteadyTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                            ResolveInTime(host, deadline));
  absl::Status status = absl::UnavailableError(
      absl::StrCat("the name '", absl::CHexEscape(host), "' has no address"));
  for (const std::string& text : found) {
    std::error_code error;
    const asio::ip::address address = asio::ip::make_address(text, error);
    if (error) continue;
    if (address.is_unspecified()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank 0 listens on one address alone, and '", host,
          "' stands for all: name the host or the address by which the other "
          "ranks reach it"));
    }
    if (options_.token.empty() && !address.is_loopback()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "without a token rank 0 listens on loopback alone, for ranks of its "
          "own host, and '",
          host, "' is ", text, "; ", HowToMakeAToken()));
    }
    const tcp::endpoint endpoint(address, port);
    acceptor_.close(error);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) {
      CloseOnExec(acceptor_.native_handle());
      acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    }
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (!error) {
      closed_in_forks_.emplace(acceptor_.native_handle());
      return absl::OkStatus();
    }
    const std::string where = Format(endpoint);
    if (error == asio::error::address_in_use) {
      status = absl::AlreadyExistsError(absl::StrCat(
          "rank 0 can't listen on ", where,
          ": another process listens there, or another World of this one; "
          "choose another port for the job "
          "(LOCKSTEP_PORT, MASTER_PORT), or end that process"));
    } else if (error.value() == EADDRNOTAVAIL) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "rank 0 can't listen on ", where,
          ", which is no address of this "
          "host: the address should be that of the host on which rank 0 runs"));
    } else {
      status = SystemError(error.value(),
                           absl::StrCat("rank 0 can't listen on ", where));
    }
  }
  return status;
}

std::string HubDoor::listen_host() const {
  std::error_code error;
  return acceptor_.local_endpoint(error).address().to_string();
}

void HubDoor::Accept() {
  acceptor_.async_accept(
      [this](const std::error_code& error, tcp::socket socket) {
        if (error == asio::error::operation_aborted) return;
        if (error) {
          // There may be no descriptor left, for example. A new attempt at once
          // would fail, too.
          if (cant_accept_ == 0) cant_accept_since_ = SteadyNow();
          cant_accept_ = error.value();
          accept_again_.expires_at(After(kAcceptAgainAfter));
          accept_again_.async_wait([this](const std::error_code& cancelled) {
            if (!cancelled) Accept();
          });
          return;
        }
        cant_accept_ = 0;
        CloseOnExec(socket.native_handle());
        if (MakeRoom(1)) Greet(std::move(socket));
        Accept();
      });
}

// ---- The handshake.

// A rank proves soon that it has the token. So the oldest clients are closed
// first, and strangers can't keep ranks out by having connected before them.
bool HubDoor::MakeRoom(size_t places) {
  auto client = clients_.begin();
  while (clients_.size() + places > most_half_open_) {
    while (client != clients_.end() &&
           client->second->step == Client::Step::kClaim) {
      ++client;
    }
    const bool none = client == clients_.end();
    if (none || client->second->step != Client::Step::kRefused) ++turned_away_;
    if (none) return false;
    client->second->connection->Close();
    client = clients_.erase(client);
  }
  return true;
}

void HubDoor::Greet(tcp::socket socket) {
  const absl::StatusOr<std::string> nonce = RandomBytes(kMacBytes);
  if (!nonce.ok()) return;
  std::error_code error;
  std::string from = Format(socket.remote_endpoint(error));
  const uint64_t id = next_client_++;
  auto& client = clients_[id];
  client = std::make_unique<Client>(
      Client{std::make_shared<Connection>(std::move(socket), options_.silence),
             Handshake(Handshake::Role::kHub, options_.token, *nonce),
             std::move(from), asio::steady_timer(io_)});
  GiveTime(id, options_.handshake);
  client->connection->SendRaw(client->handshake.greeting());
  client->connection->Read(
      {[this, id](absl::string_view& input) { OnInput(id, input); },
       [this, id](const std::string&) { Drop(id); }});
}

void HubDoor::GiveTime(uint64_t id, absl::Duration left) {
  asio::steady_timer& limit = clients_.at(id)->limit;
  limit.expires_at(After(std::min(left, kMostOfAStop)));
  left -= kMostOfAStop;
  limit.async_wait([this, id, left](const std::error_code&) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    if (left > absl::ZeroDuration()) return GiveTime(id, left);
    Record(*found->second,
           absl::StrCat("it did not say who it is within ",
                        absl::FormatDuration(options_.handshake)));
    Drop(id);
  });
}

void HubDoor::OnInput(uint64_t id, absl::string_view& input) {
  Client& client = *clients_.at(id);
  Claim claim;
  const absl::StatusOr<bool> whole = Advance(client, input, claim);
  if (!whole.ok()) return Refuse(client, whole.status());
  if (!*whole) return;
  const absl::Status good = Check(client, claim);
  if (!good.ok()) {
    // The claim of another version may have another form.
    if (client.handshake.version() == kProtocolVersion) {
      client.from = absl::StrCat(client.from, ", ", claim.peer.Describe());
    }
    return Refuse(client, good);
  }
  Admit(id, claim);
}

// Returns true when the claim is complete.
absl::StatusOr<bool> HubDoor::Advance(Client& client, absl::string_view& input,
                                      Claim& claim) {
  if (client.step == Client::Step::kRefused) {
    input = {};
    return false;
  }
  if (client.step == Client::Step::kGreeting) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool whole,
                              client.handshake.TakeGreeting(input));
    if (!whole) return false;
    client.step = Client::Step::kProof;
  }
  if (client.step == Client::Step::kProof) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Frame> frame,
                              TakeFrame(input, kLargestOfStranger));
    if (!frame.has_value()) return false;
    if (frame->type != FrameType::kProof || !client.handshake.Open(*frame)) {
      return absl::UnauthenticatedError(absl::StrCat(
          "its token is another one than rank 0's; ", HowToMakeAToken()));
    }
    client.step = Client::Step::kClaim;
    client.connection->SendRaw(client.handshake.Seal(FrameType::kProof, ""));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Frame> frame,
                            TakeFrame(input, kLargestClaim));
  if (!frame.has_value()) return false;
  if (frame->type != FrameType::kClaim || !client.handshake.Open(*frame)) {
    return absl::UnauthenticatedError("it proves badly who it is");
  }
  // A client of another version may have another form of claim.
  absl::StatusOr<Claim> decoded = DecodeClaim(frame->payload);
  if (decoded.ok()) {
    claim = *std::move(decoded);
  } else if (client.handshake.version() == kProtocolVersion) {
    return decoded.status();
  }
  return true;
}

absl::Status HubDoor::Check(const Client& client, const Claim& claim) const {
  if (client.handshake.version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("it speaks version ", client.handshake.version(),
                     " of the protocol, and rank 0 version ", kProtocolVersion,
                     ": run the same build of Lockstep on all ranks"));
  }
  if (claim.job != options_.job) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it belongs to job '", absl::CHexEscape(claim.job),
        "', and rank 0 to job '", absl::CHexEscape(options_.job),
        "': end what is left of the other one, or give each job its own "
        "address"));
  }
  if (claim.size != options_.size) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is one of ", claim.size, " ranks, and rank 0 one of ",
                     options_.size, ": tell all ranks the same size"));
  }
  const int rank = claim.peer.rank;
  if (rank >= options_.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its rank is ", rank, ", and ranks are 0 to ", options_.size - 1));
  }
  // The launcher of one host has restarted the rank, while the launcher of rank
  // 0's host has not ended rank 0 yet.
  if (rank != 0 && links_[rank] != nullptr && links_[rank]->closed()) {
    return absl::UnavailableError(
        absl::StrCat(peers_[rank].Describe(),
                     " of this attempt is lost, and rank 0 has not ended yet"));
  }
  if (rank == 0 || links_[rank] != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        "its rank is taken: ", peers_[rank].Describe(),
        " has joined already; start each rank once, by its own number"));
  }
  return absl::OkStatus();
}

void HubDoor::Admit(uint64_t id, const Claim& claim) {
  Client& client = *clients_.at(id);
  const int rank = claim.peer.rank;
  const std::shared_ptr<Connection> link = client.connection;
  peers_[rank] = claim.peer;
  links_[rank] = link;
  ++joined_;
  gone_.erase(rank);
  link->SendRaw(client.handshake.Seal(FrameType::kWelcome, Progress()));
  link->Read(
      {[this, rank](absl::string_view& input) { OnInputOf(rank, input); },
       [this, rank](const std::string&) { Forget(rank); }});
  clients_.erase(id);
  if (joined_ == options_.size && !late_) Complete();
}

void HubDoor::Refuse(Client& client, const absl::Status& why) {
  Record(client, why.message());
  if (client.step == Client::Step::kClaim) {
    client.connection->SendRaw(
        client.handshake.Seal(FrameType::kRefused, EncodeReason(why)));
  } else if (client.step == Client::Step::kProof) {
    client.connection->Send(FrameType::kStranger, "");
  }
  // The client is closed when it has read the answer and closes its side.
  client.step = Client::Step::kRefused;
  client.connection->FinishSending([] {});
}

void HubDoor::Record(Client& client, absl::string_view why) {
  if (client.step == Client::Step::kRefused) return;
  ++refused_;
  refusals_.push_back(absl::StrCat(client.from, ": ", why));
  if (refusals_.size() > kMostRefusals) refusals_.pop_front();
  if (complete_) TellOfLateRefusal();
}

// Tells of the first client that is refused after all ranks have joined, and
// again whenever their number has doubled.
void HubDoor::TellOfLateRefusal() {
  const int64_t count = ++refused_late_;
  if (!options_.on_slow || (count & (count - 1)) != 0) return;
  CatchAll("on_slow", [&] {
    options_.on_slow(absl::StrCat(
        "rank 0 has refused ", count,
        count == 1 ? " client after all ranks had joined: "
                   : " clients after all ranks had joined; the last one was ",
        refusals_.back()));
    return absl::OkStatus();
  }).IgnoreError();
}

void HubDoor::Drop(uint64_t id) {
  clients_.at(id)->connection->Close();
  clients_.erase(id);
}

// ---- Ranks that have joined.

void HubDoor::OnInputOf(int rank, absl::string_view& input) {
  while (!complete_) {
    const absl::StatusOr<std::optional<Frame>> frame =
        TakeFrame(input, kLargestFrame);
    if (!frame.ok()) return Forget(rank);
    if (!frame->has_value()) return;
    if ((*frame)->type != FrameType::kBeat) return Forget(rank);
  }
}

void HubDoor::Forget(int rank) {
  links_[rank]->Close();
  links_[rank] = nullptr;
  --joined_;
  gone_.insert(rank);
}

void HubDoor::Pulse(absl::Duration ran) {
  const std::string progress = Progress();
  for (int rank = 1; rank < options_.size; ++rank) {
    if (links_[rank] == nullptr) continue;
    links_[rank]->Send(FrameType::kBeat, progress);
    if (links_[rank]->CountSilence(ran) >= options_.silence) Forget(rank);
  }
}

void HubDoor::Complete() {
  complete_ = true;
  most_half_open_ = std::min(most_half_open_, kMostAfterAll);
  MakeRoom(0);
  std::string table;
  for (const Peer& peer : peers_) {
    table += EncodeFrame(FrameType::kPeer, EncodePeer(peer));
  }
  table += EncodeFrame(FrameType::kComplete, "");
  for (int rank = 1; rank < options_.size; ++rank) {
    links_[rank]->SendRaw(table);
    links_[rank]->Pause();
  }
}

// Reads the input that came before the deadline: this thread may have been
// late, which is not the fault of the other ranks. But some of them may have
// given up meanwhile.
void HubDoor::ReadWhatCame() {
  late_ = true;
  for (int i = 0; i < kMostAtTheEnd && io_.poll_one() > 0; ++i) {
  }
  if (joined_ == options_.size) Complete();
}

// Returns true if descriptors have been short for so long that strangers
// without proof can't be the reason, since those are dropped by then.
bool HubDoor::IsShort(SteadyTime now) const {
  return IsShortage(cant_accept_) &&
         now - cant_accept_since_ >=
             absl::ToChronoNanoseconds(2 * options_.handshake);
}

absl::Status HubDoor::AwaitAll(SteadyTime deadline) {
  const absl::Duration beat = BeatOf(options_);
  RunningTime running(2 * beat);
  SteadyTime next_beat = After(beat);
  while (!complete_) {
    io_.run_one_until(std::min({deadline, next_beat, slow_.next()}));
    const SteadyTime now = SteadyNow();
    if ((now >= deadline || IsShort(now)) && !complete_) {
      ReadWhatCame();
      if (!complete_) return GiveUp();
    }
    if (now >= next_beat && !complete_) {
      Pulse(running.Lap());
      next_beat = After(beat);
    }
    if (!complete_) slow_.TellIfDue();
  }
  return absl::OkStatus();
}

std::string HubDoor::Describe(const std::vector<int>& ranks) const {
  std::vector<std::string> parts;
  for (const int rank : ranks) {
    if (parts.size() == kMostListed) {
      parts.push_back(
          absl::StrCat("and ", ranks.size() - kMostListed, " more"));
      break;
    }
    parts.push_back(peers_[rank].Describe());
  }
  return absl::StrJoin(parts, ", ");
}

std::string HubDoor::Progress() const {
  if (joined_ == options_.size) return "all ranks are there";
  std::vector<int> missing;
  for (int rank = 1; rank < options_.size; ++rank) {
    if (links_[rank] == nullptr && gone_.count(rank) == 0) {
      missing.push_back(rank);
    }
  }
  std::string text = absl::StrCat(options_.size - missing.size(), " of ",
                                  options_.size, " ranks came");
  if (!missing.empty()) {
    absl::StrAppend(&text, "; missing: ", ListRanks(missing));
  }
  if (!gone_.empty()) {
    absl::StrAppend(&text, "; came, but gave up, died or fell silent: ",
                    Describe({gone_.begin(), gone_.end()}));
  }
  return text;
}

std::string HubDoor::WhereAndWhat() const {
  std::error_code error;
  const tcp::endpoint endpoint = acceptor_.local_endpoint(error);
  return absl::StrCat("rendezvous of job '", absl::CHexEscape(options_.job),
                      "' at ", Format(endpoint),
                      endpoint.address().is_loopback()
                          ? " (loopback: for this host alone)"
                          : "");
}

std::string HubDoor::Situation() const {
  if (!acceptor_.is_open()) {
    return absl::StrCat("it can't listen yet at '",
                        absl::CHexEscape(options_.address),
                        "', since that name does not resolve");
  }
  return absl::StrCat(WhereAndWhat(), ": ", Progress(), Refusals());
}

std::string HubDoor::Refusals() const {
  if (refused_ == 0) return "";
  return absl::StrCat(
      "; refused: ", refused_, refused_ == 1 ? " client (" : " clients (",
      refused_ > static_cast<int64_t>(refusals_.size()) ? "the last ones: "
                                                        : "",
      absl::StrJoin(refusals_, "; "), ")");
}

// Blames rank 0 if it can take no connection, and otherwise the ranks that did
// not come. If all came, those that did not stay are to blame.
Blame HubDoor::BlameForGivingUp(bool is_short, bool none_missing) const {
  Blame blame;
  blame.has_begun = false;
  if (is_short) {
    blame.cause = Blame::Cause::kFailed;
    blame.code = absl::StatusCode::kResourceExhausted;
    blame.ranks = {peers_[0].ForBlame()};
    return blame;
  }
  blame.cause = none_missing ? Blame::Cause::kLost : Blame::Cause::kAbsent;
  blame.code = none_missing ? absl::StatusCode::kUnavailable
                            : absl::StatusCode::kDeadlineExceeded;
  for (int rank = 1; rank < options_.size; ++rank) {
    if (links_[rank] != nullptr || (!none_missing && gone_.count(rank) > 0)) {
      continue;
    }
    if (blame.ranks.size() == Blame::kMostRanks) {
      ++blame.more;
      continue;
    }
    blame.ranks.emplace_back().rank = rank;
    if (none_missing) blame.ranks.back() = peers_[rank].ForBlame();
  }
  return blame;
}

absl::Status HubDoor::GiveUp() {
  const std::string where = WhereAndWhat();
  // No client may join from now on: it would be told that all ranks have
  // joined.
  closed_in_forks_.reset();
  std::error_code ignored;
  acceptor_.close(ignored);
  accept_again_.cancel();
  while (!clients_.empty()) Drop(clients_.begin()->first);

  std::vector<int> there;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank == 0 || links_[rank] != nullptr) there.push_back(rank);
  }
  const bool is_short = IsShortage(cant_accept_);
  std::string message =
      is_short
          ? absl::StrCat(where, ": rank 0 can take no connection: ",
                         ErrorText(cant_accept_), "; so far ")
          : absl::StrCat(where, ", after ",
                         absl::FormatDuration(options_.join_deadline), ": ");
  absl::StrAppend(&message, Progress(), "; there: ", Describe(there),
                  Refusals());
  if (turned_away_ > 0) {
    absl::StrAppend(&message, "; turned away before they said who they were: ",
                    turned_away_, turned_away_ == 1 ? " client" : " clients",
                    ", to make room for later ones");
  }
  const bool none_missing =
      joined_ + static_cast<int>(gone_.size()) == options_.size;
  if (none_missing) {
    absl::StrAppend(&message,
                    "; see why those that came did not stay, and give ranks "
                    "that do not start at one time a longer join deadline");
  } else if (!is_short) {
    absl::StrAppend(&message,
                    "; see that the missing ranks run, and reach this address");
  }
  absl::Status why =
      WithBlame(absl::Status(is_short ? absl::StatusCode::kResourceExhausted
                                      : absl::StatusCode::kDeadlineExceeded,
                             message),
                BlameForGivingUp(is_short, none_missing));

  int unsent = 0;
  for (const std::shared_ptr<Connection>& link : links_) {
    if (link == nullptr) continue;
    ++unsent;
    link->Pause();
    link->Send(FrameType::kFailed, EncodeReason(why));
    link->FinishSending([&unsent] { --unsent; });
  }
  const SteadyTime farewell = After(kFarewellTakes);
  while (unsent > 0 && SteadyNow() < farewell) io_.run_one_until(farewell);
  return why;
}

}  // namespace lockstep::internal_collective
