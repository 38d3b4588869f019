/** Exit codes of the command line. `svc --help` documents them; they are stable for scripts. */
import type { ErrorCode } from "../../errors.ts";

export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  denied: 4,
  conflict: 5,
  unavailable: 6,
  timedOut: 7,
  /**
   * The daemon's configuration is wrong, so restarting does not help (sysexits.h, EX_CONFIG). Units refer to
   * this code.
   */
  misconfigured: 78,
  /** A job exceeded its timeout; the same code as timeout(1). */
  jobTimedOut: 124,
  interrupted: 130,
} as const;

/** Programs that exit with their own codes. */
export const exitCodeNote =
  "svc shell, svc exec and svc schedule run exit with the code of the command that they run.";

export const exitCodeHelp = `
Exit codes:
  0    done
  1    failed
  2    the command line or a value in it is wrong, or --yes is missing
  3    not found
  4    not allowed
  5    conflict: busy, running, exists already, or a license or permission is not accepted
  6    unavailable: the daemon, the container engine or a server
  7    took longer than --timeout
  78   the configuration is not valid
  124  the job of svc schedule run exceeded its timeout
  130  interrupted

${exitCodeNote}
`;

const codesOfErrors: Readonly<Partial<Record<ErrorCode, number>>> = {
  invalid_argument: exitCodes.usage,
  out_of_range: exitCodes.usage,
  not_found: exitCodes.notFound,
  permission_denied: exitCodes.denied,
  unauthenticated: exitCodes.denied,
  failed_precondition: exitCodes.conflict,
  already_exists: exitCodes.conflict,
  aborted: exitCodes.conflict,
  resource_exhausted: exitCodes.conflict,
  unavailable: exitCodes.unavailable,
  deadline_exceeded: exitCodes.timedOut,
  canceled: exitCodes.interrupted,
};

export function exitCodeOf(code: ErrorCode): number {
  return codesOfErrors[code] ?? exitCodes.failed;
}
