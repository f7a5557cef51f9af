#pragma once
// Rewards from a program of the user's: it reads what was written, and writes a number for each.
#include <span>
#include <string>
#include <vector>

namespace vitrine {

/// Runs `command` by /bin/sh with `lines` on its standard input, each with a line end, and reads a JSON number from each line of
/// its standard output, in the same order. The command is started anew each time, with no state of the last one.
///
/// seconds  after which it is killed, with what it started
/// where    of the command in a configuration, for messages
///
/// Errors: RunError for a command that cannot be started, ends before it has read and answered everything, returns another code
/// than 0 (with the end of its standard error), takes longer, or prints another number of lines or anything but finite numbers;
/// it names the line, counted from 1, with what was asked and what came.
std::vector<double> run_reward_command(const std::string& command, std::span<const std::string> lines, double seconds,
                                       const std::string& where);

}  // namespace vitrine
