// A Board is the network of backend_test.cc: memory that the ranks of a group
// share. Ranks are threads. Each of them waits until its flag `cancelled` is
// set.
#ifndef LOCKSTEP_EXAMPLES_SKELETONS_BOARD_H_
#define LOCKSTEP_EXAMPLES_SKELETONS_BOARD_H_

#include <atomic>
#include <chrono>  // NOLINT: the time of a std::condition_variable
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/perform.h"

namespace skeletons {
// Thread-safety: thread-safe.
class Board {
 public:
  // Returns the board with that number. It lives until the process ends.
  static Board& Numbered(const std::string& number) {
    static std::mutex mutex;
    static auto& boards = *new std::map<std::string, std::unique_ptr<Board>>;
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Board>& board = boards[number];
    if (board == nullptr) board = std::make_unique<Board>();
    return *board;
  }

  // Waits until `ranks` ranks have come with an operation of the same
  // fingerprint. The last rank performs the operation for all of them.
  absl::Status Meet(int rank, size_t ranks, const lockstep::Operation& op,
                    uint64_t fingerprint, const std::atomic<bool>& cancelled) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t round = rounds_;
    came_[fingerprint][rank] = &op;
    if (came_[fingerprint].size() == ranks) {
      std::vector<const lockstep::Operation*> ops;
      for (const auto& each : came_[fingerprint]) ops.push_back(each.second);
      performed_ = lockstep::Perform(ops);
      came_.clear();
      ++rounds_;
      changed_.notify_all();
    }
    while (rounds_ == round && !cancelled) Wait(lock);
    if (rounds_ > round) return performed_;
    came_[fingerprint].erase(rank);
    return absl::CancelledError();
  }

  void Send(int from, int to, uint64_t tag, const std::string& bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    mail_[{from, to, tag}].push_back(bytes);
    changed_.notify_all();
  }
  // Returns nullopt if it is cancelled.
  std::optional<std::string> Receive(int from, int to, uint64_t tag,
                                     const std::atomic<bool>& cancelled) {
    std::unique_lock<std::mutex> lock(mutex_);
    std::deque<std::string>& mail = mail_[{from, to, tag}];
    while (mail.empty() && !cancelled) Wait(lock);
    if (mail.empty()) return std::nullopt;
    std::string bytes = mail.front();
    mail.pop_front();
    return bytes;
  }

 private:
  // Waits for a limited time, since a change of `cancelled` does not notify it.
  void Wait(std::unique_lock<std::mutex>& lock) {
    changed_.wait_for(lock, std::chrono::milliseconds(5));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t rounds_ = 0;
  absl::Status performed_;  // the last round
  std::map<uint64_t, std::map<int, const lockstep::Operation*>> came_;
  std::map<std::tuple<int, int, uint64_t>, std::deque<std::string>> mail_;
};
}  // namespace skeletons

#endif  // LOCKSTEP_EXAMPLES_SKELETONS_BOARD_H_
