#include "lockstep/sampler/stratified.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/quota.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {
namespace {

using Classes = StratifiedOrder::Classes;

std::shared_ptr<const Classes> SortByClass(const std::vector<int64_t>& labels) {
  std::map<int64_t, std::vector<int64_t>> by_label;
  for (size_t i = 0; i < labels.size(); ++i) {
    by_label[labels[i]].push_back(static_cast<int64_t>(i));
  }
  auto classes = std::make_shared<Classes>();
  classes->members.reserve(labels.size());
  for (const auto& [label, members] : by_label) {
    classes->members.insert(classes->members.end(), members.begin(),
                            members.end());
    classes->counts.push_back(static_cast<int64_t>(members.size()));
  }
  return classes;
}

// Thread-safety: thread-compatible.
class StratifiedStream : public IndexStream {
 public:
  StratifiedStream(uint64_t key, std::shared_ptr<const Classes> classes)
      : key_(key), classes_(std::move(classes)) {}

  int64_t size() const override {
    return static_cast<int64_t>(classes_->members.size());
  }

  absl::Status Prepare() override {
    if (!indices_.empty() || size() == 0) return absl::OkStatus();
    struct Class {
      const int64_t* members;
      NativePermutation permutation;
      int64_t next;
    };
    std::vector<Class> classes;
    const int64_t* members = classes_->members.data();
    for (size_t i = 0; i < classes_->counts.size(); ++i) {
      const int64_t count = classes_->counts[i];
      classes.push_back(
          {members, NativePermutation(count, Random(key_, i)()), 0});
      members += count;
    }
    QuotaTurns turns(classes_->counts);
    indices_.reserve(classes_->members.size());
    for (int64_t i = 0; i < size(); ++i) {
      Class& turn = classes[turns.Next()];
      indices_.push_back(turn.members[turn.permutation[turn.next++]]);
    }
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    LOCKSTEP_RETURN_IF_ERROR(Prepare());
    for (int64_t& index : out) {
      index = indices_[first];
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t key_;
  const std::shared_ptr<const Classes> classes_;
  std::vector<int64_t> indices_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const StratifiedOrder>> StratifiedOrder::Create(
    const StratifiedOptions& options) {
  return std::shared_ptr<const StratifiedOrder>(new StratifiedOrder(options));
}

StratifiedOrder::StratifiedOrder(const StratifiedOptions& options)
    : seed_(options.seed),
      digest_(DigestOfValues(options.labels)),
      classes_(SortByClass(options.labels)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> StratifiedOrder::Open(
    int64_t epoch) const {
  return std::make_unique<StratifiedStream>(
      RandomKey(seed_, kStratifiedStream, static_cast<uint64_t>(epoch)),
      classes_);
}

OrderDescription StratifiedOrder::Describe() const {
  OrderDescription description;
  description.order = "stratified";
  description.size = static_cast<int64_t>(classes_->members.size());
  description.seed = seed_;
  description.data = digest_;
  return description;
}

}  // namespace lockstep
