// Judges the facts about one machine.
//
//   const MachineReport report =
//       JudgeMachine(ReadMachineFacts(options), judge_options);
#ifndef LOCKSTEP_TOOLS_DOCTOR_MACHINE_H_
#define LOCKSTEP_TOOLS_DOCTOR_MACHINE_H_

#include <string>

#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/facts.h"
#include "lockstep/tools/doctor/finding.h"

namespace lockstep {

struct JudgeOptions {
  std::string version;           // of Lockstep
  WorldOptions world;            // of the job
  std::string backend = "auto";  // of the job's group
};

// Judges all facts that can be judged without other ranks. It does not use the
// system.
MachineReport JudgeMachine(const MachineFacts& facts,
                           const JudgeOptions& options);

// Returns the check of a failure after which the ranks can't meet, or "".
std::string WhatKeepsRanksApart(const MachineReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_MACHINE_H_
