#include "lockstep/loader/images/resize_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/loader/images/image_options.h"

namespace lockstep::internal_loader {
namespace {

constexpr int kLowBits = ResizeWeights::kLowBits;
constexpr int32_t kLowMask = (1 << kLowBits) - 1;

// A weight, by the distance from the new pixel's place.
double Bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}
double Bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

// Rounds a weight to a multiple of 2^-22.
int32_t RoundWeight(double weight) {
  const double scaled = weight * (1 << ResizeWeights::kBits);
  return static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

int32_t Pair(int32_t first, int32_t second) {
  return static_cast<int32_t>((static_cast<uint32_t>(first) & 0xFFFF) |
                              static_cast<uint32_t>(second) << 16);
}

}  // namespace

void ResizeWeights::Compute(const ResizeAxis& axis, ImageFilter filter) {
  const bool cubic = filter == ImageFilter::kBicubic;
  const double scale =
      static_cast<double>(axis.in) / static_cast<double>(axis.out);
  const double stretch = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * stretch;
  const double step = 1.0 / stretch;
  pixels_.clear();
  high_.clear();
  low_.clear();
  begin_ = axis.in;
  end_ = 0;
  most_ = 0;
  for (int64_t i = 0; i < axis.count; ++i) {
    const double center = (static_cast<double>(axis.first + i) + 0.5) * scale;
    // These are rounded towards 0, before negative ones become 0.
    const double from = center - support + 0.5;
    const double to = center + support + 0.5;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(from), 0);
    const int64_t end = std::min(static_cast<int64_t>(to), axis.in);
    exact_.clear();
    double sum = 0.0;
    for (int64_t at = first; at < end; ++at) {
      const double x = (static_cast<double>(at) - center + 0.5) * step;
      const double weight = cubic ? Bicubic(x) : Bilinear(x);
      exact_.push_back(weight);
      sum += weight;
    }
    Pixel pixel;
    pixel.first = static_cast<int32_t>(first);
    pixel.count = static_cast<int32_t>(end - first);
    pixel.pairs = (pixel.count + 1) / 2;
    pixel.weights = high_.size();
    exact_.resize(static_cast<size_t>(pixel.pairs) * 2);
    for (size_t at = 0; at < exact_.size(); at += 2) {
      const int32_t a = RoundWeight(sum != 0 ? exact_[at] / sum : 0);
      const int32_t b = RoundWeight(sum != 0 ? exact_[at + 1] / sum : 0);
      high_.push_back(Pair(a >> kLowBits, b >> kLowBits));
      low_.push_back(Pair(a & kLowMask, b & kLowMask));
    }
    if (pixel.pairs % 2 != 0) {
      high_.push_back(0);
      low_.push_back(0);
    }
    pixels_.push_back(pixel);
    begin_ = std::min(begin_, first);
    end_ = std::max(end_, end);
    most_ = std::max(most_, end - first);
  }
}

}  // namespace lockstep::internal_loader
