import type { ExecutionContext } from "ava";
import type { SvcRun } from "./run-svc.ts";

/** A command line and its expected results. */
export interface CommandCase {
  readonly args: readonly string[];
  /** Default: 0. */
  readonly exitCode?: number;
  readonly stdout?: RegExp;
  /** Default: nothing. */
  readonly stderr?: RegExp;
}

export function checkRun(t: ExecutionContext, run: SvcRun, expected: CommandCase): void {
  const { exitCode = 0, stdout, stderr = /^$/ } = expected;
  t.is(run.exitCode, exitCode, run.stderr);
  if (stdout !== undefined) t.regex(run.stdout, stdout);
  t.regex(run.stderr, stderr);
}
