#include "lockstep/examples/trainer/clipping.h"

#include <cmath>

#include "Eigen/Core"
#include "absl/types/span.h"
#include "lockstep/session/gradients.h"

namespace trainer {

double ClipByNorm(lockstep::Gradients& gradients, double most) {
  const absl::Span<float> all = gradients.all();
  Eigen::Map<Eigen::ArrayXf> values(all.data(),
                                    static_cast<Eigen::Index>(all.size()));
  // The squares of large gradients do not fit into a float.
  const double norm = std::sqrt(values.cast<double>().square().sum());
  if (std::isfinite(norm) && norm > most) {
    values *= static_cast<float>(most / norm);
  }
  return norm;
}

}  // namespace trainer
