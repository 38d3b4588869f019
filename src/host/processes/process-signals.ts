/** Sends signals to processes of the host, for root; never to another process that got the same pid. */
import { statSync } from "node:fs";
import { constants } from "node:os";
import type { SignalProcessRequestSignal } from "../../../gen/svc/v1/values.ts";
import { SvcError, notFound } from "../../errors.ts";
import { readProcess } from "../../sys/process-table.mjs";
import { createProcessOpener, type ProcessHandle } from "../../sys/pidfd.ts";

export interface SignalRequest {
  readonly pid: number;
  readonly signal: SignalProcessRequestSignal;
  /** The process's start marker, if the caller knows it. */
  readonly expectedStartTicks?: number;
}

export interface Supervisor {
  readonly pid: number;
  /** The app's owner. */
  readonly uid: number;
}

export interface ProcessSignalsOptions {
  /** The daemon's pid. */
  selfPid: number;
  /** The supervisors of apps, as they describe themselves: an app's owner can replace its supervisor. */
  supervisors: () => Iterable<Supervisor>;
}

export class ProcessSignals {
  readonly #options: ProcessSignalsOptions;
  #open: ((pid: number) => ProcessHandle) | undefined;

  constructor(options: ProcessSignalsOptions) {
    this.#options = options;
  }

  /** @throws SvcError `denied` for processes that svc or the host needs, `not_found`, `pid_reused` */
  send({ pid, signal, expectedStartTicks }: SignalRequest): void {
    if (pid === 1) throw denied("process 1 is the init process of the host and cannot be signaled");
    if (pid === this.#options.selfPid)
      throw denied(`process ${pid} is the svc daemon; stop it with: systemctl stop svc`);
    try {
      // From here on the descriptor refers to this process, even if the pid is reused.
      using handle = (this.#open ??= createProcessOpener())(pid);
      const found = readProcess(pid);
      if (found === undefined) throw gone(pid);
      if (expectedStartTicks !== undefined && found.startTicks !== expectedStartTicks) {
        const why = `process ${pid} is another one by now: it started at tick ${found.startTicks}, not ${expectedStartTicks}`;
        throw new SvcError("pid_reused", why);
      }
      if (found.isKernelThread) throw denied(`process ${pid} is a kernel thread`);
      if (found.ppid === this.#options.selfPid)
        throw denied(`process ${pid} is a helper process of the svc daemon`);
      if (this.#isSupervisor(pid)) {
        throw denied(`process ${pid} is the supervisor of an app: use svc stop`);
      }
      handle.signal(numberOf(signal));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ESRCH") throw gone(pid);
      throw error;
    }
  }

  /** A supervisor that claims the pid of another user's process protects nothing. */
  #isSupervisor(pid: number): boolean {
    const uids = [...this.#options.supervisors()].filter((each) => each.pid === pid).map(({ uid }) => uid);
    if (uids.length === 0) return false;
    const found = statSync(`/proc/${pid}`, { throwIfNoEntry: false });
    return found !== undefined && uids.includes(found.uid);
  }
}

/** The contract's values are the ends of the names. */
function numberOf(signal: SignalProcessRequestSignal): number {
  return constants.signals[`SIG${signal.toUpperCase() as Uppercase<SignalProcessRequestSignal>}`];
}

function denied(message: string): SvcError {
  return new SvcError("denied", message);
}

function gone(pid: number): SvcError {
  return notFound("process", String(pid), `process ${pid} does not exist`);
}
