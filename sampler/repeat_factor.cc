#include "lockstep/sampler/repeat_factor.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {
namespace {

// Reads the copies of all samples through a permutation of them.
// Thread-safety: thread-compatible.
class CopiesStream : public IndexStream {
 public:
  // Sample i has the copies from ends[i - 1] to before ends[i].
  CopiesStream(std::vector<int64_t> ends, uint64_t key)
      : ends_(std::move(ends)),
        permutation_(ends_.empty() ? 0 : ends_.back(), key) {}

  int64_t size() const override { return permutation_.size(); }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    permutation_.Read(first, stride, out);
    for (int64_t& index : out) {
      index =
          std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> ends_;
  const NativePermutation permutation_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RepeatFactorOrder>>
RepeatFactorOrder::Create(RepeatFactorOptions options) {
  double sum = 0;
  for (size_t i = 0; i < options.factors.size(); ++i) {
    const double factor = options.factors[i];
    sum += factor;
    if (factor >= 0 && sum < 0x1p61) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "repeat_factor: factors must be 0 or more and add up to less than "
        "2^61, but factors[",
        i, "] is ", factor));
  }
  return std::shared_ptr<const RepeatFactorOrder>(
      new RepeatFactorOrder(std::move(options)));
}

RepeatFactorOrder::RepeatFactorOrder(RepeatFactorOptions options)
    : options_(std::move(options)), digest_(DigestOfValues(options_.factors)) {}

absl::StatusOr<std::unique_ptr<IndexStream>> RepeatFactorOrder::Open(
    int64_t epoch) const {
  const uint64_t key = RandomKey(options_.seed, kRepeatFactorStream,
                                 static_cast<uint64_t>(epoch));
  std::vector<int64_t> ends(options_.factors.size());
  int64_t end = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const double factor = options_.factors[i];
    const auto whole = static_cast<int64_t>(factor);
    Random random(key, i);
    end += whole + (random.Uniform() < factor - static_cast<double>(whole));
    ends[i] = end;
  }
  return std::make_unique<CopiesStream>(std::move(ends), key);
}

OrderDescription RepeatFactorOrder::Describe() const {
  OrderDescription description;
  description.order = "repeat_factor";
  description.size = static_cast<int64_t>(options_.factors.size());
  description.seed = options_.seed;
  description.data = digest_;
  return description;
}

std::vector<double> RepeatFactorsFromClasses(
    absl::Span<const std::vector<int64_t>> classes_of_sample,
    double threshold) {
  std::map<int64_t, int64_t> samples_with;
  for (const std::vector<int64_t>& classes : classes_of_sample) {
    const std::set<int64_t> different(classes.begin(), classes.end());
    for (const int64_t one : different) ++samples_with[one];
  }
  const auto count = static_cast<double>(classes_of_sample.size());
  std::vector<double> factors;
  factors.reserve(classes_of_sample.size());
  for (const std::vector<int64_t>& classes : classes_of_sample) {
    double factor = 1;
    for (const int64_t one : classes) {
      const double share = static_cast<double>(samples_with[one]) / count;
      factor = std::max(factor, std::sqrt(threshold / share));
    }
    factors.push_back(factor);
  }
  return factors;
}

}  // namespace lockstep
