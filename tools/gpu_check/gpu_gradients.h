// The sections of gpu_check about Gradients of parameters on the card.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_GRADIENTS_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_GRADIENTS_H_

#include <map>
#include <string>

#include "lockstep/base/language.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// Returns the roles for RankProcesses::Main.
std::map<std::string, RankProcesses::Role> GradientRoles();

// Runs the sections "gradients, one rank" and "gradients, two ranks on one
// card". In both, known gradients are averaged on the card and compared
// (gradient_steps.h), and then Average is measured beside NCCL alone
// (gradient_speed.h).
void CheckGradients(const GpuOptions& options, int nccl_version,
                    GpuReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_GRADIENTS_H_
