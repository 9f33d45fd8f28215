// Marks remember which gradients are whole. Any thread may mark, for instance
// one of a trainer's that computes gradients. Internal.
#ifndef LOCKSTEP_GRADIENTS_MARKS_H_
#define LOCKSTEP_GRADIENTS_MARKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep::internal_gradients {

// The marks of the parameters of a model in one step.
// Thread-safety: Mark may be called on any thread. All other functions must be
// called on one thread, and not while another one marks.
class Marks {
 public:
  // A Mistake says what was wrong about a mark.
  struct Mistake {
    enum class Kind : uint8_t { kNone, kTwice, kOutside, kNoParameter };

    Kind kind = Kind::kNone;
    int64_t parameter = 0;
  };

  explicit Marks(size_t parameters) : marks_(parameters), order_(parameters) {}

  size_t size() const { return marks_.size(); }

  void BeginStep();
  void BeginPart();
  void EndStep();

  // Returns true if it is the first mark of the parameter in this part.
  bool Mark(int64_t parameter);

  // Returns for each parameter its place in the order of the last marks of this
  // step. Parameters without a mark come behind, from the last to the first, as
  // in most backward passes.
  std::vector<int64_t> Places() const;

  // Returns true if something was marked in this step.
  bool any() const { return marked_.load(std::memory_order_relaxed) > 0; }
  bool IsInPart(size_t parameter) const { return Get(parameter) & kInPart; }
  bool IsInStep(size_t parameter) const { return Get(parameter) & kInStep; }

  // Returns the first mistake since the step before has ended. It stays until
  // this step ends.
  Mistake mistake();

 private:
  static constexpr uint8_t kInPart = 1;
  static constexpr uint8_t kInStep = 2;

  uint8_t Get(size_t parameter) const {
    return marks_[parameter].load(std::memory_order_relaxed);
  }
  // Keeps the mistake if it is the first one, and returns false.
  bool Note(Mistake::Kind kind, int64_t parameter);
  Mistake Noted() const;

  // The threads that mark also write gradients, so the trainer orders these
  // before Average in any case. The atomics publish no other memory.
  std::vector<std::atomic<uint8_t>> marks_;
  // The number of the parameter's last mark in the step, from 1 on; 0: none.
  std::vector<std::atomic<int64_t>> order_;
  std::atomic<int64_t> marked_{0};    // in the step
  std::atomic<bool> is_open_{false};  // a step is
  // The mistake's kind, and the parameter in the higher bits; 0: none.
  std::atomic<int64_t> mistake_{0};
  bool is_told_ = false;  // the mistake is
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_MARKS_H_
