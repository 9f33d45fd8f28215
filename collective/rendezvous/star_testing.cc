#include "lockstep/collective/rendezvous/star_testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/hub_door.h"
#include "lockstep/collective/rendezvous/token.h"

namespace lockstep::internal_collective {

const std::string& JobName() {
  static const std::string& name = *new std::string(
      absl::StrCat("job-", absl::BytesToHexString(*RandomBytes(8))));
  return name;
}

StarOptions OptionsOf(int rank, int size, Store* store) {
  StarOptions options;
  options.rank = rank;
  options.size = size;
  options.job = JobName();
  options.store = store;
  options.token = "secret";
  options.host = absl::StrCat("host-", rank);
  options.about = absl::StrCat("about ", rank);
  options.join_deadline = kLong;
  options.beat = absl::Milliseconds(20);
  options.tick = absl::Milliseconds(5);
  return options;
}

std::vector<JoinResult> JoinAll(const std::vector<StarOptions>& options) {
  std::vector<JoinResult> results(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = Star::Join(options[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

JoinResult JoinAgain(const StarOptions& options) {
  const SteadyTime deadline = After(kLong);
  while (true) {
    JoinResult result = Star::Join(options);
    if (!absl::IsAlreadyExists(result.status()) || SteadyNow() >= deadline) {
      return result;
    }
  }
}

void ExpectExpires(StarOptions options,
                   const testing::Matcher<std::string>& says) {
  options.join_deadline = absl::Milliseconds(20);
  absl::Status status = JoinAgain(options).status();
  while (absl::IsDeadlineExceeded(status) && options.join_deadline < kLong &&
         !testing::Value(std::string(status.message()), says)) {
    options.join_deadline *= 4;
    status = JoinAgain(options).status();
  }
  const std::string in =
      absl::StrCat(" in ", absl::FormatDuration(options.join_deadline));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               testing::AllOf(testing::HasSubstr(in), says)));
}

std::string AddressIn(MemoryStore& store) {
  const absl::StatusOr<std::string> address =
      store.Get(AddressKey(JobName()), absl::Now() + kLong);
  EXPECT_THAT(address, IsOk());
  return address.value_or("");
}

// ---- Ears.

void Ears::OnMessage(int from, absl::string_view message) {
  MutexLock lock(mutex_);
  messages_[from].emplace_back(message);
  changed_.NotifyAll();
}

void Ears::OnGone(int rank, const absl::Status& why) {
  MutexLock lock(mutex_);
  EXPECT_TRUE(gone_.emplace(rank, why).second) << "twice: rank " << rank;
  changed_.NotifyAll();
}

void Ears::OnTick() {
  MutexLock lock(mutex_);
  ++ticks_;
  changed_.NotifyAll();
}

void Ears::OnBeat(int from, absl::string_view beat) {
  MutexLock lock(mutex_);
  beats_[from] = std::string(beat);
  changed_.NotifyAll();
}

std::vector<std::string> Ears::AwaitMessages(int from, size_t count) {
  MutexLock lock(mutex_);
  Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return messages_[from].size() >= count;
  });
  return messages_[from];
}

absl::Status Ears::AwaitGone(int rank) {
  MutexLock lock(mutex_);
  Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return gone_.count(rank) > 0; });
  return gone_.count(rank) > 0 ? gone_.at(rank)
                               : absl::InternalError("it is not gone");
}

std::string Ears::AwaitBeat(int from) {
  MutexLock lock(mutex_);
  Await([&]()
            ABSL_NO_THREAD_SAFETY_ANALYSIS { return beats_.count(from) > 0; });
  return beats_[from];
}

int Ears::AwaitTicks(int count) {
  MutexLock lock(mutex_);
  Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ticks_ >= count; });
  return ticks_;
}

std::map<int, absl::Status> Ears::gone() {
  MutexLock lock(mutex_);
  return gone_;
}

// ---- Jobs.

Job::Job(int size, bool starts_hub) : ears(size) {
  std::vector<StarOptions> options;
  for (int rank = 0; rank < size; ++rank) {
    options.push_back(OptionsOf(rank, size, &store));
  }
  for (JoinResult& result : JoinAll(options)) {
    EXPECT_THAT(result, IsOk());
    stars.push_back(result.ok() ? *std::move(result) : nullptr);
  }
  for (size_t rank = starts_hub ? 0 : 1; rank < stars.size(); ++rank) {
    stars[rank]->Start(ears[rank]);
  }
}

void Job::Leave() {
  std::vector<std::thread> threads;
  for (const auto& star : stars) {
    if (star == nullptr) continue;
    threads.emplace_back([&star] { LOCKSTEP_EXPECT_OK(star->Leave(kLong)); });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- By hand.

bool HasIpv6Loopback() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_addr = in6addr_loopback;
  const bool has =
      bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  close(fd);
  return has;
}

Socket::Socket() : Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

Socket::Socket(int fd) : fd_(fd) {
  const timeval limit = {absl::ToInt64Seconds(kLong), 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

Socket::~Socket() { close(fd_); }

std::string Socket::Bind() {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&name), size), 0);
  EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size), 0);
  return absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
}

