// The sections of gpu_check that run ranks as processes: the conformance of a
// single rank, and two ranks on one card, which first work and then fail in all
// the ways in which ranks can fail.
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_RANKS_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_RANKS_H_

#include <map>
#include <string>

#include "lockstep/base/language.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// Returns the roles for RankProcesses::Main.
std::map<std::string, RankProcesses::Role> GpuRoles();

// Runs the section "conformance".
void CheckConformance(const GpuOptions& options, GpuReport& report);

// Runs the sections "two ranks on one card" and "faults". NCCL refuses two
// ranks on one card unless it is told that they are on two hosts or, from 2.30
// on, that this is intended.
void CheckTwoRanks(const GpuOptions& options, int nccl_version,
                   GpuReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_RANKS_H_