bool Socket::Keep(const std::string& address) {
  // A server that sets this option, too, can bind to the same address.
  const int on = 1;
  EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  const size_t colon = address.rfind(':');
  sockaddr_in name{};
  name.sin_family = AF_INET;
  EXPECT_EQ(
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &name.sin_addr), 1);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(colon + 1), &port));
  name.sin_port = htons(port);
  return bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 ||
         errno != EADDRINUSE;
}

void Socket::Listen() { EXPECT_EQ(listen(fd_, 16), 0); }

int Socket::Accept() { return accept(fd_, nullptr, nullptr); }

bool Socket::Connect(const std::string& address) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  name.sin_port = htons(port);
  return connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
}

bool Socket::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put <= 0) return false;
    bytes.remove_prefix(put);
  }
  return true;
}

bool Socket::Read(std::string* bytes) {
  char chunk[4096];
  const ssize_t got = recv(fd_, chunk, sizeof(chunk), 0);
  if (got <= 0) return false;
  bytes->append(chunk, got);
  return true;
}

bool Socket::IsOpen() const {
  char byte;
  const ssize_t got = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && errno == EAGAIN);
}

void Socket::AwaitArrival() {
  const SteadyTime deadline = After(kLong);
  int on_the_way = 0;
  do {
    ASSERT_EQ(ioctl(fd_, TIOCOUTQ, &on_the_way), 0);
    std::this_thread::yield();
  } while (on_the_way > 0 && SteadyNow() < deadline);
  EXPECT_EQ(on_the_way, 0);
}

void Socket::Shutdown() { shutdown(fd_, SHUT_RDWR); }

std::vector<Socket> ConnectStrangers(int count, const std::string& address) {
  std::vector<Socket> strangers(count);
  for (Socket& stranger : strangers) {
    EXPECT_TRUE(stranger.Connect(address));
    std::string bytes;
    EXPECT_TRUE(stranger.Read(&bytes));
  }
  return strangers;
}

DescriptorLimit::DescriptorLimit(rlim_t most) {
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
  const rlimit limit = {most, before_.rlim_max};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

DescriptorLimit::~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

Hand::Hand(Handshake::Role role, absl::string_view token, Socket& socket,
           uint64_t version)
    : socket_(socket),
      handshake_(role, token, *RandomBytes(kMacBytes), version) {}

absl::Status Hand::Greet() {
  socket_.Write(handshake_.greeting());
  while (true) {
    absl::string_view rest = input_;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool whole, handshake_.TakeGreeting(rest));
    input_.erase(0, input_.size() - rest.size());
    if (whole) return absl::OkStatus();
    if (!socket_.Read(&input_)) return absl::UnavailableError("ended");
  }
}

void Hand::Say(FrameType type, absl::string_view payload) {
  socket_.Write(handshake_.Seal(type, payload));
}

std::pair<FrameType, std::string> Hand::Next() {
  while (true) {
    absl::string_view rest = input_;
    const auto frame = TakeFrame(rest, kLargestFrame);
    if (!frame.ok()) return {FrameType::kGoodbye, "bad"};
    if (frame->has_value()) {
      std::pair<FrameType, std::string> next((*frame)->type,
                                             std::string((*frame)->payload));
      input_.erase(0, input_.size() - rest.size());
      return next;
    }
    if (!socket_.Read(&input_)) return {FrameType::kGoodbye, "ended"};
  }
}

std::pair<FrameType, std::string> Hand::NextSealed() {
  const auto [type, payload] = Next();
  Frame frame{type, payload};
  if (!handshake_.Open(frame)) return {FrameType::kGoodbye, "bad MAC"};
  return {type, std::string(frame.payload)};
}

std::pair<FrameType, std::string> Hand::Join(absl::string_view claim) {
  LOCKSTEP_EXPECT_OK(Greet());
  Say(FrameType::kProof, "");
  EXPECT_EQ(NextSealed().first, FrameType::kProof);
  Say(FrameType::kClaim, claim);
  return NextSealed();
}

void Hand::AwaitComplete() {
  while (true) {
    const FrameType type = Next().first;
    ASSERT_NE(type, FrameType::kGoodbye);
    if (type == FrameType::kComplete) return;
  }
}

Claim ClaimOf(int rank, int size) {
  Claim claim;
  claim.size = size;
  claim.job = JobName();
  claim.peer.rank = rank;
  claim.peer.host = "by-hand";
  claim.peer.pid = 7;
  return claim;
}

HandSpoke::HandSpoke(const std::string& address, int rank, int size) {
  EXPECT_TRUE(socket.Connect(address));
  EXPECT_EQ(hand.Join(EncodeClaim(ClaimOf(rank, size))).first,
            FrameType::kWelcome);
}

}  // namespace lockstep::internal_collective
